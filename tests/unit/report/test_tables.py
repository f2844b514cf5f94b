from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsbench.report.tables import plain_table
from fsbench.reporter import SafeConsole


def shown(width: int, labels: list[str], rows: list[list[str]]) -> str:
    table = plain_table("heading")
    table.add_column("method", overflow="fold", min_width=10)
    table.add_column("assumes", overflow="fold")
    for place, _ in enumerate(rows[0]):
        table.add_column(f"column\n{place}", justify="right", no_wrap=True)
    for label, row in zip(labels, rows, strict=True):
        table.add_row(label, "free prior", *row)
    stream = io.StringIO()
    SafeConsole(file=stream, width=width).print(table)
    return stream.getvalue()


@given(width=st.integers(60, 140), columns=st.integers(1, 14))
@settings(max_examples=60, deadline=None)
def test_no_number_is_cut_at_any_width(width: int, columns: int) -> None:
    rows = [[f"{10 * row + column}.25 ± 1.{column:02}" for column in range(columns)] for row in range(3)]
    text = shown(width, ["ncm", "soft-kmeans", "bavardage"], rows)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for cell in (cell for row in rows for cell in row):
        assert cell in text
    headings = re.findall(r"(?<![\d.])\d+(?![\d.])", "".join(line for line in text.splitlines() if "±" not in line))
    assert [int(number) for number in headings] == list(range(columns))


@pytest.mark.parametrize(("width", "tables"), [(100, 1), (60, 2), (30, 4)])
def test_columns_without_room_come_below_beside_the_same_texts(width: int, tables: int) -> None:
    text = shown(width, ["ncm"], [["11.11 ± 1.11", "22.22 ± 2.22", "33.33 ± 3.33", "44.44 ± 4.44"]])
    assert text.count("ncm") == tables
    assert text.count("heading") == 1
