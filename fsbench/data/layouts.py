"""The layouts in which image data sets circulate: class folders, csv files, and the raw CIFAR-100 archive."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from fsbench.data.catalog import SPLIT_ALIASES, SPLIT_WORDS, names_for_folder
from fsbench.data.dataset import CifarImages, FolderImages, Listing, is_image
from fsbench.errors import FsbenchError
from fsbench.io.pickles import read_plain_pickle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from fsbench.data.catalog import DatasetInfo


def visible_folders(folder: Path) -> list[Path]:
    """The sub-folders that are neither hidden nor left over from an archive, sorted by name."""
    return sorted(entry for entry in folder.iterdir() if not _is_hidden(entry.name) and entry.is_dir())


def images_below(folder: Path, root: Path) -> list[str]:
    """The images in a folder and the folders inside it, as sorted paths relative to the root.

    The folder may be a link. Links to folders inside it are not followed: they may lead back.
    """

    def fail(error: OSError) -> NoReturn:
        raise error

    images: list[str] = []
    for place, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        prefix = "" if place == str(root) else os.path.relpath(place, root).replace(os.sep, "/") + "/"
        images += [prefix + name for name in files if is_image(name)]
    return sorted(images)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() == "__macosx"


def _by_split(paths: Iterable[Path], folder: Path) -> dict[str, Path]:
    """The files or folders that are named after splits, such as `train` or `test.csv`; two of a split are refused."""
    by_name = {path.name.removesuffix(".csv").lower(): path for path in paths}
    by_split: dict[str, Path] = {}
    for split, aliases in SPLIT_ALIASES.items():
        present = [by_name[alias] for alias in aliases if alias in by_name]
        if len(present) > 1:
            message = f"The split {split} is there twice in {folder}: {present[0].name} and {present[1].name}."
            raise FsbenchError(message, "Remove or rename one of them.")
        if present:
            by_split[split] = present[0]
    return by_split


def list_split_folders(root: Path, info: DatasetInfo | None) -> Listing | None:
    """Class folders under split folders, such as `train/<class>/*.jpg`; None if it is not that layout."""
    tops = _by_split(visible_folders(root), root)
    classes = {split: visible_folders(top) for split, top in tops.items()}
    if not any(classes.values()) or _hold_same_classes(classes.values(), info):
        return None
    splits = {split: {one.name: images_below(one, root) for one in folders} for split, folders in classes.items()}
    layout = "class folders under " + ", ".join(top.name for top in tops.values())
    return Listing(root, layout, FolderImages(root), splits)


def find_class_folders(root: Path, info: DatasetInfo | None) -> dict[str, list[Path]]:
    """The folders of each class where no split folders divide the classes.

    They are in the root, in `images/` or in `data/`; or below folders such as `train` and `test` that hold the same
    classes, in which case a class has several folders. Without a catalog entry any name is accepted.
    """
    tops = [visible_folders(top) for top in _by_split(visible_folders(root), root).values()]
    if _hold_same_classes(tops, info):
        names = {folder.name for folders in tops for folder in folders}
        return {name: [folder for folders in tops for folder in folders if folder.name == name] for name in names}
    for container in (root, root / "images", root / "data"):
        folders = visible_folders(container) if container.is_dir() else []
        # A folder called train may be a class (CIFAR-100 has one), so names alone do not decide.
        certain = {folder for folder in folders if _is_class(folder, info)}
        if certain:
            others = {"split", "splits", *SPLIT_WORDS}
            return {one.name: [one] for one in folders if one in certain or one.name.lower() not in others}
    return {}


def _is_class(folder: Path, info: DatasetInfo | None) -> bool:
    if info is not None:
        return folder.name in info.split_of
    return any(is_image(entry.name) for entry in folder.iterdir())


def _hold_same_classes(tops: Iterable[Sequence[Path]], info: DatasetInfo | None) -> bool:
    """Whether folders that look like splits divide the images and not the classes.

    Copies of benchmarks circulate whose `train` and `test` both hold all classes.
    """
    names = [{folder.name for folder in folders} for folders in tops if folders]
    largest = max(names, key=len, default=set())
    # Rare classes of own data may lack test images; in a benchmark such a folder has a class in the wrong split.
    if len(names) > 1 and all(other <= largest if info is None else other == largest for other in names):
        return True
    return info is not None and largest.issuperset(info.split_of)


def same_classes_note(folders: Mapping[str, Sequence[Path]]) -> str:
    """That the class folders stand below folders that look like splits and are none; empty if they do not."""
    tops = sorted({folder.parent.name for same in folders.values() for folder in same})
    if not SPLIT_WORDS.issuperset(top.lower() for top in tops):
        return ""
    named = " and ".join(f"{top}/" for top in tops)
    return f"{named} hold the same classes: they divide the images, not the classes, and are read as one set."


def list_class_folders(
    root: Path, folders: Mapping[str, Sequence[Path]], split_of: Mapping[str, str], layout: str
) -> Listing:
    """Class folders that a list of class names divides into splits."""
    images = {name: [path for one in same for path in images_below(one, root)] for name, same in folders.items()}
    splits: dict[str, dict[str, list[str]]] = {}
    for name in images.keys() & split_of.keys():
        splits.setdefault(split_of[name], {})[name] = images[name]
    unassigned = {name: len(images[name]) for name in sorted(images.keys() - split_of.keys())}
    notes = tuple(filter(None, [same_classes_note(folders)]))
    return Listing(root, layout, FolderImages(root), splits, unassigned, notes=notes)


class ImageRow(NamedTuple):
    """One image of a csv, file and class as written."""

    line: int  # counted from 1
    file: str
    label: str  # empty if the csv has one column only


def read_image_rows(path: Path) -> list[ImageRow]:
    """Read a csv that lists images and their classes.

    Header and columns are found by content: code bases that skip the first line of every csv lose an image per split.
    """
    rows = read_csv(path)
    header = [] if any(map(_names_image, rows[0][1])) else [cell.lower() for cell in rows.pop(0)[1]]
    sample = rows[0][1] if rows else []
    file = next((column for column, cell in enumerate(sample) if _names_image(cell)), None)
    if file is None:
        hint = "Write rows such as `image.jpg,class`, with or without a header `filename,label`."
        raise FsbenchError(f"Expected a column with names of images in {path}.", hint)
    others = [column for column in range(len(sample)) if column != file]
    named = [column for column in others if re.search("label|class", "".join(header[column : column + 1]))]
    label = next(iter(named or others), None)
    for line, cells in rows:
        if len(cells) <= max(file, label or 0):
            message = f"Line {line} of {path} has {len(cells)} columns, too few."
            raise FsbenchError(message, "Is the file cut off? Copy it again, or repair the line.")
    return [ImageRow(line, cells[file], "" if label is None else cells[label]) for line, cells in rows]


def _names_image(cell: str) -> bool:
    return is_image(cell.replace("\\", "/").rpartition("/")[2])


def read_csv(path: Path) -> list[tuple[int, list[str]]]:
    """The rows of a csv that are not blank, stripped, with their line numbers; at least one."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(cells)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FsbenchError(f"Could not read {path} as csv: {error}", "Copy the file again.") from error
    if not rows:
        raise FsbenchError(f"Expected rows, found an empty file: {path}.", "Copy the file again.")
    return rows


