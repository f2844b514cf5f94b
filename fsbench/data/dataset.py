"""What a folder of images holds: a `Listing` before it is checked, an `ImageDataset` that may be used afterwards.

Image files are read as the code bases of this field do it, with PIL's `convert("RGB")`:

* grey is repeated, CMYK is converted, a palette is looked up;
* transparency is dropped and the colour below it is kept, nothing is composited;
* the EXIF orientation is ignored (torchvision's folder loader ignores it too), so features stay comparable.

One thing departs from it, where it would give a wrong image: 16-bit grey is scaled to 8 bits (PIL clips it at 255).
Only plain image formats are decoded, because some others (EPS) would start an external program.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from fsbench.data.catalog import SPLITS, DatasetInfo, split_digest
from fsbench.errors import FsbenchError, system_trouble

_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".webp", ".tif", ".tiff")
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "WEBP", "TIFF")
_OUT_OF_REACH = {errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENODEV, errno.ENXIO}


class OutOfReachError(FsbenchError):
    """An image that is unreadable for now (disk or network); it must not be skipped as broken."""


class BrokenImageError(FsbenchError):
    """An image that cannot be decoded; `reason` says why, without its name."""

    def __init__(self, message: str, hint: str = "", reason: str = "") -> None:
        super().__init__(message, hint)
        self.reason = reason or message


def is_image(name: str) -> bool:
    """Whether a file name is that of an image and not of a desktop's or archive's left-over."""
    return not name.startswith(".") and name.lower().endswith(_SUFFIXES)


def open_image(path: Path, side: int | None = None, content: bytes | None = None) -> Image.Image:
    """An image file, or the bytes read from it, as an RGB image; what is damaged or not an image is refused by name.

    For people, as a thumbnail with sides of `side` pixels at most, it is turned upright, and a large JPEG read fast.
    """
    with _naming(path), Image.open(BytesIO(content or path.read_bytes()), formats=_FORMATS) as image:
        if side is None:
            return _to_rgb(image)
        image.draft("RGB", (side, side))
        small = ImageOps.exif_transpose(_to_rgb(image))
        small.thumbnail((side, side))
        return small


def content_hash(content: bytes) -> str:
    """What an image is known by."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn what goes wrong with an image file into an error that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise OutOfReachError(f"The image {path} is missing.", "Copy the data set again.") from error
    except Exception as error:  # PIL's decoders raise errors of many kinds on damaged bytes
        if isinstance(error, OSError) and error.errno in _OUT_OF_REACH:
            trouble = system_trouble(f"Could not read the image {path}", error)
            raise OutOfReachError(trouble.message, trouble.hint) from error
        reason = "it is not an image" if isinstance(error, UnidentifiedImageError) else str(error)
        hint = "The file is damaged or is not an image. Copy it again, or remove it."
        raise BrokenImageError(f"Could not read the image {path}: {reason}", hint, reason) from error


def _to_rgb(image: Image.Image) -> Image.Image:
    image.load()
    # Mode "I" holds 32 bits in a TIFF, but 16 in a PGM, and in a PNG read by an older PIL.
    if image.mode == "F" or (image.mode == "I" and image.format not in {"PNG", "PPM"}):
        raise ValueError(f"its pixels are 32-bit numbers (mode {image.mode}), only 8 and 16 bits are defined")
    if image.mode.startswith("I"):  # 16-bit grey: 65535 becomes 255
        image = Image.fromarray(np.round(np.asarray(image) / 257).astype(np.uint8))
    image.info.pop("transparency", None)
    return image.convert("RGB")


@dataclass(frozen=True)
class FolderImages:
    """Image files below a folder, by their paths relative to it with forward slashes."""

    root: Path

    def open(self, name: str, content: bytes | None = None) -> Image.Image:
        """The image in RGB, from its bytes if they are read already."""
        return open_image(self.root / name, content=content)

    def content(self, name: str) -> bytes:
        """The bytes of the file."""
        with _naming(self.root / name):
            return (self.root / name).read_bytes()


@dataclass(frozen=True, eq=False)
class CifarImages:
    """The images of the CIFAR-100 archive, by the part and the name of the file that was packed into it."""

    data: NDArray[np.uint8]  # rows of red, green and blue planes of 32 by 32 pixels, (M, 3072)
    rows: Mapping[str, int]

    def open(self, name: str, content: bytes | None = None) -> Image.Image:
        """The image in RGB, from memory."""
        planes = self.data[self.rows[name]].reshape(3, 32, 32)
        return Image.fromarray(np.ascontiguousarray(planes.transpose(1, 2, 0)))

    def content(self, name: str) -> bytes:
        """The pixels."""
        return bytes(self.data[self.rows[name]])


ImageReader = FolderImages | CifarImages


