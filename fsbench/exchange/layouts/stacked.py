"""EASY's tensors (classes, images, D): base, val and novel classes one after another, short classes filled up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.data.catalog import SPLITS, dataset_info, dataset_names
from fsbench.errors import FsbenchError
from fsbench.exchange.found import Found, Opened, Part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fsbench.data.catalog import DatasetInfo

LAYOUT = "classes × images × features (EASY)"
ORDERED = ("mini", "cub")  # by name within each split; the others in the order of the folder on EASY's machine
ROUND_OFF = 1e-4


def recognise(content: object) -> bool:
    """Whether it is one array of real numbers with three axes."""
    return _tensor(content) is not None


def read(opened: Opened, dataset: str, split: str) -> Found:
    """Rows without padding, cut into splits by the data set's numbers of classes."""
    tensor = _tensor(opened.content)
    assert tensor is not None
    opened.check_room(tensor.nbytes)
    info = dataset_info(dataset) if dataset in dataset_names() else None
    sizes = {split: len(tensor)} if split else _sizes(opened, tensor, dataset, info)
    counts = true_counts(tensor)
    parts, start = [], 0
    for name, classes in sizes.items():
        numbers = np.arange(start, start + classes)
        labels = np.repeat(numbers, counts[numbers])
        rows = np.concatenate([tensor[c, : counts[c]] for c in numbers])
        if len(rows):
            parts.append(Part(name, rows, labels))
        start += classes
    return Found(LAYOUT, parts, tuple(_remarks(tensor.shape[1], counts, dataset, None if split else info)))


def _tensor(content: object) -> NDArray[Any] | None:
    if isinstance(content, Mapping) and len(content) == 1:
        content = next(iter(content.values()))
    fits = isinstance(content, np.ndarray) and content.ndim == 3 and content.dtype.kind == "f" and content.size > 0
    return content if fits else None  # type: ignore[return-value]


def _sizes(opened: Opened, tensor: NDArray[Any], dataset: str, info: DatasetInfo | None) -> dict[str, int]:
    """Numbers of classes of the three splits, if together they are those of the tensor."""
    found = f"{opened.path} holds {len(tensor)} classes of {tensor.shape[1]} images in one tensor"
    whole = f"If all are of one split, say which: novel={opened.path}."
    if info is None:
        raise FsbenchError(f"{found}; how they divide into splits is known for {', '.join(dataset_names())}.", whole)
    sizes = {split: len(info.splits[split]) for split in SPLITS}
    if sum(sizes.values()) != len(tensor):
        expected = " + ".join(str(size) for size in sizes.values())
        raise FsbenchError(f"{found}, but {dataset} has {expected} = {sum(sizes.values())}.", whole)
    return sizes


def true_counts(tensor: NDArray[Any]) -> NDArray[np.int64]:
    """Images per class, (C,): without the repeats of its last image, or zeros, that fill a class up."""
    with np.errstate(all="ignore"):  # rows that are not finite are named later, with their class
        return np.array([_true_count(rows) for rows in tensor], dtype=np.int64)


def _true_count(rows: NDArray[Any]) -> int:
    filled = np.flatnonzero(rows.any(axis=1))
    if not len(filled):
        return 0
    rows = rows[: filled[-1] + 1].astype(np.float64)
    distances = np.linalg.norm(rows[:-1] - rows[-1], axis=1)
    others = np.flatnonzero(~(distances <= ROUND_OFF * np.linalg.norm(rows[-1])))
    return int(others[-1]) + 2 if len(others) else 1


def _remarks(images: int, counts: NDArray[np.int64], dataset: str, info: DatasetInfo | None) -> list[str]:
    remarks = []
    padded = int((counts < images).sum())
    if padded:
        repeats = int((images - counts).sum())
        remarks.append(
            f"{repeats} rows that repeat the last image of their class, or are zero, are left out as padding"
        )
    if info is None:
        return remarks
    short = sum(size < images for split in SPLITS for size in info.splits[split].values())
    if short and not padded:
        remarks.append(
            f"{short} classes of {dataset} have fewer than {images} images, but no repeated rows were found: features "
            "of augmented samples (AS) look like that; their padding cannot be told from images and stays in"
        )
    order = "in the order of their names" if dataset in ORDERED else "in an unknown order"
    remarks.append(f"classes are numbered as in the file, within each split {order}")
    return remarks
