"""What a folder of images holds, before and after it is checked.

A layout reader returns a :class:`Listing`: everything found, complete or not. :func:`build_dataset` is the
gate behind it: it refuses what would give a wrong number and returns an :class:`ImageDataset`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
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


# A path relative to the data set's folder (with forward slashes), or a row of an array of images.
Source = str | int


class ImageReader(Protocol):
    """Where the images of a data set are read from."""

    def open(self, source: Source) -> Image.Image:
        """The image in RGB."""

    def name(self, source: Source) -> str:
        """The image's name relative to the data set, for records."""

    def mark(self, source: Source) -> int:
        """A number that is cheap to get and differs between most images."""

    def content(self, source: Source) -> bytes:
        """The image as it is stored."""


@dataclass(frozen=True)
class FolderImages:
    """Image files below a folder."""

    root: Path

    def open(self, source: Source) -> Image.Image:
        """The image in RGB."""
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
    """The classes and images found in a folder.

    Attributes:
        layout: How the folder is organised, in words.
        splits: Per split, per class, the sources. A class folder without an image has an empty list.
        unassigned: Classes that belong to no split, with their number of images.
        missing: Files that a csv names, or that belong to an archive, but are not there.
        notes: What whoever uses the data must know; recorded with the features.
        ignored: What was passed over or merged while listing, in sentences.
        anonymous: Whether classes are known by number only, so that they cannot be compared by name.
    """

    root: Path
    layout: str
    reader: ImageReader
    splits: Mapping[str, Mapping[str, Sequence[Source]]]
    unassigned: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    anonymous: bool = False

    def counts(self, split: str) -> dict[str, int]:
        """Images per class of a split, empty classes left out."""
        classes = self.splits.get(split, {})
        return {label: len(sources) for label, sources in sorted(classes.items()) if sources}

    def empty_classes(self) -> tuple[str, ...]:
        """Classes that have a folder but no image."""
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
    """The images of one split, sorted by class and then by file name.

    Attributes:
        name: ``base``, ``val`` or ``novel``.
        class_names: The sorted names of the K classes.
        labels: Class index of every image, (M,) int64, ascending.
        sources: Where each of the M images is.
        dataset: The name of the data set.
    """

    name: str
    class_names: tuple[str, ...]
    labels: NDArray[np.int64]
    sources: tuple[Source, ...]
    reader: ImageReader
    dataset: str = ""

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """(K + 1,) first image of every class, then M."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.labels))])

    def open(self, index: int) -> Image.Image:
        """The image of that row in RGB."""
        return self.reader.open(self.sources[index])

    def image_name(self, index: int) -> str:
        """The relative name of that row's image."""
        return self.reader.name(self.sources[index])

    def image_mark(self, index: int) -> int:
        """A number that almost always changes when that row's image is replaced by another."""
        return self.reader.mark(self.sources[index])


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """A data set that may be used: every split it has, and what is worth knowing about it.

    Attributes:
        name: The catalog's name, or the folder's for a user's own data.
        info: The catalog entry, None for a user's own data.
        splits: The splits present, in the order base, val, novel.
        notes: Remarks and departures from the catalog, to be shown to the user.
    """

    name: str
    info: DatasetInfo | None
    root: Path
    layout: str
    splits: Mapping[str, ImageSplit]
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def split_digest(self) -> str:
        """The sha256 of the class lists as found; equal to the catalog's when the data set is complete."""
        return split_digest({name: split.class_names for name, split in self.splits.items()})

    def common_size(self) -> tuple[int, int] | None:
        """Width and height if the first images of all classes agree on them, else None; broken ones are skipped.

        Copies of a data set that were shrunk on disk give other features than the original images.
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
    """Turn what was found into a data set, or refuse it; without a catalog entry it is a user's own data.

    Raises:
        FsbenchError: There is no image, a class is empty or in two splits, or files are missing.
    """
    if listing.missing:
        raise FsbenchError(
            f"{len(listing.missing):,} files that should be in {listing.root} ({listing.layout}) are missing: "
            f"{first_names(listing.missing)}.",
            "Is the copy complete, and are the images beside their csv files? Copy the missing files.",
        )
    if empty := listing.empty_classes():
        raise FsbenchError(
            f"{len(empty)} class folders in {listing.root} hold no image: {first_names(empty)}.",
            "Copy their images, or remove the folders.",
        )
    if shared := listing.shared_classes():
        found = [f"{label} ({' and '.join(splits)})" for label, splits in shared.items()]
        raise FsbenchError(
            f"{len(shared)} classes are in more than one split in {listing.root}: {first_names(found)}.",
            "Base, val and novel classes must differ, or accuracies are meaningless. Remove one of the two.",
        )
    splits = {split: _build_split(listing, split, name) for split in SPLITS if listing.counts(split)}
    if not splits:
        raise FsbenchError(
            f"Expected images of {name}, found none in {listing.root}.", "Run `fsbench doctor` to see what is there."
        )
    notes = (*listing.notes, *notes)
    return ImageDataset(name, info, listing.root, listing.layout, splits, notes, listing.ignored)


def drop_small(listing: Listing, min_images: int) -> Listing:
    """The listing without classes that have fewer images, which its notes name; classes without any always go."""
    counts = dict(listing.unassigned)
    for classes in listing.splits.values():
        counts |= {name: len(sources) for name, sources in classes.items()}
    least = max(1, min_images)
    empty = sorted(name for name, count in counts.items() if count == 0)
    small = sorted(name for name, count in counts.items() if 0 < count < least)
    notes = []
    if empty:
        many = "class folder without a readable image is", "class folders without a readable image are"
        notes.append(f"{counted(len(empty), *many)} left out: {first_names(empty)}.")
    if small:
        named = first_names(f"{name} ({counts[name]})" for name in small)
        many = f"class with fewer than {least} images is", f"classes with fewer than {least} images are"
        notes.append(f"{counted(len(small), *many)} left out: {named}.")
    return replace(
        listing,
        splits={
            split: {name: sources for name, sources in classes.items() if len(sources) >= least}
            for split, classes in listing.splits.items()
        },
        unassigned={name: count for name, count in listing.unassigned.items() if count >= least},
        notes=(*listing.notes, *notes),
    )


def first_names(names: Iterable[str], limit: int = 3) -> str:
    """The first few of many names, in words: ``a, b, c and 7 more``."""
    listed = [name.encode(errors="replace").decode() for name in names]
    rest = len(listed) - limit
    return ", ".join(listed[:limit]) + (f" and {rest:,} more" if rest > 0 else "")


def counted(number: int, one: str, many: str) -> str:
    """A number with the words for one or for many: ``1 class is``, ``2 classes are``."""
    return f"{number:,} {one if number == 1 else many}"


def _build_split(listing: Listing, split: str, dataset: str) -> ImageSplit:
    classes = listing.splits[split]
    names = tuple(sorted(classes))
    labels: list[int] = []
    sources: list[Source] = []
    for label, name in enumerate(names):
        # By file name before folder, so that all layouts of a data set list it in the same order.
        ordered = sorted(
            classes[name], key=lambda source: ((path := listing.reader.name(source)).rpartition("/")[2], path)
        )
        for text in (name, *map(listing.reader.name, ordered)):
            # File names are bytes; those that are not text can neither be stored nor printed.
            if any("\ud800" <= letter <= "\udfff" for letter in ("" if text.isascii() else text)):
                raise FsbenchError(
                    f"The name {first_names([text])} in {listing.root} is not valid UTF-8.",
                    "Rename the file or folder.",
                )
        sources.extend(ordered)
        labels.extend([label] * len(ordered))
    return ImageSplit(split, names, np.asarray(labels, dtype=np.int64), tuple(sources), listing.reader, dataset)
