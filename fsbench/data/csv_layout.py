"""The layout of pictures in one place and a csv per split that lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from fsbench.data.catalog import SPLIT_ALIASES, names_for_folder
from fsbench.data.csv_rows import read_picture_rows
from fsbench.data.files import index_files
from fsbench.data.folders import visible_folders
from fsbench.data.listing import FolderPictures, Listing
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from fsbench.data.catalog import DatasetInfo
    from fsbench.data.csv_rows import PictureRow

_ANONYMOUS = re.compile(r"(base|val|novel)-\d{4,}")


def find_split_files(root: Path, info: DatasetInfo | None, suffix: str) -> dict[str, Path]:
    """The files that divide a data set into splits, such as ``train.csv`` or ``splits/bertinetto/train.txt``.

    They are looked for beside the pictures, in ``split/`` or ``splits/`` and one folder below, and for a
    known data set also in ``split/<data set>/`` beside the data root.

    Args:
        root: The data set's folder.
        info: The catalog entry, None for a user's own data.
        suffix: The ending, with its dot.

    Raises:
        FsbenchError: Two files stand for the same split.
    """
    for folder in _split_places(root, info):
        found: dict[str, Path] = {}
        for split, aliases in SPLIT_ALIASES.items():
            present = [path for alias in aliases if (path := folder / (alias + suffix)).is_file()]
            if len(present) > 1:
                names = " and ".join(path.name for path in present)
                raise FsbenchError(
                    f"Expected one file for the split {split}, found {names} in {folder}.",
                    "Remove or rename one of them.",
                )
            if present:
                found[split] = present[0]
        if found:
            return found
    return {}


def list_csv(root: Path, files: Mapping[str, Path], info: DatasetInfo | None) -> Listing:
    """List the pictures that csv files name.

    Args:
        root: The data set's folder.
        files: The csv of each split.
        info: The catalog entry, None for a user's own data.

    Raises:
        FsbenchError: A csv cannot be read, leads out of the folder, or one picture has two classes or splits.
    """
    index = index_files(root)
    known = _KnownClasses.of(info)
    owners: dict[str, tuple[str, str]] = {}
    missing: list[str] = []
    rows = 0
    for split, csv_path in files.items():
        for row in read_picture_rows(csv_path):
            try:
                path = index.find(row.file, row.label)
            except FsbenchError as error:
                raise FsbenchError(f"Line {row.line} of {csv_path}: {error.message}", error.hint) from error
            if path is None:
                missing.append(row.file)
                continue
            owner = split, known.name(row, path, split, csv_path)
            if owners.setdefault(path, owner) != owner:
                raise FsbenchError(
                    f"The picture {path} is {' '.join(owners[path])}, and {' '.join(owner)} in "
                    f"line {row.line} of {csv_path}.",
                    "A picture must have one class and one split. Repair the csv files.",
                )
            rows += 1
    return _listing(root, files, owners, tuple(missing), rows - len(owners))


def _listing(
    root: Path,
    files: Mapping[str, Path],
    owners: Mapping[str, tuple[str, str]],
    missing: tuple[str, ...],
    repeated: int,
) -> Listing:
    splits: dict[str, dict[str, list[str]]] = {}
    for path, (split, label) in owners.items():
        splits.setdefault(split, {}).setdefault(label, []).append(path)
    anonymous = bool(owners) and all(_ANONYMOUS.fullmatch(label) for _, label in owners.values())
    notes = []
    if anonymous:
        notes.append("The csv files number the classes split by split, so their names (wnids) are unknown.")
    if repeated:
        notes.append(f"{repeated:,} rows of the csv files repeat a picture; it is taken once.")
    layout = "pictures listed by " + ", ".join(path.name for path in files.values())
    return Listing(root, layout, FolderPictures(root), splits, missing=missing, notes=tuple(notes), anonymous=anonymous)


@dataclass(frozen=True)
class _KnownClasses:
    """The class names of the catalog, and the ways in which a csv may point to one.

    Attributes:
        names: The class names; empty for a user's own data.
        by_letters: The class whose name, letters only, starts the file names of its pictures (CUB).
    """

    names: frozenset[str]
    by_letters: Mapping[str, str]

    @classmethod
    def of(cls, info: DatasetInfo | None) -> _KnownClasses:
        names = frozenset(info.split_of) if info else frozenset()
        letters = {_letters(name): name for name in names} if info and info.pictures == "cub" else {}
        return cls(names, letters)

    def name(self, row: PictureRow, path: str, split: str, csv_path: Path) -> str:
        """The class of a picture, by its label, its folder or its file name, in that order of trust."""
        folder = path.rpartition("/")[0].rpartition("/")[2]
        by_label = row.label if row.label in self.names else None
        by_folder = folder if folder in self.names else None
        if by_label and by_folder and by_label != by_folder:
            raise FsbenchError(
                f"Line {row.line} of {csv_path} says {by_label}, but {path} is in the folder of {by_folder}.",
                "Repair the csv file or move the picture.",
            )
        return by_label or by_folder or self._by_file_name(path) or self._unknown(row, split, csv_path)

    def _by_file_name(self, path: str) -> str | None:
        stem = PurePosixPath(path).stem
        wnid = stem[:9]
        return wnid if wnid in self.names else self.by_letters.get(_letters(stem))

    def _unknown(self, row: PictureRow, split: str, csv_path: Path) -> str:
        if not row.label:
            raise FsbenchError(
                f"The class of {row.file!r} in line {row.line} of {csv_path} is unknown.",
                "Add a second column with the class.",
            )
        # The csv files of tiered-ImageNet count classes from 0 again in every split.
        return f"{split}-{int(row.label):04d}" if self.names and row.label.isdecimal() else row.label


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def _split_places(root: Path, info: DatasetInfo | None) -> Iterator[Path]:
    """The folders in which files that define splits are looked for, the nearest first."""
    yield root
    for name in ("split", "splits"):
        if (root / name).is_dir():
            yield root / name
            yield from visible_folders(root / name)
    if info is None:
        return
    for above in (root.parent, root.parent.parent):
        for name in ("split", "splits"):
            if (above / name).is_dir():
                yield from (
                    folder for folder in visible_folders(above / name) if info.name in names_for_folder(folder.name)
                )
