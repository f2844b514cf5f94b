"""The size of the package: files that a reader finds by name and can read in one sitting."""

from __future__ import annotations

from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "fsbench"
FILES, LINES, LINES_OF_A_FILE = 140, 20_000, 400


def lines_by_file() -> dict[str, int]:
    return {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in PACKAGE.rglob("*.py")
    }


@pytest.mark.xfail(reason="the packages are still being made smaller", strict=False)
def test_few_files() -> None:
    assert len(lines_by_file()) < FILES


@pytest.mark.xfail(reason="the packages are still being made smaller", strict=False)
def test_few_lines() -> None:
    assert sum(lines_by_file().values()) < LINES


@pytest.mark.xfail(reason="the packages are still being made smaller", strict=False)
def test_no_long_file() -> None:
    assert {name: lines for name, lines in lines_by_file().items() if lines > LINES_OF_A_FILE} == {}
