"""What a folder of pictures holds, before and after it is judged.

A layout reader returns a :class:`Listing`: everything found, complete or not. :func:`build_dataset` is the
gate behind it: it refuses what would give a wrong number and returns an :class:`ImageDataset`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fsbench.data.catalog import SPLITS, split_digest
from fsbench.data.images import open_image
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from PIL import Image

    from fsbench.data.catalog import DatasetInfo


# A path relative to the data set's folder (with forward slashes), or a row of an array of pictures.
Source = str | int


class Pictures(Protocol):
    """Where the pictures of a data set are read from."""

    def open(self, source: Source) -> Image.Image:
        """The picture in RGB."""

    def name(self, source: Source) -> str:
        """The picture's name relative to the data set, for records."""

    def mark(self, source: Source) -> int:
        """A number that is cheap to get and tells most pictures apart."""

    def content(self, source: Source) -> bytes:
        """The picture as it is stored."""


@dataclass(frozen=True)
class FolderPictures:
    """Picture files below a folder."""

    root: Path

    def open(self, source: Source) -> Image.Image:
        """The picture in RGB."""
        return open_image(self.root / str(source))

    def name(self, source: Source) -> str:
        """The relative path itself."""
        return str(source)

    def mark(self, source: Source) -> int:
        """The size of the file; -1 if it is not there."""
        try:
            return (self.root / str(source)).stat().st_size
        except OSError:
            return -1

    def content(self, source: Source) -> bytes:
        """The bytes of the file."""
        return (self.root / str(source)).read_bytes()


@dataclass(frozen=True, eq=False)
class Listing:
    """The classes and pictures found in a folder.

    Attributes:
        root: The folder.
        layout: How the folder is organised, in words.
        pictures: The reader of the sources.
        splits: Per split, per class, the sources. A class folder without a picture has an empty list.
        unassigned: Classes that belong to no split, with their number of pictures.
        missing: Files that a csv names, or that belong to an archive, but are not there.
        notes: Remarks for whoever uses the data.
        anonymous: Whether classes are known by number only, so that they cannot be compared by name.
    """

    root: Path
    layout: str
    pictures: Pictures
    splits: Mapping[str, Mapping[str, Sequence[Source]]]
    unassigned: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    anonymous: bool = False

    def counts(self, split: str) -> dict[str, int]:
        """Pictures per class of a split, empty classes left out."""
        classes = self.splits.get(split, {})
        return {label: len(sources) for label, sources in sorted(classes.items()) if sources}

    def empty_classes(self) -> tuple[str, ...]:
        """Classes that have a folder but no picture."""
        return tuple(
            f"{split}: {label}"
            for split, classes in self.splits.items()
            for label, sources in sorted(classes.items())
            if not sources
        )

    def shared_classes(self) -> dict[str, tuple[str, ...]]:
        """Classes that occur in more than one split, with those splits."""
        places: dict[str, list[str]] = {}
        for split in SPLITS:
            for label in self.splits.get(split, {}):
                places.setdefault(label, []).append(split)
        return {label: tuple(found) for label, found in sorted(places.items()) if len(found) > 1}


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """The pictures of one split, sorted by class and then by file name.

    Attributes:
        name: ``base``, ``val`` or ``novel``.
        class_names: The sorted names of the K classes.
        labels: Class index of every picture, (M,) int64, ascending.
        sources: Where each of the M pictures is.
        pictures: The reader of the sources.
    """

    name: str
    class_names: tuple[str, ...]
    labels: NDArray[np.int64]
    sources: tuple[Source, ...]
    pictures: Pictures

    def __len__(self) -> int:
        return len(self.sources)

    def open(self, index: int) -> Image.Image:
        """The picture of that row in RGB."""
        return self.pictures.open(self.sources[index])

    def image_name(self, index: int) -> str:
        """The relative name of that row's picture."""
        return self.pictures.name(self.sources[index])

    def image_mark(self, index: int) -> int:
        """A number that changes when that row's picture is replaced by another, as good as always."""
        return self.pictures.mark(self.sources[index])


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """A data set that may be used: every split it has, and what is worth knowing about it.

    Attributes:
        name: The catalog's name, or the folder's for a user's own data.
        info: The catalog entry, None for a user's own data.
        root: The folder it was read from.
        layout: How the folder is organised, in words.
        splits: The splits present, in the order base, val, novel.
        notes: Remarks and departures from the catalog, to be shown to the user.
    """

    name: str
    info: DatasetInfo | None
    root: Path
    layout: str
    splits: Mapping[str, ImageSplit]
    notes: tuple[str, ...] = ()

    @property
    def split_digest(self) -> str:
        """The sha256 of the class lists as found; equal to the catalog's when the data set is whole."""
        return split_digest({name: split.class_names for name, split in self.splits.items()})

    def common_size(self) -> tuple[int, int] | None:
        """Width and height if the first pictures of all classes agree on them, else None; broken ones have no say.

        Copies of a data set that were shrunk on disk give other features than the original pictures.
        """
        sizes = set()
        for split in self.splits.values():
            for row in np.unique(split.labels, return_index=True)[1]:
                with contextlib.suppress(FsbenchError):
                    sizes.add(split.open(int(row)).size)
                if len(sizes) > 1:
                    return None
        return sizes.pop() if sizes else None


