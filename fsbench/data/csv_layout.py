"""Images listed by csv files: reading the rows, finding the files, never leaving the data set's folder.

A header may be there or not, and which column names the file differs. Both are decided by content, because
code bases that skip the first line of a csv without header lose an image per split.
"""

from __future__ import annotations

import csv
import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from fsbench.data.catalog import SPLIT_ALIASES, names_for_folder, plain
from fsbench.data.dataset import FolderImages, Listing
from fsbench.data.folders import visible_folders
from fsbench.data.images import is_image
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from fsbench.data.catalog import DatasetInfo

_FILE_COLUMNS = ("filename", "imagename", "file", "image", "path", "filepath", "imagepath", "imagefile", "name")
_CLASS_COLUMNS = ("label", "classname", "class", "category", "wnid", "labelname", "target")


@dataclass(frozen=True)
class ImageRow:
    """One image of a csv, file and class as written."""

    line: int  # counted from 1
    file: str
    label: str  # empty if the csv has one column only


def read_image_rows(path: Path) -> list[ImageRow]:
    """Read a csv that lists images and their classes.

    Raises:
        FsbenchError: It cannot be read, is empty, or has no column of image names.
    """
    rows = read_csv(path)
    file_column, class_column = _columns(path, rows)
    if _is_header(rows[0][1]):
        rows = rows[1:]
    needed = max(file_column, class_column or 0) + 1
    found = []
    for line, cells in rows:
        if len(cells) < needed:
            raise FsbenchError(
                f"Expected {needed} columns, found {len(cells)} in line {line} of {path}.",
                "Is the file cut off? Copy it again, or repair the line.",
            )
        label = "" if class_column is None else cells[class_column]
        found.append(ImageRow(line, cells[file_column], label))
    return found


def read_csv(path: Path) -> list[tuple[int, list[str]]]:
    """The rows of a csv that are not blank, stripped, with their line numbers.

    Raises:
        FsbenchError: It is not a readable csv, or there is no row.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(cells)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FsbenchError(f"Could not read {path} as csv: {error}", "Copy the file again.") from error
    if not rows:
        raise FsbenchError(f"Expected rows, found an empty file: {path}.", "Copy the file again.")
    return rows


def _is_header(cells: list[str]) -> bool:
    """A first row that names no image is a header."""
    return not any(_names_image(cell) for cell in cells)


def _names_image(cell: str) -> bool:
    return is_image(cell.replace("\\", "/").split("/")[-1])


def _columns(path: Path, rows: list[tuple[int, list[str]]]) -> tuple[int, int | None]:
    """The columns of the file name and of the class, None if there is a single column."""
    first = rows[0][1]
    header = [plain(cell) for cell in first] if _is_header(first) else []
    sample = rows[min(1, len(rows) - 1)][1] if header else first
    by_content = [column for column, cell in enumerate(sample) if _names_image(cell)]
    by_header = [header.index(name) for name in _FILE_COLUMNS if name in header]
    if not (by_header or by_content) or (header and len(rows) == 1):
        raise FsbenchError(
            f"Expected a column with names of images, found none in {path}; its first row is {', '.join(first)}.",
            "Write rows such as `image.jpg,class`, with or without a header `filename,label`.",
        )
    file_column = (by_header or by_content)[0]
    named = [header.index(name) for name in _CLASS_COLUMNS if name in header]
    others = [column for column in range(len(sample)) if column != file_column]
    return file_column, next(iter(named or others), None)


_PREFIXES = ("", "images/", "data/")


@dataclass(frozen=True, eq=False)
class FileIndex:
    """All images below a folder, as paths relative to it."""

    root: Path
    paths: frozenset[str]
    by_name: Mapping[str, Sequence[str]]  # the same, by their last part
    outside: frozenset[str]  # links that lead out of the folder; they are not followed

    def find(self, name: str, label: str) -> str | None:
        """The path of an image that a csv names, relative to the root.

        The name may be a path from the root, from ``images/`` or ``data/``, or the end of a path. The class
        decides between files of the same name in several folders.

        Raises:
            FsbenchError: The name leads out of the folder, or fits several files.
        """
        wanted = self._inside(name)
        for prefix in _PREFIXES:
            if prefix + wanted in self.paths:
                return prefix + wanted
        same_name = self.by_name.get(wanted.rpartition("/")[2], ())
        ending = [path for path in same_name if path.endswith("/" + wanted)]
        in_class_folder = [path for path in ending if path.endswith(f"/{label}/{path.rpartition('/')[2]}")]
        fitting = in_class_folder or ending
        if len(fitting) > 1:
            raise FsbenchError(
                f"The name {name!r} fits {len(fitting)} files in {self.root}: {fitting[0]} and {fitting[1]}.",
                "Give the folder in the csv too, or remove the copy that is not meant.",
            )
        return fitting[0] if fitting else None

    def _inside(self, name: str) -> str:
        """The normalised name, if it stays in the folder."""
        unified = name.replace("\\", "/")
        parts = [part for part in unified.split("/") if part not in {"", "."}]
        if unified.startswith("/") or ".." in parts:
            raise FsbenchError(
                f"Expected file names inside {self.root}, found {name!r}.",
                "Write names relative to the data set's folder, without '..'.",
            )
        path = "/".join(parts)
        for tried in (PurePosixPath(prefix, path) for prefix in _PREFIXES if self.outside):
            if self.outside.intersection(str(part) for part in (tried, *tried.parents)):
                raise FsbenchError(
                    f"The file {name!r} is a link, or lies behind one, that leads out of {self.root}.",
                    "Put the images there, or link the whole folder instead of a part of it.",
                )
        return path


def index_files(root: Path) -> FileIndex:
    """List all images below a folder.

    A link to a file counts as long as the file is inside the folder. Links to folders are not followed:
    inside they would show every image twice.
    """
    paths: list[str] = []
    outside: set[str] = set()
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(root / prefix) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
        for entry in visible:
            path = prefix + entry.name
            if entry.is_symlink() and not (root / path).resolve().is_relative_to(root.resolve()):
                outside.add(path)
            elif entry.is_dir(follow_symlinks=False):
                pending.append(path + "/")
            elif is_image(entry.name) and entry.is_file():
                paths.append(path)
    by_name: dict[str, list[str]] = {}
    for path in sorted(paths):
        by_name.setdefault(path.rpartition("/")[2], []).append(path)
    return FileIndex(root, frozenset(paths), by_name, frozenset(outside))


_ANONYMOUS = re.compile(r"(base|val|novel)-\d{4,}")


def find_split_files(root: Path, info: DatasetInfo | None, suffix: str) -> dict[str, Path]:
    """The files that divide a data set into splits, such as ``train.csv`` or ``splits/bertinetto/train.txt``.

    They are looked for beside the images, in ``split/`` or ``splits/`` and one folder below, and for a
    known data set also in ``split/<data set>/`` beside the data root. The suffix has its dot.

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
    """List the images that csv files, one per split, name.

    Raises:
        FsbenchError: A csv cannot be read, leads out of the folder, or one image has two classes or splits.
    """
    index = index_files(root)
    known = _KnownClasses.of(info)
    owners: dict[str, tuple[str, str]] = {}
    missing: list[str] = []
    rows = 0
    for split, csv_path in files.items():
        for row in read_image_rows(csv_path):
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
                    f"The image {path} is {' '.join(owners[path])}, and {' '.join(owner)} in "
                    f"line {row.line} of {csv_path}.",
                    "An image must have one class and one split. Repair the csv files.",
                )
            rows += 1
    return _listing(root, files, owners, missing, rows - len(owners))


