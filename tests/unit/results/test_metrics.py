"""Metrics against plain loops over tasks and queries."""

from __future__ import annotations

import numpy as np
import pytest

from fsbench.errors import FsbenchError
from fsbench.results.metrics import confusion, reliability
from fsbench.results.record import Answers, Record
from tests.records import make_record


def drawn(tasks: int = 40, ways: int = 4, queries: int = 12, *, classes: int = 6) -> Record:
    """A record of random answers; a third of the tasks have fewer queries, and some lack a class."""
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(ways, size=(2, tasks, queries))
    absent = (np.arange(tasks)[:, None] % 3 == 0) & (rng.random((tasks, queries)) < 0.5)
    absent[:, 0] = False
    labels[absent] = predicted[absent] = -1
    labels[1] = 2
    confidence = np.where(absent, np.nan, rng.uniform(1 / ways, 1, size=labels.shape)).astype(np.float16)
    numbers = np.argsort(rng.random((tasks, classes)), axis=1)[:, :ways]
    answers = Answers(predicted.astype(np.int8), labels.astype(np.int8), confidence, numbers.astype(np.int8))
    names = tuple(f"class{number}" for number in range(classes))
    return make_record(ways=ways, queries=queries, class_names=names).update(answers)


def queries_of(record: Record) -> list[tuple[int, int, int, float]]:
    """Task, true label, answer and confidence of every query."""
    return [
        (task, int(label), int(record.predicted[task, query]), float(record.confidence[task, query]))
        for task, labels in enumerate(record.labels)
        for query, label in enumerate(labels)
        if label >= 0
    ]


def test_accuracy_and_balanced_accuracy_are_those_of_loops() -> None:
    record = drawn()
    right: dict[tuple[int, int], list[bool]] = {}
    for task, label, answer, _ in queries_of(record):
        right.setdefault((task, label), []).append(label == answer)
    for task in range(record.tasks):
        recalls = [each for (own, _), each in right.items() if own == task]
        plain = 100 * np.mean([one for each in recalls for one in each])
        balanced = 100 * np.mean([np.mean(each) for each in recalls])
        assert record.metric("accuracy")[task] == record.per_task[task] == pytest.approx(plain)
        assert record.metric("balanced-accuracy")[task] == pytest.approx(balanced)
    assert record.accuracy == pytest.approx(record.per_task.mean())
    with pytest.raises(FsbenchError, match="Did you mean 'accuracy'"):
        record.metric("acuracy")


def test_confusion_is_that_of_loops_over_tasks_that_have_both_classes() -> None:
    record = drawn(classes=9)
    count = len(record.class_names)
    answered, together = np.zeros((count, count)), np.zeros((count, count))
    for task, label, answer, _ in queries_of(record):
        own = record.classes[task, label]
        answered[own, record.classes[task, answer]] += 1
        for other in record.classes[task]:
            together[own, other] += 1
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(confusion(record), 100 * answered / together)
    alone = drawn(tasks=2, classes=9)
    assert np.isnan(confusion(alone)).any()


def test_reliability_is_that_of_loops_over_bins() -> None:
    record = drawn()
    queries, error = queries_of(record), 0.0
    found = reliability(record)
    for number in range(15):
        inside = [(sure, label == answer) for _, label, answer, sure in queries if number < 15 * sure <= number + 1]
        assert found.counts[number] == len(inside)
        sure, right = np.mean(inside, axis=0) if inside else (np.nan, np.nan)
        np.testing.assert_allclose([found.confidence[number], found.accuracy[number]], [100 * sure, 100 * right])
        error += 0 if np.isnan(sure) else len(inside) / len(queries) * abs(100 * (sure - right))
    assert found.error == pytest.approx(error)


def test_ends_of_the_bins_and_what_is_no_probability() -> None:
    record = make_record(tasks=2)
    for sure, number in ((0.0, 0), (0.75, 11), (1.0, 14)):
        record.confidence[:] = sure
        assert reliability(record).counts[number] == 150
    for value in (1.2, -0.1, np.nan, np.inf):
        record.confidence[0, 0] = value
        with pytest.raises(FsbenchError, match="ncm do not sum to one"):
            reliability(record)
