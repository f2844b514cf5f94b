"""Layouts made of class folders, with or without split folders above them."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING

from fsbench.data.catalog import SPLIT_ALIASES, SPLIT_WORDS
from fsbench.data.dataset import FolderImages, Listing, counted, first_names
from fsbench.data.images import is_image, looks_like_image
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from fsbench.data.catalog import DatasetInfo

_ARCHIVE_LEFTOVERS = {"__macosx", "__pycache__"}
PIXEL_FOLDER = ".pixels"  # hidden, for decoded images: see fsbench.data.pixels
_NOT_CLASSES = {"split", "splits", *SPLIT_WORDS}


class _Walk:
    """Collects the images of class folders and remembers what it left out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hidden: list[str] = []
        self.unreadable: Counter[str] = Counter()
        self.no_images: Counter[str] = Counter()
        self.nested: dict[str, int] = {}

    def images_below(self, folder: Path) -> list[str]:
        """The images in a class folder and the folders inside it, as sorted paths relative to the root.

        The class folder may be a link. Links to folders inside it are not followed: they show images twice.
        """
        images: list[str] = []
        prefix = folder.relative_to(self.root).as_posix()
        self._collect(folder, prefix, images)
        inside = {image.rpartition("/")[0] for image in images} - {prefix}
        if inside:
            self.nested[folder.name] = self.nested.get(folder.name, 0) + len(inside)
        return sorted(images)

    def look_around(self, folders: Iterable[Path]) -> None:
        """Note the hidden folders beside the class folders."""
        for folder in folders:
            prefix = "" if folder == self.root else f"{folder.relative_to(self.root).as_posix()}/"
            self.hidden += sorted(
                prefix + entry.name
                for entry in folder.iterdir()
                if _is_hidden(entry.name) and entry.name != PIXEL_FOLDER and entry.is_dir()
            )

    def notes(self) -> tuple[str, ...]:
        """Images that are left out because they cannot be read."""
        if not self.unreadable:
            return ()
        return (f"unreadable images are left out: {_by_ending(self.unreadable)}. Convert them to JPEG.",)

    def ignored(self) -> tuple[str, ...]:
        """What else was passed over, and which folders were merged."""
        sentences = []
        if self.hidden:
            sentences.append(f"hidden folders are ignored: {first_names(self.hidden)}.")
        if self.no_images:
            sentences.append(f"files that are not images are ignored: {_by_ending(self.no_images)}.")
        if self.nested:
            merged = (f"{name} ({count})" for name, count in sorted(self.nested.items()))
            sentences.append(f"folders inside class folders are merged into their class: {first_names(merged)}.")
        return tuple(sentences)

    def _collect(self, folder: Path, prefix: str, images: list[str]) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                path = f"{prefix}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if _is_hidden(entry.name):
                        self.hidden.append(path)
                    else:
                        self._collect(folder / entry.name, path, images)
                elif is_image(entry.name) and entry.is_file():
                    images.append(path)
                elif not entry.name.startswith(".") and entry.is_file():
                    ending = PurePath(entry.name).suffix.lower() or entry.name
                    (self.unreadable if looks_like_image(entry.name) else self.no_images)[ending] += 1


def visible_folders(folder: Path) -> list[Path]:
    """The sub-folders that are neither hidden nor left over from an archive, sorted by name."""
    try:
        entries = [entry for entry in folder.iterdir() if entry.is_dir() and not _is_hidden(entry.name)]
    except OSError as error:
        raise FsbenchError(f"Could not look into the folder {folder}: {error.strerror}.") from error
    return sorted(entries, key=lambda entry: entry.name)


def list_split_folders(root: Path, info: DatasetInfo | None) -> Listing | None:
    """Class folders under split folders, such as ``train/<class>/*.jpg``; None if it is not that layout."""
    folders = find_split_folders(root)
    classes = {split: visible_folders(folder) for split, folder in folders.items()}
    if not any(classes.values()) or _hold_same_classes(classes.values(), info):
        return None
    walk = _Walk(root)
    walk.look_around([root, *folders.values()])
    splits = {split: {entry.name: walk.images_below(entry) for entry in found} for split, found in classes.items()}
    _refuse_same_folders(entry for found in classes.values() for entry in found)
    layout = "class folders under " + ", ".join(folder.name for folder in folders.values())
    notes = (*_loose_images(folders.values()), *walk.notes())
    return Listing(root, layout, FolderImages(root), splits, notes=notes, ignored=walk.ignored())


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


