"""What the columns of a table mean: the label, perhaps a split and an image name, and numbers."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

LABELS = ("class_name", "class", "label", "labels", "target", "category", "y")  # the first that is there counts
SPLITS = ("split", "subset", "partition")  # here, too
IMAGES = ("image", "images", "image_name", "filename", "file", "path")
ROW_NUMBERS = ("", "unnamed: 0", "__index_level_0__", "index", "id")

Columns = dict[str, "NDArray[Any]"]


def fields_of(path: Path, columns: Mapping[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """Features, labels, splits and image names by the names that the layout of rows knows; and remarks.

    Args:
        path: The file, for messages.
        columns: By name, (M,) each, or (M, D) for a column of vectors.
    """
    by_name = _by_plain_name(path, columns)
    if not any(name in by_name for name in LABELS):
        raise FsbenchError(
            f"{path} has no column with the labels; its columns are {', '.join(list(columns)[:6])}, …",
            f"Name it one of: {', '.join(LABELS)}.",
        )
    fields: Columns = {}
    left_out = [by_name[name] for name in ROW_NUMBERS if name in by_name]
    for role, known in (("labels", LABELS), ("split", SPLITS), ("images", IMAGES)):
        present = [by_name[name] for name in known if name in by_name]
        if present:
            fields[role] = columns[present[0]]
            left_out += present[1:]
    spoken_for = {by_name[name] for name in (*LABELS, *SPLITS, *IMAGES, *ROW_NUMBERS) if name in by_name}
    numbers = {name: columns[name] for name in columns if name not in spoken_for}
    _require_numbers(path, numbers)
    _refuse_strays(path, numbers)
    _refuse_leaks(path, numbers, fields["labels"])
    fields["features"] = np.column_stack([column.astype(np.float32, copy=False) for column in numbers.values()])
    return fields, ((f"columns left out, as they are no features: {_listed(left_out)}",) if left_out else ())


def _by_plain_name(path: Path, columns: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in columns:
        plain = name.strip().lower()
        if plain in found:
            raise FsbenchError(
                f"{path} has two columns of the same name: {_listed([found[plain], name])}.",
                "Capitals and spaces do not count. Rename one of them, or remove it.",
            )
        found[plain] = name
    return found


def _require_numbers(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    for name, column in columns.items():
        if column.dtype.kind not in "fiu":
            raise FsbenchError(
                f"{path}: column {name!r} is neither numbers nor a label, a split or an image name.",
                "Remove the column, or rename it.",
            )
    if not columns:
        raise FsbenchError(f"{path} has labels but no column of numbers.")


def _refuse_strays(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Refuse numbers beside the features, such as the number of the class or the size of the image."""
    vectors = [name for name, column in columns.items() if column.ndim > 1]
    if len(vectors) > 1:
        raise FsbenchError(f"{path} has several columns of vectors: {_listed(vectors)}.", "Keep the features.")
    sizes = Counter(map(_series, columns))
    features = dict.fromkeys(vectors or [name for name in columns if sizes[_series(name)] > 1])
    strays = [name for name in columns if name not in features]
    if features and strays:
        raise FsbenchError(
            f"{path}: {_listed(strays)} holds numbers, but is not named like the features {_listed(features)}.",
            "Remove the column if it is no feature, else name it like the others, with a number behind.",
        )


def _refuse_leaks(path: Path, columns: Mapping[str, NDArray[Any]], labels: NDArray[Any]) -> None:
    """Refuse columns that say the label in other words. A feature may be constant, but not all of a series."""
    _, first, classes = np.unique(labels, return_index=True, return_inverse=True)
    if len(first) == len(labels) or len(first) == 1 or any(len(column) != len(labels) for column in columns.values()):
        return
    of_class = first[classes]
    varied: set[str] = set()
    leaks: dict[str, str] = {}
    for name, column in columns.items():
        series = _series(name)
        if series in varied or np.array_equal(column, column[:1].repeat(len(column), axis=0)):
            continue
        if np.array_equal(column, column[of_class]):
            leaks.setdefault(series, name)
        else:
            varied.add(series)
    told = [name for series, name in leaks.items() if series not in varied]
    if told:
        raise FsbenchError(
            f"{path}: column {_listed(told)} is the same for all images of a class: it gives the label away.",
            "Remove it if it is no feature.",
        )


def _series(name: str) -> str:
    """What names of features such as f0, f1, … have in common; other names stand for themselves."""
    found = re.fullmatch(r"(.*?)\d+", name.strip().lower())
    return f"{found[1]}#" if found else name


def _listed(names: Iterable[str]) -> str:
    listed = [repr(name) for name in names]
    return ", ".join(listed) if len(listed) <= 4 else f"{', '.join(listed[:2])}, …, {listed[-1]}"
