"""Tables of methods: paired tests, families of them, any metric, and what a table says of itself."""

import itertools

import numpy as np
import pytest
from scipy import stats

from fsbench.errors import FsbenchError
from fsbench.results.collect import collect
from fsbench.results.comparison import Comparison, Runs, compare_records
from fsbench.results.leaderboard import best_first, leaderboard
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


def test_one_best_per_column_and_ties_are_never_the_best(table: Comparison) -> None:
    for column in table.columns:
        cells = [table.groups[0].cells[name, column] for name in NAMES]
        assert [cell.best for cell in cells] == [cell.value.mean == max(c.value.mean for c in cells) for cell in cells]
        assert not any(cell.best and cell.tied for cell in cells)
        assert not cells[0].tied
        assert cells[0].value.mean == cells[0].record.accuracy


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
    assert table.tasks == 35
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