def find_class_folders(root: Path, info: DatasetInfo | None) -> dict[str, list[Path]]:
    """The folders of each class where no split folders divide the classes.

    They are in the root, in ``images/`` or in ``data/``; or below folders such as ``train`` and ``test`` that hold
    the same classes, in which case a class has several folders. Without a catalog entry any name is accepted.
    """
    tops = [visible_folders(folder) for folder in find_split_folders(root).values()]
    if _hold_same_classes(tops, info):
        merged: dict[str, list[Path]] = {}
        for folder in (folder for folders in tops for folder in folders):
            merged.setdefault(folder.name, []).append(folder)
        return merged
    for container in (root, root / "images", root / "data"):
        if not container.is_dir():
            continue
        found = {folder.name: folder for folder in visible_folders(container)}
        if any(_is_class(folder, info) for folder in found.values()):
            # A folder called train may be a class (CIFAR-100 has one), so names alone do not decide.
            return {
                name: [folder]
                for name, folder in found.items()
                if name.lower() not in _NOT_CLASSES or _is_class(folder, info)
            }
    return {}


def count_images(root: Path, folders: Sequence[Path]) -> int:
    """The images in the folders of a class."""
    walk = _Walk(root)
    return sum(len(walk.images_below(folder)) for folder in folders)


def same_classes_note(root: Path, folders: Mapping[str, Sequence[Path]]) -> str:
    """That the class folders stand below folders that look like splits and are none; empty if they do not."""
    tops = sorted({folder.parent for found in folders.values() for folder in found})
    if not tops or tops[0] in (root, root / "images", root / "data"):
        return ""
    named = " and ".join(f"{top.name}/" for top in tops)
    same = all(len(found) == len(tops) for found in folders.values())
    classes = f"the same {len(folders)} classes" if same else f"images of the same {len(folders)} classes"
    hold = f"hold {classes}" if len(tops) > 1 else f"holds all {len(folders)} classes"
    return f"{named} {hold}: they divide the images, not the classes, and are read as one set of class folders."


def list_class_folders(
    root: Path, folders: Mapping[str, Sequence[Path]], split_of: Mapping[str, str], by: str
) -> Listing:
    """Class folders that a list of class names, described by `by`, divides into splits."""
    walk = _Walk(root)
    containers = {folder.parent for found in folders.values() for folder in found}
    walk.look_around(sorted({root, *containers}))
    _refuse_same_folders(folder for name, found in folders.items() if name in split_of for folder in found)
    splits: dict[str, dict[str, list[str]]] = {}
    unassigned: dict[str, int] = {}
    for name, found in folders.items():
        images = [image for folder in found for image in walk.images_below(folder)]
        if name in split_of:
            splits.setdefault(split_of[name], {})[name] = images
        else:
            unassigned[name] = len(images)
    merged = same_classes_note(root, folders)
    notes = (*([merged] if merged else []), *_loose_images(sorted(containers)), *walk.notes())
    layout = f"class folders, split by {by}"
    return Listing(root, layout, FolderImages(root), splits, unassigned, notes=notes, ignored=walk.ignored())


def _hold_same_classes(folders: Iterable[Sequence[Path]], info: DatasetInfo | None) -> bool:
    """Whether folders that look like splits divide the images and not the classes.

    Copies of benchmarks circulate whose ``train`` and ``test`` both hold all classes.
    """
    names = [{entry.name for entry in entries} for entries in folders if entries]
    largest = max(names, key=len, default=set())
    # Rare classes of own data may lack test images; in a benchmark such a folder has a class in the wrong split.
    if len(names) > 1 and all(other <= largest if info is None else other == largest for other in names):
        return True
    return info is not None and any(found.issuperset(info.split_of) for found in names)


def _refuse_same_folders(folders: Iterable[Path]) -> None:
    """Refuse links by which the images of one class are those of another, too; links to elsewhere are welcome."""
    owners: dict[Path, Path] = {}
    pairs = [(owners.setdefault(folder.resolve(), folder), folder) for folder in folders]
    pairs = [(first, second) for first, second in pairs if first is not second]
    pairs += [(owners[above], folder) for place, folder in owners.items() for above in place.parents if above in owners]
    if pairs:
        raise FsbenchError(
            f"{pairs[0][0]} and {pairs[0][1]} are the same folder, or one lies in the other: one of them is a link.",
            "Images must have one class and one split. Remove the link.",
        )


def _is_class(folder: Path, info: DatasetInfo | None) -> bool:
    return _count_loose(folder) > 0 if info is None else folder.name in info.split_of


def _count_loose(folder: Path) -> int:
    return sum(is_image(entry.name) for entry in folder.iterdir())


def _loose_images(folders: Iterable[Path]) -> list[str]:
    counts = {folder.name: _count_loose(folder) for folder in folders}
    return [
        f"{counted(count, 'image', 'images')} directly in {name}/, outside class folders, "
        f"{'is' if count == 1 else 'are'} ignored."
        for name, count in counts.items()
        if count
    ]


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in _ARCHIVE_LEFTOVERS


def _by_ending(endings: Counter[str]) -> str:
    return first_names((f"{count:,} {ending}" for ending, count in endings.most_common()), 5)