def find_split_files(root: Path, info: DatasetInfo | None) -> dict[str, Path]:
    """The csv files that list the images of each split; none if it is not that layout.

    They are beside the images, in `split/` or `splits/` or one folder below; for a benchmark also in
    `split/<data set>/` beside the data root.
    """
    for folder in _split_places(root, info):
        if files := _by_split(sorted(folder.glob("*.csv")), folder):
            return files
    return {}


def _split_places(root: Path, info: DatasetInfo | None) -> Iterator[Path]:
    yield root
    for folder in (root / "split", root / "splits"):
        if folder.is_dir():
            yield folder
            yield from visible_folders(folder)
    for folder in (above / name for above in (root.parent, root.parent.parent) for name in ("split", "splits")):
        if info is not None and folder.is_dir():
            yield from (inside for inside in visible_folders(folder) if info.name in names_for_folder(inside.name))


def list_csv(root: Path, files: Mapping[str, Path], info: DatasetInfo | None) -> Listing:
    """List the images that csv files, one per split, name; an image with two classes or splits is refused."""
    by_name: dict[str, list[str]] = {}
    for folder in (root, *(folder for folder in visible_folders(root) if folder.is_symlink())):
        for path in images_below(folder, root):
            by_name.setdefault(path.rpartition("/")[2], []).append(path)
    classes = {name: name for name in info.split_of} if info else {}
    if info and info.images_of == "cub":  # FEAT's csv files and images name the bird in the file name alone
        classes |= {_letters(name): name for name in info.split_of}
    owners: dict[str, tuple[str, str]] = {}
    missing: list[str] = []
    for split, csv_path in files.items():
        for row in read_image_rows(csv_path):
            where = f"line {row.line} of {csv_path}"
            image = _find(row, by_name, where)
            if image is None:
                missing.append(row.file)
                continue
            owner = split, _class_of(row, image, split, classes, where)
            if owners.setdefault(image, owner) != owner:
                message = f"The image {image} is {' '.join(owners[image])}, and {' '.join(owner)} in {where}."
                raise FsbenchError(message, "An image must have one class and one split. Repair the csv files.")
    splits: dict[str, dict[str, list[str]]] = {}
    for path, (split, label) in owners.items():
        splits.setdefault(split, {}).setdefault(label, []).append(path)
    labels = {label for names in splits.values() for label in names}
    anonymous = bool(info and labels) and all(re.fullmatch(r"(base|val|novel)-\d{4,}", label) for label in labels)
    note = "The csv files number the classes split by split, so their names (wnids) are unknown."
    layout = "images listed by " + ", ".join(path.name for path in files.values())
    return Listing(
        root, layout, FolderImages(root), splits, {}, tuple(missing), (note,) if anonymous else (), anonymous
    )


