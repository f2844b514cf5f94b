"""House rules: files that a reader can read in one sitting, and plain words in everything that people read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "fsbench"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = sorted(PACKAGE.rglob("*.py"))
WORDS = {
    r"pictures?": "image, or figure for what is drawn",
    r"contestants?": "method",
    r"honest(ly)?|state[- ]of[- ]the[- ]art": "only claims that a reader can check",
    r"simply|easily|obviously": "nothing in its place",
}
NOT_ONE = r"(?<!there )\b(is|are) no (?!longer|more)"  # as in: a tomato is no vegetable


def test_no_file_is_longer_than_400_lines() -> None:
    lines = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert len(lines) > 100
    assert {name: count for name, count in lines.items() if count > 400} == {}


def lines_with(pattern: str, paths: list[Path]) -> list[str]:
    return [
        f"{path.name}: {line.strip()}"
        for path in paths
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(pattern, line, re.IGNORECASE)
    ]


@pytest.mark.parametrize("words", WORDS)
def test_people_read_plain_words(words: str) -> None:
    assert lines_with(rf"\b({words})\b", PAGES + SOURCES) == [], f"write {WORDS[words]}"


def test_pages_say_what_something_is_not() -> None:
    assert lines_with(NOT_ONE, PAGES) == [], "write: is not a"
