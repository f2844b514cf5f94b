from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fsbench.train import images as draws

ROWS = np.arange(4000)


def test_every_epoch_has_its_own_order_of_all_images() -> None:
    first, second = (draws.order(3, epoch, 500) for epoch in (0, 1))
    for order in (first, second):
        np.testing.assert_array_equal(np.sort(order), np.arange(500))
    assert (first != second).mean() > 0.9
    assert (first != draws.order(4, 0, 500)).mean() > 0.9
    np.testing.assert_array_equal(first, draws.order(3, 0, 500))


def test_what_happens_to_an_image_does_not_depend_on_its_batch() -> None:
    some = np.array([17, 3, 999])
    np.testing.assert_array_equal(draws.shifts(0, 5, some, 9), draws.shifts(0, 5, ROWS, 9)[some])
    np.testing.assert_array_equal(draws.flips(0, 5, some), draws.flips(0, 5, ROWS)[some])
    np.testing.assert_array_equal(draws.turns(0, 5, some), draws.turns(0, 5, ROWS)[some])


def test_all_choices_are_equally_frequent_and_change_with_the_epoch() -> None:
    for epoch in (0, 7):
        counts = [
            np.bincount(draws.turns(1, epoch, ROWS), minlength=4),
            np.bincount(draws.flips(1, epoch, ROWS).astype(int), minlength=2),
            *(np.bincount(shift, minlength=9) for shift in draws.shifts(1, epoch, ROWS, 9).T),
        ]
        for found in counts:
            assert found.sum() == len(ROWS)
            assert stats.chisquare(found).pvalue > 1e-3
    assert (draws.turns(1, 0, ROWS) != draws.turns(1, 1, ROWS)).mean() == pytest.approx(0.75, abs=0.05)
    assert np.corrcoef(draws.flips(1, 0, ROWS), draws.turns(1, 0, ROWS) % 2)[0, 1] == pytest.approx(0, abs=0.06)


def test_crops_lie_inside_the_image_with_the_area_and_shape_asked_for() -> None:
    aspects = np.where(ROWS % 2, 1.0, 2.0)
    centres, sizes = draws.crops(1, 0, ROWS, aspects, 0.25)
    assert (centres - sizes / 2 >= -1e-12).all()
    assert (centres + sizes / 2 <= 1 + 1e-12).all()
    area, ratio = sizes.prod(axis=1), sizes[:, 0] / sizes[:, 1] * aspects
    whole = (sizes < 1).all(axis=1)  # nothing cut off
    assert whole.mean() > 0.4
    assert (area[whole] >= 0.25).all()
    assert (ratio[whole] + 1e-9 >= 0.75).all()
    assert (ratio[whole] - 1e-9 <= 4 / 3).all()
    some = np.array([17, 3])
    np.testing.assert_array_equal(draws.crops(1, 0, some, aspects[some], 0.25)[0], centres[some])


def test_mixing_follows_beta_and_permutes_the_batch() -> None:
    drawn = [draws.mixing(0, 2, step, stages=4, images=8) for step in range(1500)]
    assert stats.kstest([mixing.share for mixing in drawn], stats.beta(2, 2).cdf).pvalue > 1e-3
    assert stats.chisquare(np.bincount([mixing.position for mixing in drawn], minlength=5)).pvalue > 1e-3
    for mixing in drawn[:50]:
        np.testing.assert_array_equal(np.sort(mixing.partners), np.arange(8))
    assert len({tuple(mixing.partners) for mixing in drawn[:50]}) == 50
    again = draws.mixing(0, 2, 7, stages=4, images=8)
    assert (again.position, again.share) == (drawn[7].position, drawn[7].share)
    assert draws.mixing(0, 3, 7, stages=4, images=8).share != again.share
