"""Words that people type by mistake, and what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("compare --out table.docx", 2, "no table has the ending .docx"),
        ("compare --methods ncm simpleshot --tasks 4", 1, "Separate names by commas"),
        ("solve --method ncm --tau 1", 1, "ncm takes no parameters"),
        ("solve --tasks many", 2, "expected a whole number such as 10000 or 1e4"),
        ("compare --budget 10", 2, "expected a time such as 90s, 10m or 1h30m"),
        ("compare --budget 0m", 2, "expected a time above zero"),
        ("solve --tasks 0", 2, "--tasks: expected 1 to"),
        ("solve --split test", 1, "fsbench calls it novel"),
        ("solve --split validation", 1, "fsbench calls it val"),
        ("solve --nonsense", 2, "No such option: --nonsense"),
        ("nonsense", 2, "No such command 'nonsense'"),
        ("plot task --task x", 2, "--task"),
        ("reproduce", 2, "Missing argument 'WHAT'"),
    ],
)
def test_one_style_and_a_way_out(line: str, status: int, said: str) -> None:
    done = run(*line.split())
    assert done.exit_code == status, done.output
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "╭" not in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("count", ["1e1", "10", "1_0"])
def test_counts_as_people_write_them(count: str) -> None:
    done = run("solve", "--method", "ncm", "--tasks", count, "--shots", "1", "--json")
    assert done.exit_code == 0, done.output
    assert '"tasks": 10' in done.stdout


def test_a_named_folder_without_features_is_an_error(folder: Path) -> None:
    (folder / "empty").mkdir()
    for name, said in (("empty", "No feature files in empty"), ("nowhere", "Folder not found: nowhere")):
        done = run("compare", "--features-dir", name, "--tasks", "4")
        assert done.exit_code == 1
        assert said in done.stderr
    assert not (folder / "data").exists()


def test_help_and_version_are_no_errors() -> None:
    for words in (["--help"], ["--version"], ["solve", "-h"]):
        done = run(*words)
        assert done.exit_code == 0
        assert done.stdout
        assert not done.stderr
    nothing = run()
    assert nothing.exit_code == 2
    assert "Usage" in nothing.output


def test_a_method_file_without_its_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("compare", "--methods", "mine.py")
    assert done.returncode == 1
    assert "mine.py names a file, but not the class in it." in done.stderr
    assert "Write mine.py:CLASS." in done.stderr