@dataclass(frozen=True, eq=False)
class Listing:
    """The classes and images in a folder, complete or not."""

    root: Path
    layout: str  # how the folder is organised, in words
    reader: ImageReader
    splits: Mapping[str, Mapping[str, Sequence[str]]]  # per split, per class, the names of the images; may be empty
    unassigned: tuple[str, ...] = ()  # class folders that are of no split
    notes: tuple[str, ...] = ()  # what whoever uses the data must know; recorded with the features
    divided: bool = True  # else all classes stand under novel until they are divided

    def counts(self, split: str) -> dict[str, int]:
        """Images per class of a split, empty classes left out."""
        classes = self.splits.get(split, {})
        return {label: len(images) for label, images in sorted(classes.items()) if images}


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """The images of one split, sorted by class and then by file name."""

    name: str  # base, val or novel
    class_names: tuple[str, ...]  # of the K classes, sorted
    labels: NDArray[np.int64]  # class index of every image, (M,), ascending
    images: tuple[str, ...]  # names of the M images, relative to the data set
    reader: ImageReader
    dataset: str = ""  # its name
    hashes: tuple[str, ...] = ()  # of the contents of the images, where they were read: see fsbench.features

    def __len__(self) -> int:
        return len(self.images)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """(K + 1,) first image of every class, then M."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.labels))])

    def open(self, index: int) -> Image.Image:
        """The image of that row in RGB, from the very bytes that have its hash, where that is known."""
        name = self.images[index]
        content = self.reader.content(name)
        if self.hashes and content_hash(content) != self.hashes[index]:
            message = f"The image {name} of {self.dataset} has changed since it was listed."
            raise OutOfReachError(message, "Run the command again when no other program changes the images.")
        return self.reader.open(name, content)


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """A data set that may be used."""

    name: str  # the catalog's, or the folder's for a user's own data
    info: DatasetInfo | None  # the catalog entry, None for a user's own data
    root: Path
    layout: str
    splits: Mapping[str, ImageSplit]  # those present, in the order base, val, novel
    notes: tuple[str, ...] = ()  # remarks and departures from the catalog, to be shown to the user

    @property
    def split_digest(self) -> str:
        """The sha256 of the class lists as they are; equal to the catalog's when the data set is complete."""
        return split_digest({name: split.class_names for name, split in self.splits.items()})

    def common_side(self) -> int | None:
        """The shorter side if images are equally large, else None: the first of every class, and 50 of each split.

        Copies of a data set that were shrunk on disk give other features than the original images.
        """
        sizes = set()
        for split in self.splits.values():
            for row in np.unique([*split.offsets[:-1], *np.linspace(0, len(split) - 1, 50).round()]):
                with contextlib.suppress(BrokenImageError):
                    sizes.add(split.open(int(row)).size)
                if len(sizes) > 1:
                    return None
        return min(sizes.pop()) if sizes else None


def build_dataset(
    listing: Listing, name: str, info: DatasetInfo | None = None, notes: Iterable[str] = ()
) -> ImageDataset:
    """Turn a listing into a data set; without a catalog entry it is a user's own data.

    It is refused if there is no image, or a class is in two splits. Classes without images are left out.
    """
    splits_of: dict[str, list[str]] = {}
    for split in SPLITS:
        for label in listing.counts(split):
            splits_of.setdefault(label, []).append(split)
    shared = [f"{label} ({' and '.join(splits)})" for label, splits in sorted(splits_of.items()) if len(splits) > 1]
    if shared:
        message = f"{listing.root} ({listing.layout}): {len(shared):,} classes are in more than one split"
        hint = "Base, val and novel classes must differ, or accuracies are meaningless. Remove one of the two."
        raise FsbenchError(f"{message}: {first_names(shared)}.", hint)
    present = {split: _build_split(listing, split, name) for split in SPLITS if listing.counts(split)}
    if not present:
        message = f"Expected images of {name}, found none in {listing.root}."
        raise FsbenchError(message, "Run `fsbench doctor` to see what is there.")
    return ImageDataset(name, info, listing.root, listing.layout, present, (*listing.notes, *notes))


def _build_split(listing: Listing, split: str, dataset: str) -> ImageSplit:
    classes = listing.splits[split]
    # By file name before folder, so that all layouts of a data set list it in the same order.
    names = listing.counts(split)
    images = {name: sorted(classes[name], key=lambda path: (path.rpartition("/")[2], path)) for name in names}
    labels = np.repeat(np.arange(len(images), dtype=np.int64), [len(paths) for paths in images.values()])
    rows = tuple(path for paths in images.values() for path in paths)
    for text in (*images, *rows):
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            message = f"The name {first_names([text])} in {listing.root} is not valid UTF-8."
            raise FsbenchError(message, "Rename the file or folder.")
    return ImageSplit(split, tuple(images), labels, rows, listing.reader, dataset)


def drop_small(listing: Listing, min_images: int) -> Listing:
    """The listing without classes that have fewer images, which its notes name; classes without any always go."""
    least = max(1, min_images)
    classes = [(name, images) for group in listing.splits.values() for name, images in group.items()]
    small = sorted(f"{name} ({len(images)})" for name, images in classes if len(images) < least)
    if not small:
        return listing
    words = "without a readable image" if least == 1 else f"with fewer than {least} readable images"
    note = f"{counted(len(small), f'class {words} is', f'classes {words} are')} left out: {first_names(small)}."
    splits = {
        split: {name: images for name, images in group.items() if len(images) >= least}
        for split, group in listing.splits.items()
    }
    return replace(listing, splits=splits, notes=(*listing.notes, note))


def first_names(names: Iterable[str], limit: int = 3) -> str:
    """The first few of many names, in words: `a, b, c and 7 more`."""
    listed = [name.encode(errors="replace").decode() for name in names]
    rest = len(listed) - limit
    return ", ".join(listed[:limit]) + (f" and {rest:,} more" if rest > 0 else "")


def counted(number: int, one: str, many: str) -> str:
    """A number with the words for one or for many: `1 class is`, `2 classes are`."""
    return f"{number:,} {one if number == 1 else many}"