def _find(row: ImageRow, by_name: Mapping[str, Sequence[str]], where: str) -> str | None:
    """The image whose path ends with a name of the csv; of several, the one in the folder of its class."""
    wanted = "/" + PurePosixPath(row.file.replace("\\", "/")).as_posix()
    fitting = [path for path in by_name.get(wanted.rpartition("/")[2], ()) if f"/{path}".endswith(wanted)]
    if len(fitting) > 1:
        fitting = [path for path in fitting if f"/{path}".split("/")[-2] == row.label] or fitting
    if len(fitting) > 1:
        message = f"The name {row.file!r} in {where} fits {len(fitting)} files: {fitting[0]} and {fitting[1]}."
        raise FsbenchError(message, "Give the folder in the csv too, or remove the copy that is not meant.")
    return fitting[0] if fitting else None


def _class_of(row: ImageRow, path: str, split: str, classes: Mapping[str, str], where: str) -> str:
    """The class of an image: its label, or for a benchmark the class that its folder or file is named after."""
    *_, folder, file = f"/{path}".split("/")
    for name in (row.label, folder, _letters(PurePosixPath(file).stem)):
        if name in classes:
            return classes[name]
    if not row.label:
        raise FsbenchError(f"The class of {row.file!r} in {where} is unknown.", "Add a second column with the class.")
    # The csv files of tiered-ImageNet count classes from 0 again in every split.
    return f"{split}-{int(row.label):04d}" if classes and row.label.isdecimal() else row.label


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def is_cifar(root: Path) -> bool:
    """Whether a folder is the unpacked archive `cifar-100-python`, complete or not."""
    return (root / "meta").is_file() and any((root / part).is_file() for part in ("train", "test"))


def list_cifar(root: Path, info: DatasetInfo) -> Listing:
    """List the images of the archive, train and test part merged, split by the catalog's classes."""
    missing = tuple(part for part in ("train", "test") if not (root / part).is_file())
    present = [part for part in ("train", "test") if part not in missing]
    try:
        class_names = [_text(name) for name in _read_dictionary(root / "meta")["fine_label_names"]]
        parts = [_read_dictionary(root / part) for part in present]
        data = np.concatenate([part["data"].reshape(-1, 3072) for part in parts])  # (M, 3072)
        labels = [class_names[label] for part in parts for label in part["fine_labels"]]
        files = [f"{name}/{_text(f)}" for name, part in zip(present, parts, strict=True) for f in part["filenames"]]
        if data.dtype != np.uint8 or not len(data) == len(labels) == len(files):
            raise ValueError("parts of different lengths, or no bytes")
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        message = f"{root} is not the archive of CIFAR-100, or damaged: {error}."
        hint = "Unpack cifar-100-python.tar.gz again (its md5 is eb9058c3a382ffc7106e4002c42a8d85)."
        raise FsbenchError(message, hint) from error
    rows: dict[str, int] = {}
    splits: dict[str, dict[str, list[str]]] = {}
    for row, (file, label) in enumerate(zip(files, labels, strict=True)):
        name = f"{file}~{row}" if file in rows else file
        rows[name] = row
        if label in info.split_of:
            splits.setdefault(info.split_of[label], {}).setdefault(label, []).append(name)
    unassigned = Counter(label for label in labels if label not in info.split_of)
    layout = f"cifar-100-python, split by {info.split_title} class list"
    return Listing(root, layout, CifarImages(data, rows), splits, unassigned, missing)


def _read_dictionary(path: Path) -> dict[str, Any]:
    return {_text(key): value for key, value in dict(read_plain_pickle(path)).items()}  # type: ignore[call-overload]


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
