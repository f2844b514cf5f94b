"""Means and intervals over tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NORMAL_95 = 1.96


@dataclass(frozen=True)
class Interval:
    """A mean with the half-width of its 95 % interval, both in percent."""

    mean: float
    half_width: float

    @property
    def low(self) -> float:
        """Lower end."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end."""
        return self.mean + self.half_width


def accuracies(correct: NDArray[np.int64], queries: NDArray[np.int64]) -> NDArray[np.float64]:
    """(T,) share of right answers per task, in percent."""
    return 100.0 * correct / queries


def interval(values: NDArray[np.float64]) -> Interval:
    """Mean over sampled tasks and 1.96 · sd / √n, sd with n − 1; no width is known from a single task (NaN)."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
    return Interval(float(values.mean()), float(_NORMAL_95 * spread / len(values) ** 0.5))


def paired_difference(values: NDArray[np.float64], baseline: NDArray[np.float64]) -> Interval:
    """Mean difference over the same tasks, with the interval of the differences."""
    return interval(values - baseline)
