from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fsbench.results.statistics import (
    accuracies,
    holm,
    interval,
    paired_difference,
    paired_p_value,
    small_sample_interval,
)


def test_interval_is_the_usual_one() -> None:
    values = np.random.default_rng(0).normal(60, 9, size=5000)
    found = interval(values)
    assert found.mean == pytest.approx(values.mean())
    assert found.half_width == pytest.approx(1.96 * stats.sem(values))
    assert (found.low, found.high) == (found.mean - found.half_width, found.mean + found.half_width)


def test_paired_interval_agrees_with_the_paired_test() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(60, 9, size=5000)
    b = a - rng.normal(1, 3, size=5000)
    found = paired_difference(a, b)
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-3)


def test_one_task_has_no_interval() -> None:
    assert np.isnan(interval(np.array([50.0])).half_width)


def test_accuracies_are_shares_of_each_tasks_own_queries() -> None:
    np.testing.assert_allclose(accuracies(np.array([3, 5]), np.array([4, 10])), [75, 50])


def test_paired_p_value_is_scipys() -> None:
    rng = np.random.default_rng(2)
    a = rng.normal(60, 9, size=200)
    b = a - rng.normal(0.3, 3, size=200)
    assert paired_p_value(a, b) == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert paired_p_value(a, a) == 1.0
    assert paired_p_value(a, a - 1) == 0.0
    assert paired_p_value(a[:1], b[:1]) == 1.0


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


def test_small_samples_use_students_quantile() -> None:
    values = np.array([50.0, 60.0, 55.0])
    found = small_sample_interval(values)
    expected = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected)
