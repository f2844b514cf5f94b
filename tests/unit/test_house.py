"""House rules: files that a reader can read in one sitting, and plain words in everything that people read."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli import run

if TYPE_CHECKING:
    from types import FrameType

    from tests.synthetic import Features

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
MOST_FUNCTIONS = 147  # those of a method and of its baseline, which are solved together


def test_no_file_is_longer_than_400_lines() -> None:
    lines = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert len(lines) > 100
    assert {name: count for name, count in lines.items() if count > 400} == {}


def test_few_functions_lie_between_the_command_and_the_number(
    features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a reader walks through from `solve` until the first record is saved; the threads that solve apart."""
    monkeypatch.chdir(tmp_path)
    features.write(tmp_path / "features.h5")
    ask = ("solve", "features.h5", "--shots", "1", "--device", "cpu", "--quiet")
    assert run(*ask, "--tasks", "2").returncode == 0  # which stores the scatter
    called: dict[tuple[str, str], None] = {}
    entered, saved = ("cli/solve.py", "solve"), ("results/record.py", "save_record")

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        named = event == "call" and code.co_flags & 2 and not code.co_name.startswith("<")
        if named and code.co_filename.startswith(str(PACKAGE)) and saved not in called:
            function = Path(code.co_filename).relative_to(PACKAGE).as_posix(), code.co_qualname
            called.update({function: None} if called or function == entered else {})

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        assert run(*ask, "--tasks", "16", "--seed", "1").returncode == 0
    finally:
        sys.setprofile(before)
    assert saved in called
    assert len(called) <= MOST_FUNCTIONS, "\n".join([f"{len(called)} functions:", *map(" ".join, called)])


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
