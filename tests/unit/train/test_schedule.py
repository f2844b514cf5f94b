from __future__ import annotations

import math
from itertools import pairwise

import pytest

from fsbench.train.schedule import learning_rate


def test_it_rises_to_the_peak_and_falls_towards_zero() -> None:
    rates = [learning_rate(step, 200, 0.4, 0.05) for step in range(200)]
    assert rates[:10] == pytest.approx([0.04 * step for step in range(1, 11)])
    assert max(rates) == rates[9] == 0.4
    assert all(before > after for before, after in pairwise(rates[9:]))
    assert 0 < rates[-1] < 1e-3 * 0.4


def test_the_descent_is_half_a_cosine() -> None:
    """One warm-up step and nine more: ten equal parts of the half-wave."""
    rates = [learning_rate(step, 10, 1.0, 0.0) for step in range(10)]
    assert rates == pytest.approx([math.cos(math.pi * step / 20) ** 2 for step in range(10)])


def test_a_single_step_has_the_peak_rate() -> None:
    assert learning_rate(0, 1, 0.1, 0.05) == 0.1
