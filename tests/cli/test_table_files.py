"""Tables go to files in the format that the ending names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("folder")
COMPARE = ("compare", "--methods", "ncm", "--baseline", "ncm", "--settings", "balanced", "--shots", "1", "--tasks", "4")


def test_the_ending_names_the_format_unless_another_one_is_chosen(folder: Path) -> None:
    starts = {
        "t.tex": "% needs", "t.json": "[\n", "t.CSV": "dataset,", "t.md": "**", "t.txt": "synthetic none: accuracy",
        "table": "synthetic none: accuracy",
    }  # fmt: skip
    for name, start in starts.items():
        assert run(*COMPARE, "--out", name).returncode == 0
        assert (folder / name).read_text().startswith(start)
    assert run(*COMPARE, "--out", "t.txt", "--format", "csv").returncode == 0
    assert (folder / "t.txt").read_text().startswith("dataset,")


@pytest.mark.parametrize(("form", "name"), [("csv", "t.tex"), ("rich", "t.json"), ("latex", "t.md")])
def test_a_format_that_contradicts_the_ending_is_refused(form: str, name: str) -> None:
    done = run(*COMPARE, "--format", form, "--out", name)
    assert done.returncode == 2
    assert f"--format: {form} does not fit --out {name}" in done.stderr
