"""The rows of features that exist already, by the image they belong to: what an extraction resumes from and reuses.

A row is determined by its recipe (network, transform, crops, precision) and by the content of its image. Rows lie in
the feature files of a folder, and until a file is finished in blocks, in a hidden folder beside it. A block appears
whole or not at all, with a checksum.
"""

from __future__ import annotations

import shutil
import time
import zipfile
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fsbench.data.dataset import counted, first_names
from fsbench.errors import FsbenchError
from fsbench.features.store import FeatureFile, Provenance, digest
from fsbench.io.files import whole_file

Row = NDArray[np.float32] | str
Place = tuple[str, str, str, str]

IMAGES_PER_BLOCK = 1024
PATIENCE = 60.0  # seconds in which a network file system shows what another machine has written
_DAMAGE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)


def row_key(image_hash: str, name: str, crops: int) -> str:
    """What identifies the image of a row: its content, and with random crops its name, which they are drawn by."""
    return image_hash if crops == 1 else f"{image_hash} {name}"


@dataclass(frozen=True)
class RowStore:
    """The rows of one recipe, for the feature file `out`; `library` is another folder of feature files."""

    out: Path
    recipe: str
    library: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder of the blocks."""
        return self.out.with_name(f".{self.out.name}.{self.recipe[:12]}.rows")

    def clear(self, *, own: bool) -> None:
        """Remove the blocks of other recipes for the same file, and the `own` ones too if told to."""
        for folder in self.out.parent.glob(f".{self.out.name}.*.rows"):
            if own or folder != self.folder:
                shutil.rmtree(folder, ignore_errors=True)

    def write(self, keys: list[str], features: NDArray[np.float32], reasons: list[str]) -> None:
        """Write a block; `reasons` say why an image has no features, and are empty for the others."""
        path = self.folder / f"{digest(keys)[:32]}.npz"
        with whole_file(path) as temporary, temporary.open("wb") as stream:
            np.savez(stream, keys=np.array(keys), features=features, reasons=np.array(reasons))

    def blocks(self) -> dict[str, Row]:
        """The rows of all blocks; a damaged block has none."""
        rows: dict[str, Row] = {}
        for path in sorted(self.folder.glob("*.npz")):
            try:
                with np.load(path, allow_pickle=False) as block:
                    keys, features, reasons = block["keys"].tolist(), block["features"], block["reasons"].tolist()
                rows |= {key: why or row for key, row, why in zip(keys, features, reasons, strict=True)}
            except _DAMAGE:
                continue
        return rows

    def wait_for_blocks(self, keys: Collection[str]) -> dict[str, Row]:
        """The rows of all blocks once they hold these keys."""
        deadline = time.monotonic() + PATIENCE
        while not (rows := self.blocks()).keys() >= set(keys):
            if time.monotonic() > deadline:
                raise FsbenchError(f"A block of the extraction in {self.folder} is missing.", "Run extract again.")
            time.sleep(0.5)
        return rows

    def reusable(self, keys: Collection[str]) -> dict[str, Row]:
        """The rows with these keys in the finished files beside `out`, `out` itself included, and in the library."""
        wanted, rows = set(keys), dict[str, "Row"]()
        folders = {folder.resolve() for folder in (self.out.parent, self.library) if folder}
        for path in sorted(path for folder in folders for path in folder.glob("*.h5")):
            if path.name.endswith(".scatter.h5") or len(rows) == len(wanted):
                continue
            try:
                file = FeatureFile.open(path)
                for name in file.splits if file.provenance.recipe == self.recipe else ():
                    named = zip(*file.images(name), strict=False)
                    own_keys = [row_key(value, image, file.provenance.crops) for image, value in named]
                    if not wanted.isdisjoint(own_keys):
                        features = file.read(name, with_images=False).features
                        rows |= {key: row for key, row in zip(own_keys, features, strict=True) if key in wanted}
            except FsbenchError:  # a damaged file has nothing to offer
                continue
        return rows


def differences(file: FeatureFile, wanted: Provenance, images: Iterable[Place]) -> list[str]:
    """How a finished file differs from what is asked for, in words; empty if it merely lacks images or classes."""
    there, here = ({"data set": made.dataset, **made.aspects} for made in (file.provenance, wanted))
    sentences = [
        f"{name}: {there.get(name) or 'none'} there, {here.get(name) or 'none'} asked for"
        for name in {**there, **here}
        if there.get(name) != here.get(name)
    ]
    asked = {name: (split, label, value) for split, label, name, value in images}
    moved, gone, changed = dict[str, None](), list[str](), list[str]()
    for split, summary in file.splits.items():
        labels = np.repeat(summary.class_names, np.diff(summary.offsets)).tolist()
        for name, value, label in zip(*file.images(split), labels, strict=True):
            if name not in asked:
                gone.append(name)
                continue
            other, other_label, other_value = asked[name]
            if (other, other_label) != (split, label):
                moved[f"{label} ({split} → {other if label == other_label else f'{other_label} of {other}'})"] = None
            if other_value != value:
                changed.append(name)
    for names, one, many in (
        ([*moved], "class moves", "classes move"),
        (gone, "image of the file not asked for", "images of the file not asked for"),
        (changed, "image has changed", "images have changed"),
    ):
        if names:
            sentences.append(f"{counted(len(names), one, many)}: {first_names(names)}")
    return sentences
