"""`fsbench export`: a feature file in the layouts that other programs read."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.errors import FsbenchError, unknown_name
from fsbench.io.files import whole_file

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.features.store import FeatureFile
    from fsbench.reporter import Reporter

# numpy 2 writes its own new name, which numpy 1 does not know; both know the old one.
_NEW_NAME, _OLD_NAME = b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"


def export_npz(file: FeatureFile, out: Path | None, reporter: Reporter, force: bool) -> list[Path]:
    """One archive with `{base,val,novel}_{features,labels,class_names,images}`."""
    path = out or file.path.with_suffix(".npz")
    _refuse_existing([path], force)
    arrays: dict[str, Any] = {}
    for name in file.splits:
        split = file.read(name)
        arrays[f"{name}_features"], arrays[f"{name}_labels"] = split.features, split.labels
        arrays[f"{name}_class_names"] = np.array(split.class_names)
        if split.images:
            arrays[f"{name}_images"] = np.array(split.images)
    with whole_file(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)
    return [path]


def export_ptmap(file: FeatureFile, out: Path | None, reporter: Reporter, force: bool) -> list[Path]:
    """One pickle per split, as PT-MAP reads them: class number → list of vectors; classes are numbered on and on."""
    folder, first = out or file.path.with_suffix(""), 0
    paths = [folder / f"{name}.plk" for name in file.splits]
    _refuse_existing(paths, force)
    for name, path in zip(file.splits, paths, strict=True):
        split = file.read(name)
        rows = np.split(split.features, split.offsets[1:-1])
        classes = {first + number: list(features) for number, features in enumerate(rows)}
        reporter.say(f"note: {name}: classes are numbered {first} to {first + len(rows) - 1}; a pickle has no names.")
        first += len(rows)
        with whole_file(path) as temporary:
            temporary.write_bytes(pickle.dumps(classes, protocol=3).replace(_NEW_NAME, _OLD_NAME, 1))
    return paths


def _refuse_existing(paths: list[Path], force: bool) -> None:
    """Refuse to overwrite files, which may be those that the features were imported from."""
    for path in paths:
        if path.exists() and not force:
            raise FsbenchError(f"{path} exists already.", "Replace it with --force, or choose another --out.")


LAYOUTS = {"npz": export_npz, "ptmap": export_ptmap}


def export_file(
    file: FeatureFile, layout: str, out: Path | None, reporter: Reporter, *, force: bool = False
) -> list[Path]:
    """Write a feature file in another layout and return the paths that were written."""
    if layout not in LAYOUTS:
        raise unknown_name("layout", layout, LAYOUTS)
    return LAYOUTS[layout](file, out, reporter, force)
