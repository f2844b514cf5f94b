"""Command lines that nobody meant: status 0, 1 or 2 and a sentence, never a traceback."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from fsbench.cli.app import app
from tests.synthetic import make_features
from tests.trust.runs import run

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")
VALUES = (
    "", "0", "-1", "1", "5", "1e999", "nan", "99999999999999999999", "x", "a,b", "1,1", ",", "=", "tau=", "tau=0.1,0.2",
    "tau=nan", "../..", "/dev/null", "/proc/self/mem", "/", ".", "features/a.h5", "features/cut.h5", "results/bad.json",
    "\x1b[2J", "α", "ncm", "bavardage", "bavardage:x", "all", "no.py:X", "novel", "cpu", "cuda:99", "markdown", "a\nb",
)  # fmt: skip
NOT_RUN = {"demo", "train", "extract", "doctor"}  # minutes of honest work on lucky words; their readers are in the fuzz
FEW_TASKS = {"solve", "compare", "ablate", "sweep", "tune"}


def leaves() -> dict[tuple[str, ...], Any]:
    """All commands, with the words that lead to them."""
    found: dict[tuple[str, ...], Any] = {}
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        for below, leaf in getattr(command, "commands", {"": command}).items():
            found[(name, below) if below else (name,)] = leaf
    return found


def draw(rng: Random, words: tuple[str, ...], command: Any) -> list[str]:
    """A command line with a few options and values of any kind."""
    line = list(words)
    for _ in range(rng.randint(0, 2)):
        option = rng.choice(command.params)
        name = rng.choice(option.opts) if option.opts and option.opts[0].startswith("-") else ""
        line += [part for part in (name, rng.choice(VALUES) if rng.random() < 0.85 else "") if part or not name]
    if words[0] in FEW_TASKS:
        line += ["--tasks", "3", "--shots", "1"] + (["--methods", "ncm"] if words[0] == "compare" else [])
    return line


def check(cases: range, tmp_path: Path, tally: Counter[str]) -> None:
    folder = tmp_path / "here"
    file = make_features(dimension=8).write(folder / "features" / "a.h5")
    (folder / "features" / "cut.h5").write_bytes(file.read_bytes()[:900])
    (folder / "results").mkdir()
    (folder / "results" / "bad.json").write_text("{}")
    commands = {words: leaf for words, leaf in leaves().items() if words[0] not in NOT_RUN}
    for case in cases:
        rng = Random(f"line {case}")
        words = rng.choice(sorted(commands))
        line = draw(rng, words, commands[words])
        ended = run(line, folder, tmp_path / "said")
        tally[f"command lines: status {ended.status}"] += 1
        assert ended.status in {0, 1, 2}, (case, line, ended.errors)
        assert ended.orderly or ended.status == 2, (case, line, ended.errors)
        assert "Traceback" not in ended.errors, (case, line, ended.errors)
        assert ended.status == 0 or ended.errors.strip(), (case, line)


def test_some_command_lines(tmp_path: Path, tally: Counter[str]) -> None:
    check(range(12), tmp_path, tally)


@pytest.mark.slow
def test_many_command_lines(tmp_path: Path, tally: Counter[str]) -> None:
    check(range(12, 312), tmp_path, tally)
