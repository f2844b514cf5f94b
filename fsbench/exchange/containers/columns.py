"""What the columns of a table mean: the label, perhaps a split and an image name, and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

LABELS = ("class_name", "class", "label", "labels", "target", "category", "y")  # the first that is there counts
SPLITS = ("split", "subset", "partition")
IMAGES = ("image", "images", "image_name", "filename", "file", "path")
ROW_NUMBERS = ("", "unnamed: 0", "__index_level_0__", "index", "id")


def fields_of(path: Path, columns: Mapping[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """Features, labels, splits and image names by the names that the layout of rows knows; and remarks.

    Args:
        path: The file, for messages.
        columns: By name, (M,) each, or (M, D) for a column of vectors.
    """
    by_name = {name.strip().lower(): name for name in columns}
    labels = [by_name[name] for name in LABELS if name in by_name]
    if not labels:
        raise FsbenchError(
            f"{path} has no column with the labels; its columns are {', '.join(list(columns)[:6])}, …",
            f"Name it one of: {', '.join(LABELS)}.",
        )
    fields = {"labels": columns[labels[0]]}
    for role, known in (("split", SPLITS), ("images", IMAGES)):
        for name in known:
            if name in by_name:
                fields[role] = columns[by_name[name]]
    left_out = [by_name[name] for name in ROW_NUMBERS if name in by_name] + labels[1:]
    spoken_for = {by_name[name] for name in (*LABELS, *SPLITS, *IMAGES, *ROW_NUMBERS) if name in by_name}
    fields["features"] = _features(path, {name: columns[name] for name in columns if name not in spoken_for})
    told = ", ".join(repr(name) for name in left_out)
    return fields, ((f"columns left out, as they are no features: {told}",) if left_out else ())


def _features(path: Path, columns: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    for name, column in columns.items():
        if column.dtype.kind not in "fiu":
            raise FsbenchError(
                f"{path}: column {name!r} is neither numbers nor a label, a split or an image name.",
                "Remove the column, or rename it.",
            )
    if not columns:
        raise FsbenchError(f"{path} has labels but no column of numbers.")
    return np.column_stack([column.astype(np.float32, copy=False) for column in columns.values()])
