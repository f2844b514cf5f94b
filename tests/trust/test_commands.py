"""Command lines that nobody meant: status 0, 1 or 2 and a sentence, in bounded time, never a traceback."""

from __future__ import annotations

import signal
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fsbench.cli.app import COMMANDS, load_command
from tests.synthetic import make_features
from tests.trust.runs import Ended, run, start

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")
VALUES = (
    "", "0", "-1", "1", "5", "1e999", "nan", "99999999999999999999", "x", "a,b", "1,1", ",", "=", "tau=", "tau=0.1,0.2",
    "tau=nan", "../..", "/dev/null", "/proc/self/mem", "/", ".", "features/a.h5", "features/cut.h5", "results/bad.json",
    "\x1b[2J", "α", "ncm", "bavardage", "bavardage:x", "all", "no.py:X", "novel", "cpu", "cuda:99", "markdown", "a\nb",
)  # fmt: skip
FEW = ("features/a.h5", "--tasks", "3", "--shots", "1")
SOUND: dict[tuple[str, ...], tuple[str, ...]] = {
    ("scatter",): ("features/a.h5",),
    ("solve",): FEW,
    ("compare",): (*FEW, "--methods", "ncm"),
    ("reproduce",): ("table2", "features/a.h5", "--tasks", "3"),
    ("sweep",): (*FEW, "--over", "tau=0.1,0.2"),
    ("tune",): (*FEW, "--over", "tau=0.1,0.2"),
    ("import",): ("novel=theirs.npz", "--dataset", "own", "--backbone", "theirs"),
    ("export",): ("features/a.h5",),
    ("plot", "differences"): ("bavardage", "ncm"),
    ("plot", "spectrum"): ("features/a.h5",),
}  # those not named here need no words
LONG_WORK = {"demo", "doctor", "extract", "train"}  # minutes, on lucky words: stopped from outside
SECONDS = 90  # of all others, on a busy machine


def leaves() -> dict[tuple[str, ...], Any]:
    """All commands, with the words that lead to them."""
    loaded = {name: load_command(name) for name in COMMANDS}
    below = {name: getattr(command, "commands", {}) for name, command in loaded.items()}
    alone = {(name,): command for name, command in loaded.items() if not below[name]}
    return alone | {(name, inner): leaf for name, leaves in below.items() for inner, leaf in leaves.items()}


def draw(rng: Random, words: tuple[str, ...], command: Any) -> list[str]:
    """A command line, sound or empty at first, with a few options and values of any kind."""
    line = [*words, *(SOUND.get(words, ()) if rng.random() < 0.85 else ())]
    for _ in range(rng.randint(0, 3)):
        option = rng.choice(command.params)
        name = rng.choice(option.opts) if option.opts and option.opts[0].startswith("-") else ""
        takes_none = getattr(option, "is_flag", False) and rng.random() < 0.8
        line += [name] if takes_none else [part for part in (name, rng.choice(VALUES)) if part or not name]
    return line


def prepare(folder: Path) -> None:
    """Sound and damaged files, records and a sweep."""
    file = make_features(dimension=8).write(folder / "features" / "a.h5")
    (folder / "features" / "cut.h5").write_bytes(file.read_bytes()[:900])
    np.savez(folder / "theirs.npz", features=np.eye(20, 8, dtype=np.float32), labels=np.arange(20) // 4)
    for command in ("compare", "sweep"):
        ended = run((command, *SOUND[(command,)]), folder)
        assert ended.status == 0, ended.errors
    (folder / "results" / "bad.json").write_text("{}")


def tried(line: list[str], folder: Path, stop_after: float) -> Ended:
    """Run a line to its end, or to the moment it is stopped."""
    running = start(line, folder)
    ended = running.end(stop_after)
    if ended.status is None:
        running.signal(signal.SIGTERM, group=True)
        ended = running.end(SECONDS)
    if ended.status is None:
        running.signal(signal.SIGKILL, group=True)
    return running.end()


def check(cases: range, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    prepare(folder)
    features, commands = (folder / "features" / "a.h5").read_bytes(), leaves()
    for case in cases:
        rng = Random(f"line {case}")
        words = rng.choice(sorted(commands))
        line = draw(rng, words, commands[words])
        long = words[0] in LONG_WORK
        ended = tried(line, folder, rng.uniform(0.2, 4) if long else SECONDS)
        told = (case, line, ended.errors)
        assert ended.status in ({0, 1, 2, 143} if long else {0, 1, 2}), told
        assert "Traceback" not in ended.errors, told
        assert ended.status == 0 or ended.errors.strip(), told
        assert (folder / "features" / "a.h5").read_bytes() == features, (*told, "features are lost")


def test_some_command_lines(tmp_path: Path) -> None:
    check(range(12), tmp_path)


@pytest.mark.slow
def test_many_command_lines(tmp_path: Path) -> None:
    check(range(12, 512), tmp_path)
