from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fsbench.results.statistics import (
    accuracies,
    holm,
    interval,
    interval_over_classes,
    paired_difference,
    paired_p_values,
)


@pytest.mark.parametrize("tasks", [2, 5, 30])
def test_intervals_cover_the_mean_as_often_as_they_say(tasks: int) -> None:
    rng = np.random.default_rng(tasks)
    found = [interval(values) for values in rng.normal(60, 9, size=(4000, tasks))]
    covered = np.mean([one.low < 60 < one.high for one in found])
    assert covered == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("tasks", [5, 30])
def test_intervals_cover_the_mean_of_counts_too(tasks: int) -> None:
    rng = np.random.default_rng(tasks)
    rates = rng.beta(12, 8, size=(4000, tasks))  # tasks are not equally hard
    found = [interval(100 * correct / 75) for correct in rng.binomial(75, rates)]
    assert np.mean([one.low < 60 < one.high for one in found]) == pytest.approx(0.95, abs=0.01)


def test_interval_is_the_usual_one() -> None:
    values = np.random.default_rng(0).normal(60, 9, size=5000)
    found = interval(values)
    assert found.mean == pytest.approx(values.mean())
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 4999) * stats.sem(values))
    assert found.half_width == pytest.approx(1.96 * stats.sem(values), rel=3e-4)
    assert (found.low, found.high) == (found.mean - found.half_width, found.mean + found.half_width)


def test_paired_interval_agrees_with_the_paired_test() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(60, 9, size=5000)
    b = a - rng.normal(1, 3, size=5000)
    found = paired_difference(a, b)
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)


@pytest.mark.parametrize("tasks", [2, 3, 10, 600, 10_000])
def test_intervals_and_p_values_are_those_of_scipy_stats_to_rounding(tasks: int) -> None:
    a, b = np.random.default_rng(tasks).normal([[60.0], [60.2]], 3, size=(2, tasks))
    assert interval(a).half_width == pytest.approx(stats.t.ppf(0.975, tasks - 1) * stats.sem(a), rel=1e-12)
    expected = max(stats.ttest_rel(a, b).pvalue, 2.0 ** (1 - tasks))
    assert paired_p_values(a, b) == pytest.approx(expected, rel=1e-12)


def test_one_task_has_no_interval() -> None:
    assert np.isnan(interval(np.array([50.0])).half_width)


def test_accuracies_are_shares_of_each_tasks_own_queries() -> None:
    np.testing.assert_allclose(accuracies(np.array([3, 5]), np.array([4, 10])), [75, 50])


def test_paired_p_values_are_scipys() -> None:
    rng = np.random.default_rng(2)
    a = rng.normal(60, 9, size=200)
    b = a - rng.normal(0.3, 3, size=200)
    assert paired_p_values(a, b) == pytest.approx(stats.ttest_rel(a, b).pvalue)
    several = np.stack([a, a[::-1], b])
    expected = [*(stats.ttest_rel(one, b).pvalue for one in several[:2]), 1.0]
    np.testing.assert_allclose(paired_p_values(several, b), expected)
    assert paired_p_values(a, a) == 1.0
    assert paired_p_values(a, a - 1) == pytest.approx(0.0, abs=1e-50)
    assert paired_p_values(a[:1], b[:1]) == 1.0


@pytest.mark.parametrize("queries", [75, 7])
def test_few_tasks_with_equal_differences_prove_little(queries: int) -> None:
    one, other = (accuracies(np.array(correct), np.full(3, queries)) for correct in ([5, 4, 6], [4, 3, 5]))
    assert paired_p_values(one, other) == paired_p_values(other, one) == 0.25  # as three heads in a row, or tails


def test_holm_against_its_definition() -> None:
    raw = [0.01, 0.04, 0.03, 0.005]
    assert holm(raw) == pytest.approx([0.03, 0.06, 0.06, 0.02])
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


def test_lists_of_unequal_length_are_paired_over_the_first_tasks() -> None:
    rng = np.random.default_rng(0)
    long, short = rng.normal(60, 9, size=(3, 50)), rng.normal(62, 9, size=20)
    assert paired_difference(short, long[0]) == paired_difference(short, long[0, :20])
    assert paired_difference(long[0], short) == paired_difference(long[0, :20], short)
    np.testing.assert_array_equal(paired_p_values(long, short), paired_p_values(long[:, :20], short))
    assert paired_p_values(short, long[1]) == pytest.approx(stats.ttest_rel(short, long[1, :20]).pvalue)
    classes = np.stack([rng.permutation(8)[:5] for _ in range(50)])
    assert interval_over_classes(short, classes) == interval_over_classes(short, classes[:20])
