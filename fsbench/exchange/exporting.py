"""`fsbench export`: a feature file as an npz archive, which other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fsbench.errors import FsbenchError
from fsbench.features.store import FeatureFile
from fsbench.io.files import whole_file


def export_npz(file: FeatureFile, out: Path | None = None, *, force: bool = False) -> Path:
    """Write one archive with `{base,val,novel}_{features,labels,class_names,images,text}` and return its path."""
    path = out or file.path.with_suffix(".npz")
    if path.exists() and not force:  # it may be the one that the features were imported from
        raise FsbenchError(f"{path} exists already.", "Replace it with --force, or choose another --out.")
    arrays: dict[str, Any] = {}
    for name in file.splits:
        split = file.read(name)
        arrays[f"{name}_features"], arrays[f"{name}_labels"] = split.features, split.labels
        arrays[f"{name}_class_names"] = np.array(split.class_names)
        if split.text is not None:
            arrays[f"{name}_text"] = split.text
        if split.images:
            arrays[f"{name}_images"] = np.array(split.images)
    with whole_file(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)
    return path
