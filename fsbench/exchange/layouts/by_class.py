"""Vectors by class: the pickles of S2M2, PT-MAP and BAVARDAGE, one file per split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.errors import FsbenchError
from fsbench.exchange.found import Found, Opened, Part, names_array, text_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

LAYOUT = "vectors by class"


def recognise(content: object) -> bool:
    """Whether it is a dict whose values are tables, or lists of vectors, of real numbers; one table is no classes."""
    if not isinstance(content, Mapping) or len(content) < 2:
        return False
    return all(map(_is_class, content.values())) and any(map(len, content.values()))


def read(opened: Opened, dataset: str, split: str) -> Found:
    """All rows with the key of their class."""
    assert isinstance(opened.content, Mapping)
    return read_classes(opened, opened.content)


def read_classes(opened: Opened, classes: Mapping[Any, Any], layout: str = LAYOUT) -> Found:
    """The rows of a dict of classes."""
    opened.check_room(sum(map(len, classes.values())))  # rows of width 0 could be any number
    rows = {key: list(value) for key, value in classes.items()}
    opened.check_room(sum(vector.nbytes for vectors in rows.values() for vector in vectors))
    empty = [str(text_of(key) or key) for key, vectors in rows.items() if not vectors]
    remarks = [f"classes without any vector are left out: {', '.join(empty[:5])}"] if empty else []
    _check_ragged(opened, rows)
    labels = np.repeat(_labels(opened, list(rows)), [len(vectors) for vectors in rows.values()])
    features = np.stack([np.ravel(vector) for vectors in rows.values() for vector in vectors])
    return Found(layout, [Part("", features, labels)], tuple(remarks))


def _is_class(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 2 and value.dtype.kind == "f"
    return isinstance(value, list) and all(
        isinstance(item, np.ndarray) and item.dtype.kind == "f" and item.size == max(item.shape, default=0)
        for item in value
    )


def _check_ragged(opened: Opened, rows: Mapping[Any, list[NDArray[Any]]]) -> None:
    sizes = {vector.size: key for key, vectors in rows.items() for vector in vectors}
    if len(sizes) > 1:
        (first, one), (second, other) = list(sizes.items())[:2]
        raise FsbenchError(
            f"{opened.path}: vectors differ in length: {first} in class {one}, {second} in class {other}.",
            "All must come from one backbone.",
        )


def _labels(opened: Opened, keys: list[Any]) -> NDArray[Any]:
    """Keys as whole numbers if all of them are, else as names."""
    if all(isinstance(key, int) and not isinstance(key, bool) and abs(key) < 1 << 62 for key in keys):
        return np.array(keys, dtype=np.int64)
    if all(isinstance(key, int | str | bytes) for key in keys):
        return names_array(opened.path, [str(key) if (text := text_of(key)) is None else text for key in keys])
    raise FsbenchError(f"{opened.path}: a class is neither a number nor a name: {keys[0]!r}.")
