"""Means, intervals and paired tests over tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_NORMAL_95 = 1.96
LEVEL = 0.05


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


def small_sample_interval(values: NDArray[np.float64]) -> Interval:
    """Mean and Student's interval, for a few dozen values."""
    from scipy import stats

    if len(values) < 2:
        return interval(values)
    width = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return Interval(float(values.mean()), float(width))


def paired_difference(values: NDArray[np.float64], baseline: NDArray[np.float64]) -> Interval:
    """Mean difference over the same tasks, with the interval of the differences."""
    return interval(values - baseline)


def paired_p_value(values: NDArray[np.float64], baseline: NDArray[np.float64]) -> float:
    """Two-sided p-value of Student's paired test; 1 where all differences are the same zero or there is one task."""
    from scipy import stats

    differences = values - baseline
    if len(differences) < 2 or not differences.any():
        return 1.0
    if np.ptp(differences) == 0:
        return 0.0
    return float(stats.ttest_rel(values, baseline).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for several comparisons, in the order given."""
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected.tolist()
