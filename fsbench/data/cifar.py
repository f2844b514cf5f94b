"""The raw CIFAR-100 archive, ``cifar-100-python/{train,test,meta}``, read without trusting its pickles."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from fsbench.data.dataset import Listing
from fsbench.errors import FsbenchError
from fsbench.io.pickles import read_plain_pickle

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fsbench.data.catalog import DatasetInfo
    from fsbench.data.dataset import Source

_PARTS = ("train", "test")
_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE


@dataclass(frozen=True, eq=False)
class CifarImages:
    """The images of both parts of the archive, as one array."""

    data: NDArray[np.uint8]  # rows of red, green and blue planes, (M, 3072)
    names: tuple[str, ...]  # the file name each image had before it was packed

    def open(self, source: Source) -> Image.Image:
        """The image of that row in RGB."""
        planes = self.data[int(source)].reshape(3, _SIDE, _SIDE)
        return Image.fromarray(np.ascontiguousarray(planes.transpose(1, 2, 0)))

    def name(self, source: Source) -> str:
        """The name of that row's image."""
        return self.names[int(source)]

    def mark(self, source: Source) -> int:
        """A checksum of the pixels: all images have the same size."""
        return zlib.crc32(self.content(source))

    def content(self, source: Source) -> bytes:
        """The pixels."""
        return bytes(self.data[int(source)])


def is_cifar(root: Path) -> bool:
    """Whether a folder is the unpacked archive, complete or not."""
    return (root / "meta").is_file() and any((root / part).is_file() for part in _PARTS)


def list_cifar(root: Path, info: DatasetInfo) -> Listing:
    """List the images of the archive, train and test part merged, split by the catalog's classes.

    Raises:
        FsbenchError: A file is damaged or is not of this archive.
    """
    class_names = _names(read_plain_pickle(root / "meta"), "fine_label_names", root / "meta", "class names")
    present = [part for part in _PARTS if (root / part).is_file()]
    parts = [_read_part(root / part, len(class_names)) for part in present]
    names = tuple(f"{part}/{name}" for part, (_, _, files) in zip(present, parts, strict=True) for name in files)
    data = np.concatenate([rows for rows, _, _ in parts])  # (M, 3072)
    split_of = info.split_of
    splits: dict[str, dict[str, list[int]]] = {}
    unassigned: dict[str, int] = {}
    for row, label in enumerate(label for _, labels, _ in parts for label in labels):
        name = class_names[label]
        if name in split_of:
            splits.setdefault(split_of[name], {}).setdefault(name, []).append(row)
        else:
            unassigned[name] = unassigned.get(name, 0) + 1
    missing = tuple(part for part in _PARTS if part not in present)
    layout = f"cifar-100-python, split by {info.split_title} class list"
    return Listing(root, layout, CifarImages(data, names), splits, unassigned, missing)


def _read_part(path: Path, classes: int) -> tuple[NDArray[np.uint8], list[int], list[str]]:
    content = read_plain_pickle(path)
    data, labels = _field(content, "data", path), _field(content, "fine_labels", path)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (_PIXELS,):
        raise _damaged(path, f"data of shape (images, {_PIXELS}) in uint8")
    if not isinstance(labels, list) or not all(type(x) is int and 0 <= x < classes for x in labels):
        raise _damaged(path, f"fine_labels from 0 to {classes - 1}")
    files = _names(content, "filenames", path, "names")
    if not len(data) == len(labels) == len(files):
        raise _damaged(path, f"as many labels ({len(labels)}) and names ({len(files)}) as images ({len(data)})")
    return data, labels, files


def _names(content: object, key: str, path: Path, what: str) -> list[str]:
    names = _field(content, key, path)
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise _damaged(path, f"a list of {what} under {key}")
    return [name if isinstance(name, str) else name.decode("utf-8", "replace") for name in names]


def _field(content: object, key: str, path: Path) -> object:
    if isinstance(content, dict):
        for spelling in (key, key.encode()):
            if spelling in content:
                return content[spelling]
    raise _damaged(path, f"a dict with the key {key!r}")


def _damaged(path: Path, expected: str) -> FsbenchError:
    return FsbenchError(
        f"Expected {expected} in {path}, found something else.",
        "Unpack cifar-100-python.tar.gz again (its md5 is eb9058c3a382ffc7106e4002c42a8d85).",
    )
