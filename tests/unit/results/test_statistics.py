import numpy as np
import pytest
from scipy import stats

from fsbench.results.statistics import holm, interval, interval_over_classes, paired_p_values


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


def test_there_may_be_classes_of_more_tasks_than_values() -> None:
    rng = np.random.default_rng(0)
    short = rng.normal(62, 9, size=20)
    classes = np.stack([rng.permutation(8)[:5] for _ in range(50)])
    assert interval_over_classes(short, classes) == interval_over_classes(short, classes[:20])


def test_tasks_with_fewer_classes_have_no_class_more() -> None:
    rng = np.random.default_rng(1)
    values, classes = rng.normal(62, 9, size=40), np.stack([rng.permutation(8)[:4] for _ in range(40)])
    padded = np.pad(classes, ((0, 0), (0, 2)), constant_values=-1)
    assert interval_over_classes(values, padded) == interval_over_classes(values, classes)
