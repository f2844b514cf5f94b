"""Tables in every format, and the sentence that answers which method to use."""

import io
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsbench.report import writers
from fsbench.report.answer import answers, headline, sentences
from fsbench.report.comparison import comparison_tables, flat_rows, render
from fsbench.report.writers import Cell, Column, Note, Table, cells, numbers
from fsbench.reporter import SafeConsole
from fsbench.results.collect import collect
from tests.records import TUNED, four_settings, make_record

TRANSPORT: dict[str, Any] = {"params": {"variant": "transport"}, "given": ("variant",), "tuning": TUNED}


def shown(tables: list[Table], width: int, **options: Any) -> list[str]:
    """The lines that a terminal of this width shows."""
    stream = io.StringIO()
    writers.show(*tables, console=SafeConsole(file=stream, width=width, **options))
    return stream.getvalue().splitlines()


def of_numbers(labels: list[str], rows: list[list[str]], *, whole: bool = False) -> list[Table]:
    heads = [f"column\n{place}" for place in range(len(rows[0]))]
    columns = [Column("method"), Column("assumes", whole=whole, optional=whole), *numbers(*heads)]
    return [Table("heading", columns, [cells(n, "free prior", *row) for n, row in zip(labels, rows, strict=True)])]


@given(width=st.integers(60, 140), columns=st.integers(1, 14), whole=st.booleans())
@settings(max_examples=80, deadline=None)
def test_no_number_is_cut_at_any_width(width: int, columns: int, whole: bool) -> None:
    rows = [[f"{10 * row + column}.25±1.{column:02}" for column in range(columns)] for row in range(3)]
    lines = shown(of_numbers(["ncm", "soft-kmeans", "bavardage:transport †"], rows, whole=whole), width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert "…" not in text
    assert all(cell in text for row in rows for cell in row)
    headings = re.findall(r"(?<![\d.])\d+(?![\d.])", "".join(line for line in lines if "±" not in line))
    assert [int(number) for number in headings] == list(range(columns))


@pytest.mark.parametrize("width", [60, 80, 100])
def test_four_settings_fit_into_80_columns_and_no_name_is_broken(width: int) -> None:
    records = [one for name in ("ncm", "soft-kmeans", "paddle") for one in four_settings(name, 0.5, tasks=200)]
    (comparison,) = collect([*records, *four_settings("bavardage", 0.44, tasks=200, **TRANSPORT)], published=False)
    lines = [line for line in shown(comparison_tables(comparison), width) if not line.startswith("fsbench:")]
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.startswith(" bavardage:transport †")]
    assert len(rows) == (4 if width == 60 else 2)  # accuracies and differences, in two parts each at 60 columns
    assert any("assumes" in line for line in lines if line.startswith(" method")) is (width >= 100)
    assert "†: parameters tuned on the val classes" in lines
    of_accuracies = [line for line in lines if re.search(r"\d ?±", line) and not re.search(r"[+-]\d", line)]
    points = [[match.end() for match in re.finditer(r"\d\.\d\d ?±", line)] for line in of_accuracies[:4]]
    assert points[0] == points[1] == points[2] == points[3]  # digits below each other, whatever the marks


MARKED = Table(
    "A & B",
    [Column("name"), *numbers("a\nvalue")],
    [[Cell("x|y"), Cell("1.0", "best", warned=True)], [Cell("=z"), Cell("-2.0", "tied")], [Cell("<i>"), Cell("–")]],
    [Note("best of all", "best"), Note("published: it"), Note("late", "warning"), Note("a|b`c", "signature")],
)


def test_every_format_has_its_own_marks_and_escapes() -> None:
    assert [line.strip() for line in shown([MARKED], 80)[5:8]] == ["x|y      ▲!1.0", "=z      * -2.0", "<i>          –"]
    assert shown([MARKED], 80)[9:] == ["▲: best of all", "published: it", "! late", "a|b`c"]
    assert writers.markdown([MARKED]).splitlines() == [
        *("**A & B**", "", "| name | a value |", "|---|--:|"),
        *(r"| x\|y | **1.0!** |", r"| =z | -2.0 \* |", r"| \<i\> | – |", ""),
        *("Bold: best of all.", "", "Published: it.", "", "- ! late.", "``a|b`c``"),
    ]
    assert writers.latex([MARKED]).splitlines() == [
        *(r"% needs \usepackage{booktabs}", r"% A \& B", r"\begin{tabular}{lr}", r"\toprule"),
        *(r"name & a value \\", r"\midrule", r"x|y & \textbf{1.0!} \\", r"=z & $-$2.0 $^{*}$ \\"),
        *(r"$<$i$>$ & -- \\", r"\bottomrule", r"\end{tabular}", ""),
        *("% bold: best of all", "% published: it", "% ! late", "% a|b`c"),
    ]
    rows: list[dict[str, Any]] = [{"name": "x\ny", "value": 1.04}, {"name": "=z", "value": {"a": None}}]
    assert writers.as_csv(rows).splitlines() == ["name,value", "x y,1.04", """'=z,"{""a"": null}\""""]
    assert json.loads(writers.as_json(rows)) == rows


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
    assert answers(table, table.groups[0], prefer="tim-gd")[0].method == "tim-gd"
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