def _listing(
    root: Path, files: Mapping[str, Path], owners: Mapping[str, tuple[str, str]], missing: list[str], repeated: int
) -> Listing:
    splits: dict[str, dict[str, list[str]]] = {}
    for path, (split, label) in owners.items():
        splits.setdefault(split, {}).setdefault(label, []).append(path)
    anonymous = bool(owners) and all(_ANONYMOUS.fullmatch(label) for _, label in owners.values())
    notes = []
    if anonymous:
        notes.append("The csv files number the classes split by split, so their names (wnids) are unknown.")
    if repeated:
        notes.append(f"{repeated:,} rows of the csv files repeat an image; it is taken once.")
    layout = "images listed by " + ", ".join(path.name for path in files.values())
    return Listing(
        root, layout, FolderImages(root), splits, missing=tuple(missing), notes=tuple(notes), anonymous=anonymous
    )


@dataclass(frozen=True)
class _KnownClasses:
    """The class names of the catalog, and the ways in which a csv may point to one."""

    names: frozenset[str]  # empty for a user's own data
    by_letters: Mapping[str, str]  # the class whose name, letters only, starts the file names of its images (CUB)

    @classmethod
    def of(cls, info: DatasetInfo | None) -> _KnownClasses:
        names = frozenset(info.split_of) if info else frozenset()
        letters = {_letters(name): name for name in names} if info and info.images_of == "cub" else {}
        return cls(names, letters)

    def name(self, row: ImageRow, path: str, split: str, csv_path: Path) -> str:
        """The class of an image, by its label, its folder or its file name, in that order of trust."""
        folder = path.rpartition("/")[0].rpartition("/")[2]
        by_label = row.label if row.label in self.names else None
        by_folder = folder if folder in self.names else None
        if by_label and by_folder and by_label != by_folder:
            raise FsbenchError(
                f"Line {row.line} of {csv_path} says {by_label}, but {path} is in the folder of {by_folder}.",
                "Repair the csv file or move the image.",
            )
        stem = PurePosixPath(path).stem
        wnid = stem[:9] if stem[:9] in self.names else None
        known = by_label or by_folder or wnid or self.by_letters.get(_letters(stem))
        if known:
            return known
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
    for folder in (root / "split", root / "splits"):
        if folder.is_dir():
            yield folder
            yield from visible_folders(folder)
    for folder in (above / name for above in (root.parent, root.parent.parent) for name in ("split", "splits")):
        if info is not None and folder.is_dir():
            yield from (inside for inside in visible_folders(folder) if info.name in names_for_folder(inside.name))
