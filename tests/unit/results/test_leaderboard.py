import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsbench.results.collect import collect
from fsbench.results.leaderboard import leaderboard, tie_letters
from fsbench.results.statistics import Interval, interval
from tests.records import four_settings, make_record


@given(st.integers(2, 7), st.randoms())
@settings(max_examples=80, deadline=None)
def test_two_methods_share_a_letter_if_and_only_if_they_do_not_differ(count: int, chance: random.Random) -> None:
    labels = [f"m{number}" for number in range(count)]
    pairs = [frozenset(pair) for pair in itertools.combinations(labels, 2)]
    differ = [pair for pair in pairs if chance.random() < 0.5]
    letters = tie_letters(labels, differ)
    for pair in pairs:
        one, other = pair
        assert bool({*letters[one]} & {*letters[other]}) == (pair not in differ)
    assert "a" in letters["m0"]


RECORDS = [
    record
    for name, right in (("ncm", 0.5), ("pt-map", 0.8), ("soft-kmeans", 0.65))
    for record in four_settings(name, right)
]


def test_averages_and_ranks_are_of_methods_that_ran_everywhere() -> None:
    partly = make_record("tim-gd", 0.99)
    board = leaderboard(collect([*RECORDS, partly])[0])
    assert [row.entry.label for row in board.rows] == ["pt-map", "soft-kmeans", "ncm", "tim-gd"]
    assert [row.mean_rank for row in board.rows] == [1.0, 2.0, 3.0, None]
    assert board.rows[2].average == pytest.approx(np.mean([record.accuracy for record in RECORDS[:4]]))
    place = next(number for number, one in enumerate(board.places) if one.column == partly.run.protocol)
    first, last = (board.rows[row].standings for row in (0, 3))
    beside, best = first[place], last[place]
    assert beside
    assert best
    expected = interval(beside.cell.record.per_task - partly.per_task)
    assert beside.to_best == Interval(pytest.approx(expected.mean), expected.half_width)  # type: ignore[arg-type]
    assert (best.to_best, best.ties) == (None, "a")
    assert [standing for standing in last if standing] == [best]


def test_equals_share_their_rank() -> None:
    twins = [
        one.model_copy(
            update={
                "run": one.run.model_copy(update={"method": "twin"}),
                "method": one.method.model_copy(update={"label": "twin"}),
            }
        )
        for one in RECORDS[:4]
    ]
    ranks = {row.entry.label: row.mean_rank for row in leaderboard(collect([*RECORDS, *twins])[0]).rows}
    assert ranks == {"pt-map": 1.0, "soft-kmeans": 2.0, "ncm": 3.5, "twin": 3.5}
