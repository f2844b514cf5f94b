import re

import numpy as np
import pytest

from fsbench.report.answer import answers, headline, sentences
from fsbench.report.comparison import flat_rows, render
from fsbench.results.collect import collect
from tests.records import four_settings, make_record

RIGHT = {"ncm": 0.5, "soft-kmeans": 0.6, "bavardage": 0.9}


def test_the_best_method_is_named_with_its_lead_and_what_it_assumes() -> None:
    (table,) = collect([make_record(name, right, tasks=400) for name, right in RIGHT.items()])
    lead = table.groups[0].cells["bavardage", table.columns[0]].difference
    assert lead is not None
    (line,) = sentences(table)
    assert line.startswith("glyphs rn12: use bavardage (9")
    assert f"significantly better than all others, {lead.mean:.1f} points (± {lead.half_width:.1f}) above" in line
    assert "(95 % intervals over 400 tasks of 5 of 20 classes)" in line
    assert line.endswith(". It estimates how frequent the classes are.")
    assert render(table, "rich").startswith("glyphs rn12: use bavardage")


def test_settings_with_one_winner_are_one_sentence_and_others_are_told_apart() -> None:
    records = [one for name, right in RIGHT.items() for one in four_settings(name, right - 0.1, tasks=400)]
    (table,) = collect(records)
    assert [(one.method, one.where) for one in answers(table, table.groups[0])] == [("bavardage", "")]
    balanced = [one for one in four_settings("pt-map", 0.89, tasks=400) if one.run.protocol.alpha is None]
    (table,) = collect([*records, *balanced])
    assert headline(table) == "glyphs: bavardage for unbalanced classes, pt-map for balanced classes"


def test_ties_are_named_and_explained_where_means_do_not_show_them() -> None:
    """A method that is a little worse on some tasks is not tied; one with a lower mean, but much spread, is."""
    tasks = np.arange(400)
    best = tasks % 40 + 20
    correct = {"ncm": best, "pt-map": best - (tasks % 4 == 0), "tim-gd": best + np.where(tasks % 2, 6, -7)}
    (table,) = collect([make_record(name, correct=right, tasks=400) for name, right in correct.items()])
    assert {label: cell.tied for (label, _), cell in table.groups[0].cells.items()}["tim-gd"]
    assert "use ncm" in sentences(table)[0]
    assert "It is the best, tied with tim-gd" in sentences(table)[0]
    assert "a method without * may have a higher mean" in render(table, "rich")


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        (0.9, r"use bavardage \(.*significantly better than all others, .* over its 50 tasks of 5 of \d+ classes\)"),
        (0.6, r"better than all others that solved all tasks .*\. bavardage solved too few tasks to tell\.$"),
        (0.2, r"better than all others \(.* over 400 tasks of 5 of \d+ classes\).*frequent the classes are\.$"),
    ],
)
def test_a_method_with_fewer_tasks_is_one_of_the_others(right: float, expected: str) -> None:
    records = [make_record("ncm", 0.5, tasks=400), make_record("soft-kmeans", 0.6, tasks=400)]
    (table,) = collect([*records, make_record("bavardage", right, tasks=50)])
    assert re.search(expected, sentences(table)[0])
    best = "bavardage" if right > 0.6 else "soft-kmeans"
    assert headline(table) == f"glyphs: {best}"
    assert [label for (label, _), cell in table.groups[0].cells.items() if cell.best] == [best]


@pytest.mark.parametrize("tasks", [1, 3])
def test_few_tasks_are_no_answer(tasks: int) -> None:
    (table,) = collect([make_record(name, 0.7, tasks=tasks) for name in RIGHT])
    (line,) = sentences(table)
    verb = "task is" if tasks == 1 else "tasks are"
    assert line.startswith(f"glyphs rn12: {tasks} {verb} too few to tell the methods apart")
    assert line.endswith("Use more: --tasks 1000.")
    assert headline(table) == "glyphs: too few tasks to tell"
    assert "▲" not in render(table, "rich")
    assert not any(row["best"] or row["tied_with_best"] for row in flat_rows(table))


def test_a_method_that_lacks_runs_is_named_with_the_command_that_fills_them() -> None:
    records = [one for name, right in RIGHT.items() for one in four_settings(name, right - 0.1)]
    own = {"asked": ("fsbench solve features/glyphs.h5 --shots 5 --tasks 40", "--method tim-gd --set 'a=b c'")}
    text = render(collect([*records, make_record("tim-gd", 0.95, **own)])[0], "markdown")
    assert "Without a rank: tim-gd, which lacks unbalanced α=2 5-shot, balanced 1-shot and balanced 5-shot" in text
    assert "fsbench solve features/glyphs.h5 --method tim-gd --set 'a=b c'" in text
