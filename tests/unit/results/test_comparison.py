"""Tables of methods and their rankings: paired tests, families of them, any metric, and what a table says of itself."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fsbench.errors import FsbenchError
from fsbench.report.answer import sentences
from fsbench.results.collect import collect
from fsbench.results.comparison import Comparison, Runs, compare_records
from fsbench.results.leaderboard import best_first, leaderboard, tie_letters
from fsbench.results.metrics import METRICS, Metric, metric_of
from fsbench.results.statistics import Interval, holm, interval, interval_over_classes, paired_p_values
from fsbench.tasks.protocol import TaskProtocol
from tests.records import TUNED, four_settings, make_record
from tests.statistics.simulate import COLUMNS, simulated

ONE = TaskProtocol()
NAMES = {"ncm": 0.6, "soft-kmeans": 0.7, "bavardage": 0.72}


@pytest.fixture(scope="module")
def table() -> Comparison:
    (table,) = collect([record for name, right in NAMES.items() for record in four_settings(name, right)])
    return table


def test_differences_are_paired_and_tested(table: Comparison) -> None:
    for column in COLUMNS:
        baseline, other = (table.groups[0].cells[name, column] for name in ("soft-kmeans", "ncm"))
        assert (baseline.difference, baseline.p_value) == (None, None)
        assert other.difference
        gaps = other.record.per_task - baseline.record.per_task
        assert other.difference.mean == pytest.approx(gaps.mean())
        assert other.difference.half_width == pytest.approx(stats.t.ppf(0.975, 39) * stats.sem(gaps))
        assert (other.p_value or 1) < 1e-6


def test_the_best_of_methods_that_share_a_row_is_the_one_that_the_row_shows() -> None:
    """Even if a twin that comes first is right in some answers more, so few that they count as rounding."""
    rights = {"simpleshot": 500, "ncm": 500, "pt-map": 450}
    records = [make_record(name, correct=[right] * 400, queries=600, tasks=400) for name, right in rights.items()]
    answers = records[0].answers
    answers.predicted[:20, -1] = answers.labels[:20, -1]
    (table,) = collect(records, baseline="ncm")
    assert [*table.rows] == ["ncm = simpleshot", "pt-map"]
    cells = {label: (cell.best, cell.tied) for (label, _), cell in table.groups[0].cells.items()}
    assert cells == {"ncm": (True, False), "simpleshot": (False, True), "pt-map": (False, False)}


@pytest.mark.parametrize("tasks", [1, 10])
def test_few_tasks_of_many_classes_tell_methods_apart(tasks: int) -> None:
    """Ten tasks alone have p-values of at least 2⁻⁹, too much for the many pairs of a table; the classes decide."""
    rights = {f"method{number:02d}": 0.5 for number in range(12)} | {"ncm": 0.2}
    records = [make_record(name, right, ways=20, queries=600, tasks=tasks) for name, right in rights.items()]
    (table,) = collect(records)
    cell = table.groups[0].cells["ncm", records[0].run.protocol]
    assert not cell.tied


def test_a_table_is_for_one_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [make_record(name, right) for name, right in NAMES.items()]
    records[0].answers.predicted[:] = np.where(records[0].answers.labels > 0, 0, 1)  # every answer is wrong
    error = Metric("error", "error", lambda answers: 100 - metric_of("accuracy").per_task(answers), False)
    monkeypatch.setitem(METRICS, "error", error)  # all that a new one needs
    for metric in (metric_of("balanced-accuracy"), error):
        (table,) = collect(records, metrics=[metric])
        cells = table.groups[0].cells
        for label, record in zip(NAMES, records, strict=True):
            assert cells[label, ONE].value.mean == pytest.approx(metric.per_task(record.answers).mean())
        difference = cells["ncm", ONE].difference
        assert difference == interval(np.subtract(*(metric.per_task(record.answers) for record in records[:2])))
        assert leaderboard(table).rows[-1].entry.label == "ncm"  # with the largest error
        ordered = [entry.label for entry in best_first(table).entries]
        assert ordered[-1] == "ncm"
        assert cells[ordered[0], ONE].best


def test_runs_of_unequal_length_are_brought_to_the_tasks_of_most() -> None:
    long, short = make_record("ncm", tasks=60), make_record("soft-kmeans", tasks=35)
    (table,) = collect([long, short])
    cell = table.groups[0].cells["ncm", ONE]
    expected = interval(long.per_task[:35] - short.per_task)
    assert cell.difference == Interval(pytest.approx(expected.mean), expected.half_width)  # type: ignore[arg-type]
    assert (table.tasks, table.cut) == (35, ("ncm",))
    assert "cut to the first tasks, which most methods have: ncm" in table.warnings()
    assert cell.value.mean == pytest.approx(long.per_task[:35].mean())
    (table,) = collect([long, short.model_copy(), make_record("pt-map", 0.6, tasks=60)])
    assert table.groups[0].counted_tasks == "60 tasks"
    assert {entry.label: entry.fewer for entry in table.entries} == {"ncm": "", "pt-map": "", "soft-kmeans": "35 tasks"}
    assert not any(table.groups[0].cells["soft-kmeans", ONE].__dict__[mark] for mark in ("best", "tied"))
    assert "|tasks:35-60|" in table.signature()


def test_intervals_for_new_classes_come_with_paired_differences() -> None:
    records = {name: make_record(name, right) for name, right in NAMES.items()}
    runs: Runs = {(0, name, ONE): record for name, record in records.items()}
    table = compare_records(runs, [*NAMES], [ONE], "soft-kmeans", over_classes=True)
    cells = {name: table.groups[0].cells[name, ONE] for name in NAMES}
    classes = records["ncm"].answers.classes.astype(np.int64)
    gap = records["ncm"].per_task - records["soft-kmeans"].per_task
    assert cells["ncm"].over_classes == interval_over_classes(records["ncm"].per_task, classes)
    assert cells["ncm"].over_classes_difference == interval_over_classes(gap, classes)
    assert cells["soft-kmeans"].over_classes_difference is None


def test_what_a_table_says_of_its_methods(table: Comparison) -> None:
    assert len(table.below_baseline("ncm")) == 4
    assert table.below_baseline("ncm", by=50.0) == table.below_baseline("bavardage", by=2.0) == []
    assert any(line.startswith("glyphs rn12, unbalanced α=2 1-shot: -") for line in table.below_baseline("ncm"))
    with pytest.raises(FsbenchError, match="soft-kmeans is not compared with soft-kmeans"):
        table.below_baseline("soft-kmeans")
    (other,) = collect([make_record("pt-map", tuning=TUNED), make_record("ncm")], "ncm")
    assert {entry.label: entry.tuned for entry in other.entries} == {"pt-map": True, "ncm": False}


def test_the_best_is_tested_within_all_pairs_and_the_baseline_within_its_own() -> None:
    cells = simulated(5, np.random.default_rng(0), tasks=30, lead=0.25).groups[0].cells
    keys = [(label, column) for column in COLUMNS for label in (f"m{number}" for number in range(5))]
    pairs = [(one, two) for one, two in itertools.combinations(keys, 2) if one[1] == two[1]]
    raw = {pair: float(paired_p_values(*(cells[key].record.per_task for key in pair))) for pair in pairs}
    every = {frozenset(pair): p for pair, p in zip(raw, holm([*raw.values()]), strict=True)}
    of_baseline = [pair for pair in pairs if pair[0][0] == "m0"]
    own = dict(zip(of_baseline, holm([raw[pair] for pair in of_baseline]), strict=True))
    for (_, key), p_value in own.items():
        assert cells[key].p_value == pytest.approx(p_value)
    for label, column in keys:
        best = next(name for name, at in keys if at == column and cells[name, at].best)
        tied = label != best and every[frozenset(((label, column), (best, column)))] >= 0.05
        assert cells[label, column].tied == tied
    assert {cells[key].tied for key in keys} == {True, False}


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


RIGHT = {"ncm": 0.5, "pt-map": 0.8, "soft-kmeans": 0.65}
RECORDS = [record for name, right in RIGHT.items() for record in four_settings(name, right)]
EVERYWHERE = [
    record.first(tasks)
    for name, right in (RIGHT | {"tim-gd": 0.6, "paddle": 0.7}).items()
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


def test_a_method_that_ran_in_one_setting_has_no_rank_and_is_the_best_there() -> None:
    partly = make_record("tim-gd", 0.99)
    board = leaderboard(collect([*RECORDS, partly])[0])
    assert [row.mean_rank for row in board.rows] == [1.0, 2.0, 3.0, None]
    place = next(number for number, one in enumerate(board.places) if one.column == partly.run.protocol)
    beside, best = (board.rows[row].standings[place] for row in (0, 3))
    assert beside
    assert best
    expected = interval(beside.cell.record.per_task - partly.per_task)
    assert beside.to_best == Interval(pytest.approx(expected.mean), expected.half_width)  # type: ignore[arg-type]
    assert (best.to_best, best.ties) == (None, "a")


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
    assert sentences(collect([one for one in (*RECORDS, *twins) if one.method.label in ("ncm", "twin")])[0]) == []


def test_equal_means_share_their_rank() -> None:
    right = {"ncm": [60, 50], "pt-map": [50, 60], "tim-gd": [70, 70]}
    records = [make_record(name, correct=correct, tasks=2) for name, correct in right.items()]
    assert [row.mean_rank for row in leaderboard(collect(records)[0]).rows] == [1.0, 2.5, 2.5]
