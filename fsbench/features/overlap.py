"""Rows that two splits have in common, bit for bit: an image that is in both, or features given twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from fsbench.features.store import Split

MANY = 0.01  # share of the smaller split; public data sets have a few doubles, a mistake has many
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Overlap:
    """How much the splits of two names share."""

    one: str
    other: str
    rows: int  # different rows that are in both; rows of zeros do not count
    share: float  # of the rows of the smaller one

    @property
    def sentence(self) -> str:
        """In words."""
        rows = "1 identical row" if self.rows == 1 else f"{self.rows:,} identical rows"
        return f"{self.one} and {self.other} share {rows} of features"

    def refuse_many(self, why: str) -> str:
        """An error if it cannot be an accident; else a remark, which is empty if there is no overlap."""
        if self.share >= MANY:
            hint = "Find them with `fsbench doctor --deep`, for own images with --data FOLDER, and extract again."
            raise FsbenchError(f"{self.sentence}: {why}", hint)
        return f"{self.sentence}: the same images in both?" if self.rows else ""


def overlap(
    one: str, first: Iterable[NDArray[np.float32]], other: str, second: Iterable[NDArray[np.float32]]
) -> Overlap:
    """Compare two splits, each given as blocks of rows."""
    marks, others = _marks(first), _marks(second)
    rows = len(np.intersect1d(marks[marks > 0], others[others > 0]))
    return Overlap(one, other, rows, rows / max(1, min(len(marks), len(others))))


def overlaps(splits: Mapping[str, Split]) -> list[Overlap]:
    """Compare all splits of a data set, pair by pair."""
    pairs = itertools.combinations(splits.items(), 2)
    return [overlap(one, [first.features], other, [second.features]) for (one, first), (other, second) in pairs]


def _marks(blocks: Iterable[NDArray[np.float32]]) -> NDArray[np.uint64]:
    """(M,) a 64-bit sum of the bits of every row, each place with its own odd weight; 0 for a row of zeros."""
    sums = [np.zeros(0, dtype=np.uint64)]
    for block in blocks:
        weights = np.random.default_rng(0).integers(0, 1 << 63, block.shape[1], dtype=np.uint64) * 2 + 1
        for start in range(0, len(block), _ROWS_AT_ONCE):
            bits = np.ascontiguousarray(block[start : start + _ROWS_AT_ONCE]).view(np.uint32)
            sums.append(bits.astype(np.uint64) @ weights)
    return np.concatenate(sums)
