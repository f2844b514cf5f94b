"""Names from files of others are shown, never obeyed: not by a terminal, a browser, LaTeX or Markdown."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.table import Table

from fsbench.cli.app import _show
from fsbench.errors import FsbenchError
from fsbench.features.store import FeatureFile, Provenance, make_split, write_features
from fsbench.report.comparison import ComparisonTable
from fsbench.report.writers import FORMATS
from fsbench.reporter import Reporter, SafeConsole, printable
from fsbench.results.collect import collect
from fsbench.results.record import load_record, record_path, save_record
from tests.records import four_settings, make_record

EVIL = "\x1b[2J\x1b]0;title\x07[/red][link=x]a[/]\r\x9b31m\u202eabc\n\\input{/etc/passwd}|`x`<script>alert(1)</script>"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@given(text=st.text())
@settings(max_examples=200, deadline=None)
def test_what_is_printable_stays_and_the_rest_shows(text: str) -> None:
    shown = printable(text)
    assert not OBEYED.search(shown)
    assert shown == text or OBEYED.search(text) or re.search("[\u200e\u200f\u2028\u2029]", text)


def test_terminal_output_obeys_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    reporter, table = Reporter(), Table(EVIL)
    table.add_row(EVIL)
    SafeConsole(stderr=True, width=300).print(table)
    reporter.say(EVIL)
    reporter.warn(EVIL)
    with reporter.bar(EVIL, 3) as advance:
        advance(1)
    _show(FsbenchError(EVIL, EVIL))
    shown = capsys.readouterr().err
    assert shown.count("[/red]") >= 6
    assert not OBEYED.search(shown)


@pytest.mark.parametrize("form", FORMATS)
def test_tables_obey_no_name(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = dict.fromkeys(("dataset", "backbone", "device", "preset"), EVIL)
    records = [record for method in ("ncm", "soft-kmeans") for record in four_settings(method, 0.6, **names)]
    for comparison in collect(records):
        ComparisonTable(comparison).show(form)
    told = capsys.readouterr().out
    assert "passwd" in told
    assert not OBEYED.search(told)
    if form == "latex":
        assert all(line.startswith("%") for line in told.splitlines() if r"\input" in line)


@pytest.mark.parametrize("field", ["dataset", "backbone"])
def test_records_and_feature_files_with_such_names_are_refused(field: str, tmp_path: Path) -> None:
    changes: Any = {field: EVIL}
    save_record(tmp_path / "record.h5", make_record(**changes))
    with pytest.raises(FsbenchError, match="split is not valid"):
        load_record(tmp_path / "record.h5")
    split = make_split([[1.0, 2.0]], [0])  # type: ignore[arg-type]
    write_features(tmp_path / "a.h5", replace(Provenance("a", "b"), **changes), {"novel": split})
    with pytest.raises(FsbenchError, match="does not name"):
        FeatureFile.open(tmp_path / "a.h5")


@pytest.mark.parametrize("name", ["..", "../../x", "/etc/x"])
def test_records_stay_in_their_folder_whatever_the_data_set_is_called(name: str, tmp_path: Path) -> None:
    path = record_path(tmp_path, make_record(name, dataset=name, backbone=name))
    assert path.parent == tmp_path
    assert path.name not in {".", ".."}
