"""Metrics: functions of predicted and true labels and confidence. A new one: a function, a row, a name in options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fsbench.errors import FsbenchError, unknown_name
from fsbench.tasks.varied import UNKNOWN

if TYPE_CHECKING:
    from fsbench.results.record import Answers, Record

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

BINS = 15
_MOST_GROUPS = 100  # of classes, of which the jackknife leaves out one after the other


@dataclass(frozen=True)
class Metric:
    """What a table shows, in percent: the mean over tasks of a number per task, or one number for all queries.

    A number θ for all queries has pseudo-values of the jackknife over tasks in place of numbers per task: T θ minus
    (T − 1) times the number without task t. Their mean is θ up to its bias, and intervals and tests follow from them.
    """

    name: str
    title: str
    per_task: Callable[[Answers], Floats]  # (T,)
    higher_is_better: bool = True
    pooled: Callable[[Answers], float] | None = None  # θ, of a number for all queries
    needs_confidence: bool = False
    needs_outliers: bool = False  # that some queries are of unknown classes


def accuracy(answers: Answers) -> Floats:
    """(T,) share of right answers per task, in percent."""
    queries = (answers.labels >= 0).sum(axis=1)
    right = ((answers.predicted == answers.labels) & (answers.labels >= 0)).sum(axis=1)
    values: Floats = 100.0 * right / queries
    return values


def balanced_accuracy(answers: Answers) -> Floats:
    """(T,) mean recall over the classes that are among the queries of a task, in percent."""
    right, queries, _ = _by_class(answers)
    present = queries > 0
    recall = np.divide(right, queries, out=np.zeros(right.shape), where=present)
    means: Floats = 100.0 * recall.sum(axis=1) / present.sum(axis=1)
    return means


def macro_f1(answers: Answers) -> Floats:
    """(T,) mean F1 over the classes that are among the queries of a task or the answers to them, in percent."""
    right, queries, answered = _by_class(answers)
    seen = queries + answered
    f1 = np.divide(2.0 * right, seen, out=np.zeros(right.shape), where=seen > 0)
    means: Floats = 100.0 * f1.sum(axis=1) / (seen > 0).sum(axis=1)
    return means


def _by_class(answers: Answers) -> tuple[Ints, Ints, Ints]:
    """(T, K) right answers to the queries of every class, the number of these, and how often it was answered."""
    tasks, ways = answers.classes.shape
    present = answers.labels >= 0
    first = np.arange(tasks)[:, None] * ways
    true, answered = ((first + array)[present] for array in (answers.labels, answers.predicted))
    counted = (true[true == answered], true, answered)
    right, queries, given = (np.bincount(one, minlength=tasks * ways).reshape(tasks, ways) for one in counted)
    return right, queries, given


def calibration_error(answers: Answers) -> float:
    """Expected calibration error: mean |accuracy − confidence| over all queries, bin by bin, in points."""
    return float(_error(*(part.sum(axis=0) for part in _by_bin(answers))))


def _error(counts: Floats, confidence: Floats, right: Floats) -> Floats:
    """(…,) the error from sums (…, 15) over the queries of every bin."""
    error: Floats = 100.0 * np.abs(right - confidence).sum(axis=-1) / counts.sum(axis=-1)
    return error


def calibration_pseudo_values(answers: Answers) -> Floats:
    """(T,) pseudo-values of the calibration error; the error itself for a single task."""
    parts, tasks = _by_bin(answers), len(answers)
    whole = calibration_error(answers)
    if tasks == 1:
        return np.array([whole])
    return tasks * whole - (tasks - 1) * _error(*(part.sum(axis=0) - part for part in parts))


def _by_bin(answers: Answers) -> tuple[Floats, Floats, Floats]:
    """(T, 15) queries per bin of the confidence, and sums of their confidences and of their right answers."""
    present = answers.labels >= 0
    sure = answers.confidence[present].astype(np.float64)
    right = (answers.predicted == answers.labels)[present].astype(np.float64)
    bins = np.clip(np.ceil(BINS * sure).astype(np.int64) - 1, 0, BINS - 1)
    place = np.nonzero(present)[0] * BINS + bins
    shape, size = (len(answers), BINS), len(answers) * BINS

    def summed(values: Floats) -> Floats:
        sums: Floats = np.bincount(place, values, size).reshape(shape).astype(np.float64)
        return sums

    return summed(np.ones(len(sure))), summed(sure), summed(right)


def class_pseudo_values(metric: Metric, answers: Answers) -> Floats:
    """(G,) pseudo-values of the jackknife over classes, where tasks are too few: G θ − (G − 1) θ without group g.

    θ is the metric over all tasks. The queries of a class are left out together; many classes are left out in groups.
    """
    known = answers.labels >= 0
    task = np.nonzero(known)[0]
    classes = np.full(answers.labels.shape, -1)
    classes[known] = answers.classes[task, answers.labels[known]]
    groups = np.unique(classes[known]) % _MOST_GROUPS
    names = np.unique(groups)
    if len(names) < 2:
        return np.full(1, _over_tasks(metric, answers))
    rest = [replace(answers, labels=np.where(known & (classes % _MOST_GROUPS == g), -1, answers.labels)) for g in names]
    without = np.array([_over_tasks(metric, one) for one in rest])
    return len(names) * _over_tasks(metric, answers) - (len(names) - 1) * without


def _over_tasks(metric: Metric, answers: Answers) -> float:
    """The metric over all tasks that have a query."""
    answers = answers[(answers.labels >= 0).any(axis=1)]
    return metric.pooled(answers) if metric.pooled else float(metric.per_task(answers).mean())


def has_confidence(answers: Answers) -> bool:
    """Whether there are probabilities of all answers."""
    sure = answers.confidence[answers.labels >= 0]
    return bool(((sure >= 0) & (sure <= 1.001)).all())


def auroc(answers: Answers) -> Floats:
    """(T,) area under the ROC curve of the outlier score, with queries of unknown classes as positives, in percent.

    It is the share of pairs of an unknown and a known query in which the first has the larger score; ties count half.
    """

    def area(unknown: Floats, known: Floats) -> float:
        below, at_most = (np.searchsorted(known, unknown, side).mean() for side in ("left", "right"))
        return float(below + at_most) / (2 * len(known))

    return _of_outliers(answers, area)


def aupr(answers: Answers) -> Floats:
    """(T,) average precision of the outlier score, with queries of unknown classes as positives, in percent."""

    def precision(unknown: Floats, known: Floats) -> float:
        hits, misses = (len(one) - np.searchsorted(one, unknown, "left") for one in (unknown, known))
        return float((hits / (hits + misses)).mean())  # over thresholds at the score of every unknown query

    return _of_outliers(answers, precision)


def _of_outliers(answers: Answers, number: Callable[[Floats, Floats], float]) -> Floats:
    """(T,) a number from the sorted scores of unknown and known queries, in percent; tasks without either: the mean."""
    values = np.full(len(answers), np.nan)
    for task, (labels, scores) in enumerate(zip(answers.labels, answers.outlier, strict=True)):
        unknown, known = np.sort(scores[labels == UNKNOWN]), np.sort(scores[labels >= 0])
        if len(unknown) and len(known):
            values[task] = 100.0 * number(unknown, known)
    return np.where(np.isnan(values), np.nanmean(values), values)


ACCURACY = Metric("accuracy", "accuracy", accuracy)
METRICS = {
    metric.name: metric
    for metric in (
        ACCURACY,
        Metric("balanced-accuracy", "balanced accuracy", balanced_accuracy),
        Metric("macro-f1", "macro F1", macro_f1),
        Metric(
            "ece",
            "expected calibration error",
            calibration_pseudo_values,
            higher_is_better=False,
            pooled=calibration_error,
            needs_confidence=True,
        ),
        Metric("auroc", "AUROC of unknown classes", auroc, needs_outliers=True),
        Metric("aupr", "AUPR of unknown classes", aupr, needs_outliers=True),
    )
}


def metric_of(name: str) -> Metric:
    """A metric by its name."""
    if name not in METRICS:
        raise unknown_name("metric", name, METRICS)
    return METRICS[name]


def confused(record: Record) -> Ints:
    """(C, C) number of queries of a class that were answered so; right answers are on the diagonal."""
    answers, count = record.answers, len(record.class_names)
    task, query = np.nonzero(answers.labels >= 0)
    true, answered = (answers.classes[task, part[task, query]] for part in (answers.labels, answers.predicted))
    return np.bincount(true.astype(np.int64) * count + answered, minlength=count**2).reshape(count, count)


def confusion(record: Record) -> Floats:
    """(C, C) the same in percent of the queries of a class: rows add up to 100; NaN without queries."""
    pairs = confused(record)
    queries = np.broadcast_to(pairs.sum(axis=1, keepdims=True), pairs.shape)
    shares: Floats = np.divide(100.0 * pairs, queries, out=np.full(pairs.shape, np.nan), where=queries > 0)
    return shares


@dataclass(frozen=True)
class Reliability:
    """How often a method is right, by how sure it is: 15 bins of the confidence, of equal width."""

    counts: Ints  # (15,) queries
    confidence: Floats  # (15,) mean confidence, in percent; NaN where there is no query
    accuracy: Floats  # (15,) percent of right answers
    error: float  # expected calibration error


def reliability(record: Record) -> Reliability:
    """Confidence against accuracy of a method over all queries of all tasks."""
    if not has_confidence(record.answers):
        message = f"The probabilities of {record.run.method} do not sum to one, so calibration is undefined."
        raise FsbenchError(message, "Pass the record files of other methods.")
    counts, confidence, right = (part.sum(axis=0) for part in _by_bin(record.answers))
    confident, accurate = (
        np.divide(100.0 * sums, counts, out=np.full(BINS, np.nan), where=counts > 0) for sums in (confidence, right)
    )
    return Reliability(counts.astype(np.int64), confident, accurate, calibration_error(record.answers))
