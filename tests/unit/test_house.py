"""The size of the package: files that a reader can read in one sitting."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "fsbench"


def test_no_file_is_longer_than_400_lines() -> None:
    lines = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    assert len(lines) > 100
    assert {name: count for name, count in lines.items() if count > 400} == {}
