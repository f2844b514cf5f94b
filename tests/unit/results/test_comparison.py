from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fsbench.results.comparison import Column, Comparison, Entry, compare_records
from tests.records import make_record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fsbench.results.comparison import Runs
    from fsbench.results.record import RunRecord

COLUMNS = [Column(False, 2.0, 1), Column(False, 2.0, 5), Column(True, None, 1), Column(True, None, 5)]


def with_counts(record: RunRecord, correct: NDArray[np.int64]) -> RunRecord:
    return dataclasses.replace(record, correct=correct.tolist(), accuracy=float(correct.mean()) / 0.75)


def simulated(methods: int, rng: np.random.Generator, *, tasks: int = 40, lead: float = 0.0) -> Comparison:
    """Methods of the same accuracy on the same tasks, which are hard or easy for all; the last one may lead."""
    runs: Runs = {}
    labels = [f"m{number}" for number in range(methods)]
    template = make_record(tasks=tasks)
    for column in COLUMNS:
        logits = rng.normal(0.8, 0.8, size=(1, tasks)) + rng.normal(0, 0.35, size=(methods, tasks))
        logits[-1] += lead
        for label, correct in zip(labels, rng.binomial(75, 1 / (1 + np.exp(-logits))), strict=True):
            runs[0, label, column] = with_counts(template, correct)
    entries = [Entry(label, label, "no prior") for label in labels]
    return compare_records(runs, entries, COLUMNS, "m0", with_published=False)


@pytest.mark.parametrize(("methods", "tables"), [(3, 500), (8, 250), (16, 150)])
def test_of_equal_methods_few_are_called_worse_than_the_best(methods: int, tables: int) -> None:
    rng = np.random.default_rng(methods)
    alarms = 0
    for _ in range(tables):
        cells = simulated(methods, rng).groups[0].cells.values()
        alarms += any(not cell.best and not cell.tied for cell in cells)
    assert alarms / tables < 0.05


def test_of_equal_methods_few_are_called_different_from_the_baseline() -> None:
    rng = np.random.default_rng(1)
    tables = [simulated(6, rng).groups[0].cells.values() for _ in range(200)]
    alarms = sum(any(cell.p_value is not None and cell.p_value < 0.05 for cell in cells) for cells in tables)
    assert alarms / len(tables) < 0.05


@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_a_handful_of_tasks_raises_no_alarm(tasks: int) -> None:
    rng = np.random.default_rng(tasks)
    for _ in range(20):
        cells = simulated(8, rng, tasks=tasks).groups[0].cells.values()
        assert all(cell.best or cell.tied for cell in cells)


def test_a_method_that_is_better_is_found_alone_at_the_top() -> None:
    found = simulated(16, np.random.default_rng(0), tasks=200, lead=0.6).groups[0].cells
    for column in COLUMNS:
        assert found["m15", column].best
        assert not any(found[f"m{number}", column].tied for number in range(15))
        p_value = found["m15", column].p_value
        assert p_value is not None
        assert p_value < 0.05


def test_the_differences_to_the_baseline_are_a_family_of_their_own() -> None:
    rng = np.random.default_rng(0)
    runs: Runs = {}
    column, hard = COLUMNS[0], rng.normal(50, 8, size=100)
    for number in range(10):
        correct = np.clip(hard + rng.normal(0.6 * number, 3, size=100), 0, 75).round().astype(int)
        runs[0, f"m{number}", column] = make_record(f"m{number}", correct=correct, tasks=100)
    few = {key: runs[key] for key in runs if key[1] in {"m0", "m1", "m2"}}
    entries = [Entry(f"m{number}", f"m{number}", "no prior") for number in range(10)]
    many, some = (compare_records(ran, entries, [column], "m0", with_published=False) for ran in (runs, few))
    wide, narrow = (found.groups[0].cells["m1", column].p_value for found in (many, some))
    assert wide is not None
    assert narrow is not None
    assert narrow <= wide <= 9 * narrow  # never more than the nine differences, though there are 45 pairs
