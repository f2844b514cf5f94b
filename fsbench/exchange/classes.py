"""Features by class: dicts of vectors, SimpleShot's and LaplacianShot's `output.plk`, EASY's tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.data.catalog import SPLITS, dataset_info, dataset_names
from fsbench.errors import FsbenchError
from fsbench.exchange.containers import Layout, Part, Recognised, is_table, text_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fsbench.data.catalog import DatasetInfo

_ON_SIMPLESHOT = (
    "the file holds the mean of the base features but not the features themselves; methods that need base classes need "
    "a file of them too",
    "classes are numbered in the order of their names as text ('103' before '11')",
)
_ORDERED = ("mini", "cub")  # by name within each split; the others in the order of the folder on EASY's machine
_ROUND_OFF = 1e-4


def _is_by_class(content: object) -> bool:
    """Whether it is a dict whose values are tables, or lists of vectors, of real numbers; a single table is not."""
    if not isinstance(content, Mapping) or len(content) < 2:
        return False
    return all(map(_is_class, content.values())) and any(map(len, content.values()))


def _read_by_class(content: Mapping[Any, Any], dataset: str, split: str) -> Recognised:
    """All rows with the key of their class."""
    rows = {key: list(value) for key, value in content.items()}
    empty = [str(text_of(key) or key) for key, vectors in rows.items() if not vectors]
    remarks = (f"classes without any vector are left out: {', '.join(empty[:5])}",) if empty else ()
    sizes = {vector.size: key for key, vectors in rows.items() for vector in vectors}
    if len(sizes) > 1:
        (first, one), (second, other) = list(sizes.items())[:2]
        message = f"Vectors differ in length: {first} in class {one}, {second} in class {other}."
        raise FsbenchError(message, "All must come from one backbone.")
    labels = np.repeat(_labels(list(rows)), [len(vectors) for vectors in rows.values()])
    features = np.stack([np.ravel(vector) for vectors in rows.values() for vector in vectors])
    return Recognised([Part("", features, labels)], remarks)


def _is_class(value: object) -> bool:
    return is_table(value) or (isinstance(value, list) and all(map(_is_vector, value)))


def _is_vector(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size == max(value.shape, default=0)


def _labels(keys: list[Any]) -> NDArray[Any]:
    """Keys as whole numbers if all of them are, else as names."""
    if all(isinstance(key, int) and not isinstance(key, bool) and abs(key) < 1 << 62 for key in keys):
        return np.array(keys, dtype=np.int64)
    if all(isinstance(key, int | str | bytes) for key in keys):
        return np.array([str(key) if (text := text_of(key)) is None else text for key in keys], dtype=np.str_)
    raise FsbenchError(f"A class is neither a number nor a name: {keys[0]!r}.")


def _is_simpleshot(content: object) -> bool:
    """Whether it is a list of four with the classes in third place, or of two with the classes in second."""
    return isinstance(content, list) and len(content) in {2, 4} and _is_by_class(content[len(content) // 2])


def _read_simpleshot(content: list[Any], dataset: str, split: str) -> Recognised:
    """The vectors by class; means and logits are left out."""
    rows = _read_by_class(content[len(content) // 2], dataset, split)
    return replace(rows, remarks=rows.remarks + _ON_SIMPLESHOT)


def _read_stacked(content: object, dataset: str, split: str) -> Recognised:
    """Rows without padding, cut into splits by the data set's numbers of classes."""
    tensor = _tensor(content)
    assert tensor is not None
    info = dataset_info(dataset) if dataset in dataset_names() else None
    sizes = {split: len(tensor)} if split else _sizes(tensor, dataset, info)
    with np.errstate(all="ignore"):  # rows that are not finite are named later, with their class
        counts = np.array([_true_count(rows) for rows in tensor])
    parts, start = [], 0
    for name, classes in sizes.items():
        numbers = np.arange(start, start + classes)
        labels = np.repeat(numbers, counts[numbers])
        rows = np.concatenate([tensor[c, : counts[c]] for c in numbers])
        if len(rows):
            parts.append(Part(name, rows, labels))
        start += classes
    return Recognised(parts, tuple(_remarks(tensor.shape[1], counts, dataset, None if split else info)))


def _tensor(content: object) -> NDArray[Any] | None:
    """The one array of real numbers with three axes, if that is all there is."""
    if isinstance(content, Mapping) and len(content) == 1:
        content = next(iter(content.values()))
    if isinstance(content, np.ndarray) and content.ndim == 3 and content.dtype.kind == "f" and content.size:
        return content
    return None


def _sizes(tensor: NDArray[Any], dataset: str, info: DatasetInfo | None) -> dict[str, int]:
    """Numbers of classes of the three splits, if together they are those of the tensor."""
    content = f"It holds {len(tensor)} classes of {tensor.shape[1]} images in one tensor"
    hint = "If all are of one split, say which: novel=FILE."
    if info is None:
        raise FsbenchError(f"{content}; how they divide into splits is known for {', '.join(dataset_names())}.", hint)
    sizes = {split: len(info.splits[split]) for split in SPLITS}
    if sum(sizes.values()) != len(tensor):
        expected = " + ".join(map(str, sizes.values()))
        raise FsbenchError(f"{content}, but {dataset} has {expected} = {sum(sizes.values())}.", hint)
    return sizes


def _true_count(rows: NDArray[Any]) -> int:
    """Images of a class, without the repeats of its last image, or zeros, that fill it up."""
    filled = np.flatnonzero(rows.any(axis=1))
    if not len(filled):
        return 0
    rows = rows[: filled[-1] + 1].astype(np.float64)
    distances = np.linalg.norm(rows[:-1] - rows[-1], axis=1)
    others = np.flatnonzero(~(distances <= _ROUND_OFF * np.linalg.norm(rows[-1])))
    return int(others[-1]) + 2 if len(others) else 1


def _remarks(images: int, counts: NDArray[np.int64], dataset: str, info: DatasetInfo | None) -> list[str]:
    remarks = []
    padded = (counts < images).any()
    if padded:
        rows = (images - counts).sum()
        remarks.append(f"{rows} rows that repeat the last image of their class, or are zero, are left out as padding")
    if info is None:
        return remarks
    short = sum(size < images for split in SPLITS for size in info.splits[split].values())
    if short and not padded:
        remarks.append(
            f"{short} classes of {dataset} have fewer than {images} images, but no repeated rows were found: features "
            "of augmented samples (AS) look like that; their padding cannot be told from images and stays in"
        )
    order = "in the order of their names" if dataset in _ORDERED else "in an unknown order"
    remarks.append(f"classes are numbered as in the file, within each split {order}")
    return remarks


SIMPLESHOT = Layout("base mean and vectors by class (SimpleShot, LaplacianShot)", _is_simpleshot, _read_simpleshot)
BY_CLASS = Layout("vectors by class", _is_by_class, _read_by_class)
STACKED = Layout("classes × images × features (EASY)", lambda content: _tensor(content) is not None, _read_stacked)
