import io
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsbench.report import writers
from fsbench.report.comparison import comparison_tables
from fsbench.report.writers import Cell, Column, Note, Table, cells, numbers
from fsbench.reporter import SafeConsole
from fsbench.results.collect import collect
from tests.records import TUNED, four_settings

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
    [
        [Cell("x|y"), Cell("1.0", "best", warned=True)],
        [Cell("=z"), Cell("-2.0", "tied")],
        [Cell("<i>"), Cell("–")],
    ],
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
