from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsbench.report.render import as_text, latex, render_latex, render_markdown, render_rich
from fsbench.report.tables import Signature, plain_table
from fsbench.reporter import SafeConsole
from fsbench.results.collect import collect
from tests.records import four_settings, make_record


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


LONGEST = "bavardage:transport"
TUNED: dict[str, Any] = {"params": {"variant": "transport"}, "params_from": "tuned:val:grid:50x500"}


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_four_settings_fit_into_80_columns_and_no_name_is_broken(width: int) -> None:
    records = [
        record for method in ("ncm", "soft-kmeans", "paddle") for record in four_settings(method, 0.5, tasks=200)
    ]
    (comparison,) = collect([*records, *four_settings("bavardage", 0.44, tasks=200, **TUNED)], published=False)
    stream = io.StringIO()
    SafeConsole(file=stream, width=width).print(render_rich(comparison))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.startswith(f" {LONGEST} †")]
    assert len(rows) == (4 if width == 60 else 2)  # accuracies and differences, in two parts each at 60 columns
    assert any("assumes" in line for line in lines if line.startswith(" method")) is (width >= 100)
    assert "†: parameters tuned on the val classes" in lines
    of_accuracies = [line for line in lines if re.search(r"\d ?±", line) and not re.search(r"[+-]\d", line)]
    points = [[match.end() for match in re.finditer(r"\d\.\d\d ?±", line)] for line in of_accuracies[:4]]
    assert points[0] == points[1] == points[2] == points[3]  # digits below each other, whatever the marks


@pytest.mark.parametrize("width", range(60, 140, 4))
def test_no_accuracy_is_cut_where_an_assumption_differs_by_setting(width: int) -> None:
    records = [
        make_record("bavardage", shots=shots, alpha=alpha, tasks=200, params={"variant": variant, "mixing": mixing})
        for variant in ("article", "transport")
        for alpha, mixing in ((2.0, "learned"), (None, "uniform"))
        for shots in (1, 5)
    ]
    (comparison,) = collect([*records, *four_settings("ncm", 0.5, tasks=200)], published=False)
    stream = io.StringIO()
    SafeConsole(file=stream, width=width).print(render_rich(comparison))
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert len(re.findall(r"(?<![+-])\b\d\d\.\d\d ?± ?\d\.\d\d", text)) >= 12
    assert not re.search(r"±(?! ?\d+\.\d\d| 95 %)", text)


def test_tuned_rows_are_marked_in_every_format() -> None:
    (comparison,) = collect([make_record("ncm"), make_record("bavardage", **TUNED)], published=False)
    assert "bavardage:transport †" in render_markdown(comparison)
    assert r"bavardage:transport \dag{}" in render_latex(comparison)
    assert "ncm †" not in render_markdown(comparison)


def test_negative_numbers_have_a_minus_sign_in_latex() -> None:
    assert latex("54.8/77.9 -23.0") == "54.8/77.9 $-$23.0"
    assert latex("(-0.02 ± 0.05)") == r"($-$0.02 $\pm$ 0.05)"
    assert latex("tim-2 a-1") == "tim-2 a-1"


@pytest.mark.parametrize("width", [30, 60, 80, 100])
def test_a_signature_is_broken_between_fields_on_a_terminal_and_whole_elsewhere(width: int) -> None:
    (comparison,) = collect([make_record("ncm", dataset="cifarfs")], published=False)
    pages = []
    for terminal in (True, False):
        stream = io.StringIO()
        console = SafeConsole(file=stream, width=width, force_terminal=terminal, color_system=None)
        console.print(Signature(comparison.signature()), crop=False)
        pages.append(stream.getvalue().splitlines())
    assert "".join(pages[0]) == comparison.signature()
    assert max(map(len, pages[0])) <= width
    assert all(line.endswith("|") for line in pages[0][:-1])
    assert pages[1] == [comparison.signature()]


def test_both_families_of_tests_are_in_the_legend() -> None:
    (comparison,) = collect([make_record("ncm"), make_record("soft-kmeans")], published=False)
    for text in (render_markdown(comparison), render_latex(comparison), as_text(render_rich(comparison))):
        words = " ".join(text.replace("%", " ").split())
        assert "Holm-corrected over all pairs of the table" in words
        assert "not significantly different from soft-kmeans" in words
        assert "Holm-corrected over all differences to it" in words
    (alone,) = collect([make_record("ncm")], published=False)
    assert "differences to it" not in render_markdown(alone)


def test_methods_by_accuracy() -> None:
    records = [make_record(method, right) for method, right in (("ncm", 0.5), ("paddle", 0.7), ("soft-kmeans", 0.6))]
    (comparison,) = collect(records)
    assert [entry.label for entry in comparison.by_accuracy().entries] == ["paddle", "soft-kmeans", "ncm"]


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "mini"},
        {"backbone": "wrn"},
        {"weights": "a.pth@00000000"},
        {"shots": 5},
        {"alpha": 3.0},
        {"alpha": None},
        {"params_from": "tuned:val:grid:50x500"},
        {"params": {"tau": 0.2}},
        {"name": "veilleux"},
        {"ways": 4},
        {"seed": 1},
        {"tasks": 41},
        {"split": "val"},
        {"base_dataset": "other"},
    ],
)
def test_whatever_determines_a_comparison_changes_its_signature(change: dict[str, Any]) -> None:
    (plain,), (other,) = collect([make_record("bavardage")]), collect([make_record("bavardage", **change)])
    assert plain.signature() != other.signature()
    assert re.fullmatch(
        r"fsbench:0\.1\.0\|glyphs/rn12/novel\|disjoint:1\|5w1s75q\|dirichlet:2\|seed:0\|tasks:40\|params:default@[0-9a-f]{8}",
        plain.signature(),
    )


def test_the_signature_of_few_present_classes_names_their_number_and_law() -> None:
    settings: list[dict[str, Any]] = [{"alpha": None, "pooled": True}, {"alpha": 2.0}, {"alpha": None}]
    found = [
        collect([make_record(name="keff", ways=20, present=present, **setting)], published=False)[0].signature()
        for setting in settings
        for present in (4, 5)
    ]
    assert len(set(found)) == 6
    assert "|keff:1|20w1s75q|keff:4|images|" in found[0]


@pytest.mark.parametrize("origin", ["blind", "default", "given:tau", "preset:mini", "tuned:val:grid:50x500"])
def test_the_signature_says_where_parameters_come_from(origin: str) -> None:
    (comparison,) = collect([make_record("bavardage", params_from=origin)], published=False)
    assert f"|params:{origin.partition(':')[0]}@" in comparison.signature()
