from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fsbench.evaluate.statistics import accuracies, interval, paired_difference


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
