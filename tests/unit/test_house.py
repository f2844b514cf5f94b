"""House rules: a small package, a short way from a command to a number, and plain words for people."""

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

from tests.cli import succeed
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
MOST_LINES, MOST_FILES, MOST_TEST_LINES = 21_500, 140, 15_000
MOST_FUNCTIONS, MOST_WALKED_FILES = 207, 32


def test_the_package_and_its_tests_stay_small() -> None:
    lines, test_lines = (
        sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
        for paths in (SOURCES, (ROOT / "tests").rglob("*.py"))
    )
    assert (lines <= MOST_LINES, len(SOURCES) <= MOST_FILES, test_lines <= MOST_TEST_LINES) == (True, True, True), (
        f"{lines} lines in {len(SOURCES)} files, {test_lines} lines of tests"
    )


def test_the_way_to_a_number_is_short(features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a reader walks through in `compare` with one method and its baseline; the threads that solve apart."""
    monkeypatch.chdir(tmp_path)
    features.write(tmp_path / "features.h5")
    ask = ("compare", "features.h5", "--methods", "bavardage", "--shots", "1", "--settings", "unbalanced", "--quiet")
    succeed(*ask, "--tasks", "2")  # which stores the scatter
    called: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        named = event == "call" and code.co_flags & 2 and not code.co_name.startswith("<")
        if named and code.co_filename.startswith(str(PACKAGE)):
            called[Path(code.co_filename).relative_to(PACKAGE).as_posix(), code.co_qualname] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        succeed(*ask, "--tasks", "16", "--seed", "1")
    finally:
        sys.setprofile(before)
    walked = [*called][[*called].index(("cli/compare.py", "compare")) :]
    files = {file for file, _ in walked}
    assert (len(walked) <= MOST_FUNCTIONS, len(files) <= MOST_WALKED_FILES) == (True, True), "\n".join(
        [f"{len(walked)} functions in {len(files)} files:", *map(" ".join, walked)]
    )


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
