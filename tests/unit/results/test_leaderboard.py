import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsbench.results.collect import collect
from fsbench.results.leaderboard import best_first, leaderboard, tie_letters
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


EVERYWHERE = [
    record.first(tasks)
    for name, right in (("ncm", 0.5), ("pt-map", 0.8), ("soft-kmeans", 0.65), ("tim-gd", 0.6), ("paddle", 0.7))
    for features in "ef"
    for record in four_settings(name, right, features=features * 64, dataset=f"set{features}")
    for tasks in (40, 30)
]


@given(st.sets(st.integers(0, len(EVERYWHERE) - 1), min_size=1))
@settings(max_examples=60, deadline=None)
def test_no_ranking_of_any_records_compares_different_cells(subset: set[int]) -> None:
    """Whatever was run: averages are over the same tasks of the same places, and what other methods lack is named."""
    records = {EVERYWHERE[number].run.digest: EVERYWHERE[number] for number in sorted(subset)}
    board = leaderboard(collect(records.values())[0])
    tasks_of = [place.group.tasks(place.column) for place in board.ranked]
    averages = []
    for row in board.rows:
        means, lacking = [], []
        for place, tasks in zip(board.ranked, tasks_of, strict=True):
            cell = place.group.cells.get((row.title, place.column))
            record = records[cell.record.run.digest] if cell else None
            if record and record.tasks >= tasks:
                means.append(record.first(tasks).accuracy)
            else:
                lacking.append(place)
        assert list(row.missing) == lacking
        assert (row.average is None) == (row.mean_rank is None) == bool(lacking)
        averages += [] if lacking else [np.mean(means)]
    assert [row.average for row in board.rows][: len(averages)] == pytest.approx(sorted(averages, reverse=True))
    alone = len({one.run.tasks_digest for one in records.values()}) == len(records)
    assert len(averages) > (0 if alone else 1)  # at least two, where two ran on the same tasks
    for place in board.places:  # none is the best with fewer tasks than others, unless it is so over these
        cells = [cell for (_, at), cell in place.group.cells.items() if at == place.column]
        (best,) = [cell.record for cell in cells if cell.best]
        if longer := [cell.record for cell in cells if cell.record.tasks > best.tasks]:
            assert best.accuracy > max(longer, key=lambda one: one.accuracy).first(best.tasks).accuracy


def test_averages_and_ranks_are_of_methods_that_ran_everywhere() -> None:
    partly = make_record("tim-gd", 0.99)
    board = leaderboard(collect([*RECORDS, partly])[0])
    assert [row.entry.label for row in board.rows] == ["pt-map", "soft-kmeans", "ncm", "tim-gd"]
    assert [row.mean_rank for row in board.rows] == [1.0, 2.0, 3.0, None]
    assert len(board.rows[-1].missing) == 3
    place = next(number for number, one in enumerate(board.places) if one.column == partly.run.protocol)
    first, last = (board.rows[row].standings for row in (0, 3))
    beside, best = first[place], last[place]
    assert beside
    assert best
    expected = interval(beside.cell.record.per_task - partly.per_task)
    assert beside.to_best == Interval(pytest.approx(expected.mean), expected.half_width)  # type: ignore[arg-type]
    assert (best.to_best, best.ties) == (None, "a")
    assert [standing for standing in last if standing] == [best]


def test_methods_with_the_same_answers_share_a_row() -> None:
    changes = {"method": "twin"}
    twins = [
        one.model_copy(
            update={
                "run": one.run.model_copy(update=changes), "method": one.method.model_copy(update={"label": "twin"})
            }
        )
        for one in RECORDS[:4]
    ]  # fmt: skip
    table = collect([*RECORDS, *twins])[0]
    ranks = {row.title: row.mean_rank for row in leaderboard(table).rows}
    assert ranks == {"pt-map": 1.0, "soft-kmeans": 2.0, "ncm = twin": 3.0}
    assert [entry.label for entry in best_first(table).entries] == ["pt-map", "soft-kmeans", "ncm", "twin"]
    assert {*collect([*RECORDS, *twins[:3]])[0].rows} == {"ncm", "twin", "pt-map", "soft-kmeans"}
    assert "twin = ncm" in collect([*RECORDS, *twins], "twin")[0].rows


def test_equal_means_share_their_rank() -> None:
    right = {"ncm": [60, 50], "pt-map": [50, 60], "tim-gd": [70, 70]}
    records = [make_record(name, correct=correct, tasks=2) for name, correct in right.items()]
    assert [row.mean_rank for row in leaderboard(collect(records)[0]).rows] == [1.0, 2.5, 2.5]
