"""Metrics and statistics against plain loops, scikit-learn and scipy."""

from dataclasses import replace

import numpy as np
import pytest
import sklearn.metrics as sklearn  # type: ignore[import-untyped]
from scipy import stats

from fsbench.errors import FsbenchError
from fsbench.evaluation.options import METRIC_NAMES
from fsbench.results.metrics import METRICS, calibration_error, calibration_pseudo_values, confusion, reliability
from fsbench.results.record import Answers, Record
from fsbench.results.statistics import holm, interval, interval_over_classes, paired_p_values
from tests.records import make_record

ARRAYS = ("predicted", "labels", "confidence", "classes", "outlier")


def drawn(tasks: int = 40, ways: int = 4, queries: int = 12, *, classes: int = 6) -> Record:
    """A record of random answers; a third of the tasks have fewer queries, and some lack a class."""
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(ways, size=(2, tasks, queries))
    absent = (np.arange(tasks)[:, None] % 3 == 0) & (rng.random((tasks, queries)) < 0.5)
    absent[tasks // 2, 1:] = True  # a single query
    absent[:, 0] = False
    labels[absent] = predicted[absent] = -1
    labels[1] = 2
    confidence = np.where(absent, np.nan, rng.uniform(1 / ways, 1, size=labels.shape)).astype(np.float16)
    numbers = np.argsort(rng.random((tasks, classes)), axis=1)[:, :ways]
    answers = Answers(predicted.astype(np.int8), labels.astype(np.int8), confidence, numbers.astype(np.int8))
    names = tuple(f"class{number}" for number in range(classes))
    return make_record(ways=ways, queries=queries, class_names=names).model_copy(update={"answers": answers})


def queries_of(record: Record) -> list[tuple[int, int, int, float]]:
    """Task, true label, answer and confidence of every query."""
    return [
        (task, int(label), int(record.answers.predicted[task, query]), float(record.answers.confidence[task, query]))
        for task, labels in enumerate(record.answers.labels)
        for query, label in enumerate(labels)
        if label >= 0
    ]


def test_metrics_of_a_task_are_those_of_loops() -> None:
    assert tuple(METRICS) == METRIC_NAMES  # each is an option
    record = drawn()
    for task in range(record.tasks):
        mine = [(label, answer) for own, label, answer, _ in queries_of(record) if own == task]
        recalls, scores = [], []
        for one in {number for pair in mine for number in pair}:  # among the queries or the answers
            right = sum(label == answer == one for label, answer in mine)
            of_class = sum(label == one for label, _ in mine)
            recalls += [right / of_class] if of_class else []
            scores.append(2 * right / sum((label == one) + (answer == one) for label, answer in mine))
        plain = 100 * np.mean([label == answer for label, answer in mine])
        assert record.metric("accuracy")[task] == record.per_task[task] == pytest.approx(plain)
        assert record.metric("balanced-accuracy")[task] == pytest.approx(100 * np.mean(recalls))
        assert record.metric("macro-f1")[task] == pytest.approx(100 * np.mean(scores))
    assert record.accuracy == pytest.approx(record.per_task.mean())
    with pytest.raises(FsbenchError, match="Did you mean 'accuracy'"):
        record.metric("acuracy")


def test_the_calibration_error_has_the_jackknife_over_tasks() -> None:
    record = drawn()
    values, tasks = record.metric("ece"), record.tasks
    assert record.interval("ece").mean == pytest.approx(reliability(record).error)
    assert record.interval("ece").half_width == pytest.approx(interval(values).half_width)
    for task in (0, 1, 17):
        rest = Answers(*(np.delete(getattr(record.answers, name), task, axis=0) for name in ARRAYS))
        without = reliability(record.model_copy(update={"answers": rest})).error
        assert values[task] == pytest.approx(tasks * reliability(record).error - (tasks - 1) * without)
    assert record.first(1).metric("ece") == pytest.approx([reliability(record.first(1)).error])


def test_the_interval_of_the_calibration_error_covers_it() -> None:
    """Confidences that are too high, by an amount that differs from task to task."""

    def answers(rng: np.random.Generator, tasks: int) -> Answers:
        sure = rng.beta(3, 1.5, (tasks, 30))
        logits = 0.6 * np.log(sure / (1 - sure)) + rng.normal(0, 0.4, (tasks, 1))
        wrong = (rng.random(sure.shape) > 1 / (1 + np.exp(-logits))).astype(np.int8)
        return Answers(wrong, np.zeros_like(wrong), sure.astype(np.float16), np.zeros((tasks, 2), np.int8))

    rng = np.random.default_rng(0)
    truth = calibration_error(answers(rng, 40_000))
    drawings = (answers(rng, 150) for _ in range(1000))
    errors = ((abs(calibration_error(one) - truth), interval(calibration_pseudo_values(one))) for one in drawings)
    assert 0.93 <= np.mean([error <= found.half_width for error, found in errors]) <= 0.97


@pytest.mark.parametrize("name", ["accuracy", "macro-f1", "ece"])
def test_few_tasks_have_the_jackknife_over_classes(name: str) -> None:
    record = drawn().first(8)
    classes = np.take_along_axis(record.answers.classes, np.maximum(record.answers.labels, 0), axis=1)
    expected = []
    for one in range(6):
        left = np.where((classes == one) & (record.answers.labels >= 0), -1, record.answers.labels)
        there = (left >= 0).any(axis=1)
        rest = replace(record.answers, labels=left)[there]
        whole = record.model_copy(update={"answers": rest}).interval(name).mean
        expected.append(6 * record.interval(name).mean - 5 * whole)
    np.testing.assert_allclose(record.samples(name)[0], expected)
    wider = max(interval(np.array(expected)).half_width, interval(record.metric(name)).half_width)
    assert record.interval(name).half_width == pytest.approx(wider)


def test_outlier_scores_are_judged_as_scikit_learn_does() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(-2, 4, size=(30, 25)).astype(np.int8)  # some are of unknown classes, some are no queries
    scores = rng.integers(0, 9, size=labels.shape).astype(np.float32) / 8 + (labels == -2)  # with ties
    labels[3] = np.maximum(labels[3], 0)  # a task without unknown queries
    answers = Answers(labels, labels, scores.astype(np.float16), np.zeros((30, 4), np.int8), scores)
    for name, reference in (("auroc", sklearn.roc_auc_score), ("aupr", sklearn.average_precision_score)):
        values = METRICS[name].per_task(answers)
        there = [task for task in range(30) if task != 3]
        for task in there:
            asked = labels[task] != -1
            expected = 100 * reference(labels[task][asked] == -2, scores[task][asked])
            if name == "auroc" or len({*scores[task][asked]}) == asked.sum():
                assert values[task] == pytest.approx(expected)
        assert values[3] == pytest.approx(values[there].mean())


def test_confusion_is_that_of_a_loop_and_rows_add_up_to_100() -> None:
    record = drawn(classes=9)
    answered = np.zeros((len(record.class_names),) * 2)
    for task, label, answer, _ in queries_of(record):
        answered[record.answers.classes[task, label], record.answers.classes[task, answer]] += 1
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(confusion(record), 100 * answered / answered.sum(axis=1, keepdims=True))
    sums = confusion(drawn(tasks=2, classes=30)).sum(axis=1)
    assert np.isnan(sums).any()  # a class without queries
    np.testing.assert_allclose(sums[np.isfinite(sums)], 100)


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
        record.answers.confidence[:] = sure
        assert reliability(record).counts[number] == 150
    for value in (1.2, -0.1, np.nan, np.inf):
        record.answers.confidence[0, 0] = value
        with pytest.raises(FsbenchError, match="ncm do not sum to one"):
            reliability(record)


@pytest.mark.parametrize("tasks", [2, 3, 10, 600, 10_000])
def test_intervals_and_p_values_are_those_of_scipy_stats_to_rounding(tasks: int) -> None:
    a, b = np.random.default_rng(tasks).normal([[60.0], [60.2]], 3, size=(2, tasks))
    assert interval(a).half_width == pytest.approx(stats.t.ppf(0.975, tasks - 1) * stats.sem(a), rel=1e-12)
    expected = max(stats.ttest_rel(a, b).pvalue, 2.0 ** (1 - tasks))
    assert paired_p_values(a, b) == pytest.approx(expected, rel=1e-12)


def test_p_values_of_several_lists_of_equal_ones_and_of_few_tasks() -> None:
    rng = np.random.default_rng(2)
    a = rng.normal(60, 9, size=200)
    b = a - rng.normal(0.3, 3, size=200)
    several = np.stack([a, a[::-1], b])
    expected = [*(stats.ttest_rel(one, b).pvalue for one in several[:2]), 1.0]
    np.testing.assert_allclose(paired_p_values(several, b), expected)
    assert paired_p_values(a, a - 1) == pytest.approx(0.0, abs=1e-50)
    assert paired_p_values(a[:1], b[:1]) == 1.0
    assert np.isnan(interval(a[:1]).half_width)
    one, other = (100.0 * np.array(correct) / 7 for correct in ([5, 4, 6], [4, 3, 5]))
    assert paired_p_values(one, other) == paired_p_values(other, one) == 0.25  # as three heads in a row, or tails


def test_holm_against_its_definition() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    rng = np.random.default_rng(0)
    for _ in range(20):
        p = rng.random(7) ** 3
        corrected = np.array(holm(p.tolist()))
        for i in range(7):  # rejected at level a by the step-down procedure exactly if the corrected value is below a
            order = np.argsort(p)
            for level in (0.01, 0.05, 0.2):
                rejected = set()
                for rank, index in enumerate(order):
                    if p[index] >= level / (7 - rank):
                        break
                    rejected.add(index)
                assert (corrected[i] < level) == (i in rejected)


def test_tasks_with_fewer_classes_have_no_class_more() -> None:
    rng = np.random.default_rng(1)
    values, classes = rng.normal(62, 9, size=40), np.stack([rng.permutation(8)[:4] for _ in range(40)])
    padded = np.pad(classes, ((0, 0), (0, 2)), constant_values=-1)
    assert interval_over_classes(values, padded) == interval_over_classes(values, classes)