def build_dataset(
    listing: Listing, name: str, info: DatasetInfo | None = None, notes: Iterable[str] = ()
) -> ImageDataset:
    """Turn what was found into a data set, or refuse it.

    Args:
        listing: The content of the folder.
        name: The data set's name.
        info: The catalog entry, None for a user's own data.
        notes: Further remarks to carry along.

    Raises:
        FsbenchError: There is no picture, a class is empty or in two splits, or files are missing.
    """
    _refuse_missing_files(listing)
    _refuse_empty_classes(listing)
    _refuse_shared_classes(listing)
    splits = {split: _build_split(listing, split) for split in SPLITS if listing.counts(split)}
    if not splits:
        raise FsbenchError(
            f"Expected pictures of {name}, found none in {listing.root}.",
            "Run `fsbench doctor` to see what is there.",
        )
    return ImageDataset(name, info, listing.root, listing.layout, splits, (*listing.notes, *notes))


def first_names(names: Iterable[str], limit: int = 3) -> str:
    """The first few of many names, in words: ``a, b, c and 7 more``."""
    listed = [name.encode(errors="replace").decode() for name in names]
    rest = len(listed) - limit
    return ", ".join(listed[:limit]) + (f" and {rest:,} more" if rest > 0 else "")


def _build_split(listing: Listing, split: str) -> ImageSplit:
    classes = listing.splits[split]
    names = tuple(sorted(classes))
    labels: list[int] = []
    sources: list[Source] = []
    for label, name in enumerate(names):
        ordered = sorted(classes[name], key=lambda source: _order(listing.pictures.name(source)))
        _refuse_undecodable([name, *map(listing.pictures.name, ordered)], listing.root)
        sources.extend(ordered)
        labels.extend([label] * len(ordered))
    return ImageSplit(split, names, np.asarray(labels, dtype=np.int64), tuple(sources), listing.pictures)


def _order(name: str) -> tuple[str, str]:
    """Sort by file name before folder, so that all layouts of a data set list it in the same order."""
    return name.rpartition("/")[2], name


def _refuse_undecodable(names: Iterable[str], root: Path) -> None:
    """File names are bytes; those that are no text can neither be stored nor printed."""
    for name in names:
        if any("\ud800" <= letter <= "\udfff" for letter in ("" if name.isascii() else name)):
            raise FsbenchError(
                f"The name {first_names([name])} in {root} is not valid UTF-8.", "Rename the file or folder."
            )


def _refuse_missing_files(listing: Listing) -> None:
    if listing.missing:
        raise FsbenchError(
            f"{len(listing.missing):,} files that should be in {listing.root} ({listing.layout}) are missing: "
            f"{first_names(listing.missing)}.",
            "Is the copy complete, and are the pictures beside their csv files? Copy the missing files.",
        )


def _refuse_empty_classes(listing: Listing) -> None:
    empty = listing.empty_classes()
    if empty:
        raise FsbenchError(
            f"{len(empty)} class folders in {listing.root} hold no picture: {first_names(empty)}.",
            "Copy their pictures, or remove the folders.",
        )


def _refuse_shared_classes(listing: Listing) -> None:
    shared = listing.shared_classes()
    if shared:
        found = [f"{label} ({' and '.join(splits)})" for label, splits in shared.items()]
        raise FsbenchError(
            f"{len(shared)} classes are in more than one split in {listing.root}: {first_names(found)}.",
            "Base, val and novel classes must differ, or accuracies mean nothing. Remove one of the two.",
        )
