"""Tables go to files in the format that the ending names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli import run

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("folder")
COMPARE = ("compare", "--methods", "ncm", "--baseline", "ncm", "--settings", "balanced", "--shots", "1", "--tasks", "4")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("t.tex", "% needs"),
        ("t.json", "[\n"),
        ("t.csv", "dataset,"),
        ("t.CSV", "dataset,"),
        ("t.md", "**"),
        ("t.txt", "synthetic none: accuracy"),
        ("table", "synthetic none: accuracy"),
    ],
)
def test_the_ending_names_the_format(folder: Path, name: str, start: str) -> None:
    assert run(*COMPARE, "--out", name).returncode == 0
    assert (folder / name).read_text().startswith(start)


def test_a_format_that_is_asked_for_goes_into_a_file_of_any_other_ending(folder: Path) -> None:
    assert run(*COMPARE, "--out", "t.txt", "--format", "csv").returncode == 0
    assert (folder / "t.txt").read_text().startswith("dataset,")


@pytest.mark.parametrize("command", [COMPARE, ("ablate",)])
@pytest.mark.parametrize(("form", "name"), [("csv", "t.tex"), ("rich", "t.json"), ("latex", "t.md")])
def test_a_format_that_contradicts_the_ending_is_refused(command: tuple[str, ...], form: str, name: str) -> None:
    done = run(*command, "--format", form, "--out", name)
    assert done.returncode == 2
    assert "--format" in done.stderr
    assert f"--out {name}" in done.stderr
