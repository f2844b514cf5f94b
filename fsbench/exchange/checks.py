"""Checks of imported features, and remarks on them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.errors import FsbenchError
from fsbench.exchange.content import REPAIR
from fsbench.features.overlap import overlaps
from fsbench.features.store import Split, make_split

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fsbench.exchange.content import Part


def split_from(part: Part, origin: str) -> Split:
    """The checked rows of a split.

    Args:
        part: Features and labels.
        origin: Where they come from, for messages.
    """
    if part.features is None or part.labels is None:
        missing = "features" if part.features is None else "labels"
        raise FsbenchError(
            f"{origin}: there are no {missing}.",
            f"Give the file of {missing} too, for the same split: novel=features.npy novel=labels.npy.",
        )
    if part.labels.shape != part.features.shape[:1]:
        raise FsbenchError(
            f"{origin}: {len(part.features)} rows of features, labels of shape {part.labels.shape}.", REPAIR
        )
    if not part.features.size:
        raise FsbenchError(f"{origin}: no rows.", REPAIR)
    if part.images and len(part.images) != len(part.features):
        raise FsbenchError(f"{origin}: {len(part.features)} rows, but {len(part.images)} names of images.", REPAIR)
    classes, names = _classes(part, origin)
    _check_finite(part.features, classes, names, origin)
    return make_split(part.features, classes, names, part.images)


def _classes(part: Part, origin: str) -> tuple[NDArray[np.int64], list[str]]:
    """Class numbers without gaps, and their names: those given, else the labels themselves."""
    labels = part.labels
    assert labels is not None
    if labels.dtype.kind == "f" and (np.abs(labels) < 1 << 53).all() and (labels == np.round(labels)).all():
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iuUS":
        raise FsbenchError(f"{origin}: labels are {labels.dtype}, expected whole numbers or names.", REPAIR)
    values, classes = np.unique(labels, return_inverse=True)
    names = [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values.tolist()]
    if part.class_names and labels.dtype.kind in "iu":
        if values[0] < 0 or values[-1] >= len(part.class_names):
            raise FsbenchError(f"{origin}: labels go from {values[0]} to {values[-1]}, but there are "
                               f"{len(part.class_names)} names of classes.", REPAIR)  # fmt: skip
        names = [part.class_names[value] for value in values.tolist()]
    if len(set(names)) < len(names) or not all(names):
        raise FsbenchError(f"{origin}: two classes have the same name, or one has none.", REPAIR)
    return classes.astype(np.int64), names


def _check_finite(features: NDArray[Any], classes: NDArray[np.int64], names: list[str], origin: str) -> None:
    with np.errstate(all="ignore"):
        broken = np.flatnonzero(~np.isfinite(features.astype(np.float32, copy=False)).all(axis=1))
    if len(broken):
        raise FsbenchError(
            f"{origin}: {len(broken)} rows are not finite in float32, the first is row {broken[0]} (class "
            f"{names[classes[broken[0]]]}).",
            "Features must be finite: leave these images out, or extract them again.",
        )


def remarks_on(split: Split, name: str) -> list[str]:
    """What is worth knowing of the rows of a split."""
    remarks = []
    single = [split.class_names[c] for c in np.flatnonzero(np.diff(split.offsets) == 1)]
    if single:
        remarks.append(f"{name}: {len(single)} classes have a single image: {', '.join(single[:5])}")
    norms = np.sqrt(np.einsum("md,md->m", split.features, split.features, dtype=np.float64))  # (M,)
    if (norms == 0).any():
        remarks.append(f"{name}: {int((norms == 0).sum())} rows are all zero")
    elif np.abs(norms - 1).max() < 1e-3:
        remarks.append(f"{name}: all rows have unit norm; methods expect features as the backbone gives them")
    negative = float((split.features < 0).mean())
    if negative:
        remarks.append(f"{name}: {100 * negative:.3g} % of the values are negative, so not the output of a ReLU")
    return remarks


def check_together(splits: Mapping[str, Split], origins: Mapping[str, str]) -> list[str]:
    """Refuse splits that cannot belong together; remark on what may be right or wrong."""
    numbers_shared = False
    for (one, first), (other, second) in itertools.combinations(splits.items(), 2):
        where = f"({origins[one]}, {origins[other]})"
        widths = first.features.shape[1], second.features.shape[1]
        if widths[0] != widths[1]:
            raise FsbenchError(
                f"{one} has {widths[0]} features per image, {other} has {widths[1]} {where}.",
                "All splits must come from one backbone.",
            )
        if np.array_equal(first.features, second.features):
            raise FsbenchError(f"{one} and {other} hold the same rows {where}.", "Give each split its own file.")
        shared = sorted(set(first.class_names) & set(second.class_names))
        named = [name for name in shared if not name.lstrip("-").isdigit()]
        if named:
            raise FsbenchError(
                f"{one} and {other} share {len(named)} classes: {', '.join(named[:5])} {where}.",
                "A class belongs to one split: remove it from the other.",
            )
        numbers_shared |= bool(shared)
    remarks = [found.refuse_many("they cannot belong together.") for found in overlaps(splits)]
    if numbers_shared:
        remarks.append(
            "splits share class numbers: right if every split numbers its classes anew, else they share classes"
        )
    return [remark for remark in remarks if remark]
