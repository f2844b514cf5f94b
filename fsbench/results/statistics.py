"""Means, intervals and paired tests over tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

LEVEL = 0.05
FEW_TASKS = 30  # fewer tasks tell too little of their spread: intervals then come from the classes


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


def interval(values: NDArray[np.float64]) -> Interval:
    """Mean and Student's 95 % interval; a single value has no width (NaN)."""
    return Interval(float(values.mean()), float(stdtrit(len(values) - 1, 1 - LEVEL / 2) * _standard_error(values)))


def paired_p_values(
    values: NDArray[np.float64], baseline: NDArray[np.float64], *, signs: int = 0
) -> NDArray[np.float64]:
    """Two-sided p-values of Student's paired test, but at least 2^(1 − T).

    That is the probability that T differences share one sign by chance. Counts of a few tasks often differ by the same
    number, and Student's test would be certain where they do. Where the same tasks are also tested by their classes,
    `signs` is the larger number of both.

    The values are (…, T), of one method or several, and (T,); the p-values (…,), 1 where all tasks have the same.
    """
    differences, tasks = values - baseline, len(baseline)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(differences.mean(axis=-1)) / _standard_error(differences)
    p_values: NDArray[np.float64] = np.fmax(2 * stdtr(tasks - 1, -t), 2.0 ** (1 - max(tasks, signs)))
    return np.where(differences.any(axis=-1), p_values, 1.0)


def interval_over_classes(values: NDArray[np.float64], classes: NDArray[np.int64]) -> Interval | None:
    """Mean of (T,) tasks with a 95 % interval for tasks of new classes, from the classes (T, K) of each task.

    The jackknife: the mean without the tasks of class c, for every c, and Student's quantile of their number minus one.
    The images of a class go with it, so that new images are covered too. None where each task needs all classes, or
    hardly any task is without one. There may be classes of more tasks than there are values.
    """
    classes = classes[: len(values)]
    tasks, places = np.nonzero(classes >= 0)  # -1 fills the lines of tasks with fewer classes than others
    names, numbers = np.unique(classes[tasks, places], return_inverse=True)
    holds = np.zeros((len(values), len(names)))
    holds[tasks, numbers] = 1.0  # (T, C)
    without = len(values) - holds.sum(axis=0)  # (C,) tasks
    if without.min() < 2:
        return None
    means = (values.sum() - values @ holds) / without  # (C,)
    freedom = len(names) - 1
    error = (freedom / len(names) * ((means - means.mean()) ** 2).sum()) ** 0.5
    return Interval(float(values.mean()), float(stdtrit(freedom, 1 - LEVEL / 2) * error))


def _standard_error(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation (n − 1) of (…, n) values over √n; NaN for a single value."""
    n = values.shape[-1]
    return np.std(values, axis=-1, ddof=1) / n**0.5 if n > 1 else np.full(values.shape[:-1], np.nan)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for several comparisons, in the order given."""
    order = np.argsort(p_values, kind="stable")
    steps = np.arange(len(p_values), 0, -1) * np.asarray(p_values)[order]
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return corrected.tolist()
