"""Layouts made of class folders, with or without split folders above them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fsbench.data.catalog import SPLIT_ALIASES
from fsbench.data.dataset import FolderPictures, Listing
from fsbench.data.images import is_picture
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from fsbench.data.catalog import DatasetInfo

_LEFT_OVERS = {"__macosx", "__pycache__"}
_NOT_CLASSES = {"split", "splits", *(alias for aliases in SPLIT_ALIASES.values() for alias in aliases)}


def visible_folders(folder: Path) -> list[Path]:
    """The sub-folders that are not hidden and no left-overs of an archive, sorted by name."""
    try:
        entries = [entry for entry in folder.iterdir() if entry.is_dir()]
    except OSError as error:
        raise FsbenchError(f"Could not look into the folder {folder}: {error.strerror}.") from error
    return sorted(
        (entry for entry in entries if not entry.name.startswith(".") and entry.name.lower() not in _LEFT_OVERS),
        key=lambda entry: entry.name,
    )


def pictures_below(folder: Path, root: Path) -> list[str]:
    """The pictures in a class folder and the folders inside it, as sorted paths relative to the root.

    The class folder may be a link. Links to folders inside it are not followed: they show pictures twice.
    """
    found: list[str] = []
    _collect(folder, folder.relative_to(root).as_posix(), found)
    return sorted(found)


def list_split_folders(root: Path) -> Listing | None:
    """Class folders under split folders, such as ``train/<class>/*.jpg``; None if it is not that layout."""
    folders = find_split_folders(root)
    classes = {split: visible_folders(folder) for split, folder in folders.items()}
    splits = {split: {entry.name: pictures_below(entry, root) for entry in found} for split, found in classes.items()}
    if not any(splits.values()):
        return None
    _refuse_same_folders(entry for found in classes.values() for entry in found)
    loose = {folder.name: _count_loose(folder) for folder in folders.values()}
    notes = [
        f"{count:,} pictures directly in {name}/, outside class folders, are ignored."
        for name, count in loose.items()
        if count
    ]
    names = ", ".join(folder.name for folder in folders.values())
    return Listing(root, f"class folders under {names}", FolderPictures(root), splits, notes=tuple(notes))


def find_split_folders(root: Path) -> dict[str, Path]:
    """The folders that are named after splits.

    Raises:
        FsbenchError: Two folders stand for the same split.
    """
    found: dict[str, Path] = {}
    folders = {folder.name.lower(): folder for folder in visible_folders(root)}
    for split, aliases in SPLIT_ALIASES.items():
        present = [folders[alias] for alias in aliases if alias in folders]
        if len(present) > 1:
            raise FsbenchError(
                f"Expected one folder for the split {split}, found {present[0].name} and {present[1].name} in {root}.",
                "Remove or rename one of them.",
            )
        if present:
            found[split] = present[0]
    return found


def find_class_folders(root: Path, info: DatasetInfo | None) -> dict[str, Path]:
    """The class folders that lie under no split folder: in the root, in ``images/`` or in ``data/``.

    Args:
        root: The data set's folder.
        info: The catalog entry whose class names are looked for, None to accept any name.
    """
    for container in (root, root / "images", root / "data"):
        if not container.is_dir():
            continue
        folders = {folder.name: folder for folder in visible_folders(container)}
        if any(_is_class(folder, info) for folder in folders.values()):
            # A folder called train may be a class (CIFAR-100 has one), so names alone do not decide.
            return {
                name: folder
                for name, folder in folders.items()
                if name.lower() not in _NOT_CLASSES or _is_class(folder, info)
            }
    return {}


def list_class_folders(root: Path, folders: Mapping[str, Path], split_of: Mapping[str, str], by: str) -> Listing:
    """Class folders that a list of class names divides into splits.

    Args:
        root: The data set's folder.
        folders: The folder of each class.
        split_of: The split of each class name.
        by: Whose list it is, in words.
    """
    splits: dict[str, dict[str, list[str]]] = {}
    unassigned: dict[str, int] = {}
    _refuse_same_folders(folder for name, folder in folders.items() if name in split_of)
    for name, folder in folders.items():
        pictures = pictures_below(folder, root)
        if name in split_of:
            splits.setdefault(split_of[name], {})[name] = pictures
        elif pictures:
            unassigned[name] = len(pictures)
    return Listing(root, f"class folders, split by {by}", FolderPictures(root), splits, unassigned)


def _refuse_same_folders(folders: Iterable[Path]) -> None:
    """Refuse links by which the pictures of one class are those of another, too; links to elsewhere are welcome."""
    owners: dict[Path, Path] = {}
    for folder in folders:
        if (other := owners.setdefault(folder.resolve(), folder)) is not folder:
            raise _same_pictures(other, folder)
    for place, folder in owners.items():
        for above in place.parents:
            if above in owners:
                raise _same_pictures(owners[above], folder)


def _same_pictures(first: Path, second: Path) -> FsbenchError:
    return FsbenchError(
        f"{first} and {second} are the same folder, or one lies in the other: one of them is a link.",
        "Pictures must have one class and one split. Remove the link.",
    )


def _is_class(folder: Path, info: DatasetInfo | None) -> bool:
    return _count_loose(folder) > 0 if info is None else folder.name in info.split_of


def _count_loose(folder: Path) -> int:
    return sum(is_picture(entry.name) for entry in folder.iterdir())


def _collect(folder: Path, prefix: str, found: list[str]) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = f"{prefix}/{entry.name}"
            if is_picture(entry.name) and entry.is_file():
                found.append(path)
            elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                _collect(folder / entry.name, path, found)
