"""Metrics: functions of what was predicted, the true labels and the confidence. A new one is a function and a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fsbench.errors import FsbenchError, unknown_name

if TYPE_CHECKING:
    from fsbench.results.record import Answers, Record

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

BINS = 15


@dataclass(frozen=True)
class Metric:
    """A number per task, in percent."""

    name: str
    title: str
    per_task: Callable[[Answers], Floats]
    higher_is_better: bool = True


def accuracy(answers: Answers) -> Floats:
    """(T,) share of right answers per task, in percent."""
    queries = (answers.labels >= 0).sum(axis=1)
    right = ((answers.predicted == answers.labels) & (answers.labels >= 0)).sum(axis=1)
    values: Floats = 100.0 * right / queries
    return values


def balanced_accuracy(answers: Answers) -> Floats:
    """(T,) mean recall over the classes that are among the queries of a task, in percent."""
    right, queries = _by_class(answers)
    present = queries > 0
    recall = np.divide(right, queries, out=np.zeros(right.shape), where=present)
    means: Floats = 100.0 * recall.sum(axis=1) / present.sum(axis=1)
    return means


def _by_class(answers: Answers) -> tuple[Ints, Ints]:
    """(T, K) right answers to the queries of every class, and their number."""
    tasks, ways = answers.classes.shape
    present = answers.labels >= 0
    place = (np.arange(tasks)[:, None] * ways + answers.labels)[present]
    right = (answers.predicted == answers.labels)[present]
    counts = [np.bincount(place[part], minlength=tasks * ways) for part in (right, slice(None))]
    return counts[0].reshape(tasks, ways), counts[1].reshape(tasks, ways)


ACCURACY = Metric("accuracy", "accuracy", accuracy)
METRICS = {
    metric.name: metric for metric in (ACCURACY, Metric("balanced-accuracy", "balanced accuracy", balanced_accuracy))
}


def metric_of(name: str) -> Metric:
    """A metric by its name."""
    if name not in METRICS:
        raise unknown_name("metric", name, METRICS)
    return METRICS[name]


def confusion(record: Record) -> Floats:
    """(C, C) percent of the queries of one class that got another, of those in tasks that have both; else NaN.

    On the diagonal: percent of the queries of a class that were answered right.
    """
    answers, count = record.answers, len(record.class_names)
    present = answers.labels >= 0
    task = np.broadcast_to(np.arange(len(answers))[:, None], present.shape)[present]
    true = answers.classes[task, answers.labels[present]].astype(np.int64)
    answered = answers.classes[task, answers.predicted[present]]
    pairs = np.bincount(true * count + answered, minlength=count**2).reshape(count, count)
    queries, among = np.zeros((len(answers), count)), np.zeros((len(answers), count))
    np.add.at(queries, (task, true), 1.0)
    np.put_along_axis(among, answers.classes.astype(np.int64), 1.0, axis=1)
    together = queries.T @ among
    shares: Floats = np.divide(100.0 * pairs, together, out=np.full_like(together, np.nan), where=together > 0)
    return shares


@dataclass(frozen=True)
class Reliability:
    """How often a method is right, by how sure it is: 15 bins of the confidence, of equal width."""

    counts: Ints  # (15,) queries
    confidence: Floats  # (15,) mean confidence, in percent; NaN where there is no query
    accuracy: Floats  # (15,) percent of right answers
    error: float  # expected calibration error: mean |accuracy − confidence| over queries, bin by bin, in points


def reliability(record: Record) -> Reliability:
    """Confidence against accuracy of a method over all queries of all tasks."""
    answers, present = record.answers, record.labels >= 0
    sure = answers.confidence[present].astype(np.float64)
    if not np.isfinite(sure).all() or sure.min() < 0 or sure.max() > 1.001:
        message = f"The probabilities of {record.run.method} do not sum to one, so calibration is undefined."
        raise FsbenchError(message, "Pass the record files of other methods.")
    right = (answers.predicted == answers.labels)[present]
    bins = np.clip(np.ceil(BINS * sure).astype(np.int64) - 1, 0, BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    confidence, accurate = (
        np.divide(100.0 * np.bincount(bins, values, BINS), counts, out=np.full(BINS, np.nan), where=counts > 0)
        for values in (sure, right)
    )
    gaps = np.nan_to_num(np.abs(accurate - confidence))
    return Reliability(counts, confidence, accurate, float((counts * gaps).sum() / counts.sum()))
