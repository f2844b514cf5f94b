"""The layouts in which image data sets circulate, in the order in which they are tried.

The raw archive `cifar-100-python`; class folders under split folders that divide the classes; images in one place and
a csv per split; class folders that the catalog's class lists divide, or nothing divides yet. If none fits and there is
a single folder inside, the data set is looked for in that.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import numpy as np

from fsbench.data.catalog import SPLIT_ALIASES, SPLIT_WORDS, DatasetInfo
from fsbench.data.dataset import CifarImages, FolderImages, Listing, first_names, is_image
from fsbench.errors import FsbenchError
from fsbench.io.pickles import read_plain_pickle

_CLASS_COLUMNS = ("label", "class", "class_name", "category", "species")
_CIFAR_PARTS = ("train", "test")
_SAME_CLASSES = "Folders such as train/ and test/ hold the same classes: they divide the images, not the classes."


def list_folder(root: Path, info: DatasetInfo | None) -> Listing:
    """List what a folder holds of a data set, or of a user's own data if there is no catalog entry."""
    if not root.is_dir():
        raise FsbenchError(f"Expected a folder, found none at {root}.", "Check the path.")
    try:
        inside = visible_folders(root)
        for folder in (root, *inside) if len(inside) == 1 else (root,):
            if (listing := _list_here(folder, info)) is not None:
                return listing
        entries = sorted(entry.name for entry in root.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise FsbenchError(f"Could not read {error.filename}: {error.strerror}.", "Check its rights.") from error
    raise FsbenchError(
        f"Expected {info.title if info else 'a data set'} in {root}, found {first_names(entries, 5) or 'nothing'}.",
        "Known layouts: class folders under train/, val/ and test/; images with train.csv, val.csv and test.csv; "
        "class folders alone; cifar-100-python. Archives must be unpacked.",
    )


def _list_here(root: Path, info: DatasetInfo | None) -> Listing | None:
    archive = all((root / part).is_file() for part in ("meta", *_CIFAR_PARTS))
    if archive and info is not None and info.images_of == "cifar100":
        return _list_cifar(root, info)
    if (listing := _list_split_folders(root, info)) is not None:
        return listing
    for folder in (root, root / "split", root / "splits"):
        if files := _by_split(sorted(folder.glob("*.csv")), folder):
            return _list_csv(root, files, info)
    return _list_class_folders(root, info)


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


def _list_split_folders(root: Path, info: DatasetInfo | None) -> Listing | None:
    """Class folders under split folders, such as `train/<class>/*.jpg`; None if it is not that layout."""
    tops = _by_split(visible_folders(root), root)
    classes = {split: visible_folders(top) for split, top in tops.items()}
    if not any(classes.values()) or _hold_same_classes(classes.values(), info):
        return None
    splits = {split: {one.name: images_below(one, root) for one in folders} for split, folders in classes.items()}
    layout = "class folders under " + ", ".join(top.name for top in tops.values())
    return Listing(root, layout, FolderImages(root), splits)


def _list_class_folders(root: Path, info: DatasetInfo | None) -> Listing | None:
    """Class folders that the catalog divides, own ones as novel classes; None if it is not that layout."""
    folders = _find_class_folders(root, info)
    if not folders:
        return None
    images = {name: [path for one in same for path in images_below(one, root)] for name, same in folders.items()}
    split_of = info.split_of if info else dict.fromkeys(images, "novel")
    splits: dict[str, dict[str, list[str]]] = {}
    for name in images.keys() & split_of.keys():
        splits.setdefault(split_of[name], {})[name] = images[name]
    unassigned = tuple(sorted(name for name in images if images[name] and name not in split_of))
    notes = (_SAME_CLASSES,) if any(len(same) > 1 for same in folders.values()) else ()
    how = f"split by {info.split_title} class list" if info else "not divided into base, val and novel"
    divided = info is not None
    return Listing(root, f"class folders, {how}", FolderImages(root), splits, unassigned, notes=notes, divided=divided)


def _find_class_folders(root: Path, info: DatasetInfo | None) -> dict[str, list[Path]]:
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
        certain = {
            folder
            for folder in folders
            if (folder.name in info.split_of if info else any(is_image(entry.name) for entry in folder.iterdir()))
        }
        if certain:
            others = {"split", "splits", *SPLIT_WORDS}
            return {one.name: [one] for one in folders if one in certain or one.name.lower() not in others}
    return {}


def _hold_same_classes(tops: Iterable[Sequence[Path]], info: DatasetInfo | None) -> bool:
    """Whether folders that look like splits divide the images and not the classes.

    Copies of benchmarks circulate whose `train` and `test` both hold all classes.
    """
    names = [{folder.name for folder in folders} for folders in tops if folders]
    largest = max(names, key=len, default=set())
    # Rare classes of own data may lack test images; in a benchmark such a folder has a class in the wrong split.
    return len(names) > 1 and all(other <= largest if info is None else other == largest for other in names)


def read_image_rows(path: Path) -> list[tuple[int, str, str]]:
    """Read the line, the file and the class of every image that a csv lists.

    Header and columns are found by content: code bases that skip the first line of every csv lose an image per split.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(cells)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FsbenchError(f"Could not read {path} as csv: {error}", "Copy the file again.") from error
    if not rows:
        raise FsbenchError(f"Expected rows, found an empty file: {path}.", "Copy the file again.")
    header = [] if any(map(_names_image, rows[0][1])) else [cell.lower() for cell in rows.pop(0)[1]]
    sample = rows[0][1] if rows else []
    file = next((column for column, cell in enumerate(sample) if _names_image(cell)), None)
    names = [*header, *(f"column {number}" for number in range(len(header) + 1, len(sample) + 1))]
    others = [column for column in range(len(sample)) if column != file and names[column]]
    if file is None or not others:
        hint = "Write rows such as `image.jpg,class`, with or without a header `filename,label`."
        raise FsbenchError(f"Expected columns with names of images and of classes in {path}.", hint)
    label, *more = [column for column in others if names[column] in _CLASS_COLUMNS] or others
    if more:
        columns = ", ".join(names[column] for column in (label, *more))
        hint = f"Write a header in which one column is named {' or '.join(_CLASS_COLUMNS)}."
        raise FsbenchError(f"{path} has several columns that may hold the class: {columns}.", hint)
    for line, cells in rows:
        if len(cells) <= max(file, label):
            message = f"Line {line} of {path} has {len(cells)} columns, too few."
            raise FsbenchError(message, "Is the file cut off? Copy it again, or repair the line.")
    return [(line, cells[file], cells[label]) for line, cells in rows]


def _names_image(cell: str) -> bool:
    return is_image(cell.replace("\\", "/").rpartition("/")[2])


def _list_csv(root: Path, files: Mapping[str, Path], info: DatasetInfo | None) -> Listing:
    """List the images that csv files, one per split, name; an image with two classes or splits is refused.

    The class is the label; if that is not one of the benchmark, it is the folder of the image.
    """
    by_name: dict[str, list[str]] = {}
    for folder in (root, *(folder for folder in visible_folders(root) if folder.is_symlink())):
        for path in images_below(folder, root):
            by_name.setdefault(path.rpartition("/")[2], []).append(path)
    owners: dict[str, tuple[str, str]] = {}
    missing: list[str] = []
    read = {split: [*read_image_rows(csv_path)] for split, csv_path in files.items()}
    labels = {label for rows in read.values() for *_, label in rows}
    for split, csv_path in files.items():
        for line, file, label in read[split]:
            where = f"line {line} of {csv_path}"
            image = _find_image(file, label, by_name, labels, where)
            if image is None:
                missing.append(file)
                continue
            folder_name = f"/{image}".split("/")[-2]
            in_folder = info is not None and label not in info.split_of and folder_name in info.split_of
            owner = split, folder_name if in_folder else label
            if owners.setdefault(image, owner) != owner:
                message = f"The image {image} is {' '.join(owners[image])}, and {' '.join(owner)} in {where}."
                raise FsbenchError(message, "An image must have one class and one split. Repair the csv files.")
    listed = ", ".join(path.name for path in files.values())
    if missing:
        message = f"{len(missing):,} images that {listed} name are not in {root}: {first_names(missing)}."
        raise FsbenchError(message, "Is the copy complete? Copy the missing files.")
    splits: dict[str, dict[str, list[str]]] = {}
    for path, (split, label) in owners.items():
        splits.setdefault(split, {}).setdefault(label, []).append(path)
    return Listing(root, f"images listed by {listed}", FolderImages(root), splits)


def _find_image(file: str, label: str, by_name: Mapping[str, Sequence[str]], known: Set[str], where: str) -> str | None:
    """The image whose path ends with a name of the csv; by a bare name, none in the folder of another class."""
    wanted = "/" + PurePosixPath(file.replace("\\", "/")).as_posix()
    fitting = [path for path in by_name.get(wanted.rpartition("/")[2], ()) if f"/{path}".endswith(wanted)]
    if wanted.count("/") == 1:
        fitting = [one for one in fitting if (folder := f"/{one}".split("/")[-2]) == label or folder not in known]
    if len(fitting) > 1:
        fitting = [path for path in fitting if f"/{path}".split("/")[-2] == label] or fitting
    if len(fitting) > 1:
        message = f"The name {file!r} in {where} fits {len(fitting)} files: {fitting[0]} and {fitting[1]}."
        raise FsbenchError(message, "Give the folder in the csv too, or remove the copy that is not meant.")
    return fitting[0] if fitting else None


def _list_cifar(root: Path, info: DatasetInfo) -> Listing:
    """List the images of the archive, train and test part merged, split by the catalog's classes."""
    try:
        class_names = [_text(name) for name in _read_dictionary(root / "meta")["fine_label_names"]]
        parts = {name: _read_dictionary(root / name) for name in _CIFAR_PARTS}
        data = np.concatenate([part["data"].reshape(-1, 3072) for part in parts.values()])  # (M, 3072)
        labels = [class_names[label] for part in parts.values() for label in part["fine_labels"]]
        files = [f"{name}/{_text(file)}" for name, part in parts.items() for file in part["filenames"]]
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
    layout = f"cifar-100-python, split by {info.split_title} class list"
    return Listing(root, layout, CifarImages(data, rows), splits)


def _read_dictionary(path: Path) -> dict[str, Any]:
    return {_text(key): value for key, value in dict(read_plain_pickle(path)).items()}  # type: ignore[call-overload]


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
