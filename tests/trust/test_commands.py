"""Command lines that nobody meant: status 0, 1 or 2 and a sentence, in bounded time, never a traceback."""

import signal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.cli import all_commands
from tests.synthetic import make_features
from tests.trust.runs import run, start

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")
VALUES = (
    "", "0", "-1", "1", "5", "1e999", "nan", "99999999999999999999", "x", "a,b", "1,1", ",", "=", "tau=", "tau=0.1,0.2",
    "tau=nan", "../..", "/dev/null", "/proc/self/mem", "/", ".", "features/a.h5", "features/cut.h5", "results/bad.json",
    "\x1b[2J", "α", "ncm", "bavardage", "bavardage:x", "all", "no.py:X", "novel", "cpu", "cuda:99", "markdown", "a\nb",
)  # fmt: skip
FEW = "features/a.h5 --tasks 3 --shots 1"
SOUND = {
    "scatter": "features/a.h5",
    "solve": FEW,
    "compare": f"{FEW} --methods ncm",
    "reproduce": "table2 features/a.h5 --tasks 3",
    "sweep": f"{FEW} --over tau=0.1,0.2",
    "tune": f"{FEW} --over tau=0.1,0.2",
    "import": "novel=theirs.npz --dataset own --backbone theirs",
    "plot spectrum": "features/a.h5",
}  # those not named here need no words
LONG_WORK = {"demo", "doctor", "extract", "train"}  # minutes, on lucky words: stopped from outside
SECONDS = 90  # of all others, on a busy machine


def draw(rng: Random, name: str, command: Any) -> list[str]:
    """A command line, sound or empty at first, with a few options and values of any kind."""
    line = [*name.split(), *(SOUND.get(name, "").split() if rng.random() < 0.85 else ())]
    for _ in range(rng.randint(0, 3)):
        option = rng.choice(command.params)
        name = rng.choice(option.opts) if option.opts and option.opts[0].startswith("-") else ""
        takes_none = getattr(option, "is_flag", False) and rng.random() < 0.8
        line += [name] if takes_none else [part for part in (name, rng.choice(VALUES)) if part or not name]
    return line


@pytest.mark.parametrize("cases", [range(12), pytest.param(range(12, 512), marks=pytest.mark.slow)], ids=len)
def test_command_lines(cases: range, tmp_path: Path) -> None:
    folder, commands = tmp_path / "here", all_commands()
    file = make_features(dimension=8).write(folder / "features" / "a.h5")
    features = file.read_bytes()
    (folder / "features" / "cut.h5").write_bytes(features[:900])
    np.savez(folder / "theirs.npz", features=np.eye(20, 8, dtype=np.float32), labels=np.arange(20) // 4)
    for command in ("compare", "sweep"):
        ended = run((command, *SOUND[command].split()), folder)
        assert ended.status == 0, ended.errors
    (folder / "results" / "bad.json").write_text("{}")
    for case in cases:
        rng = Random(f"line {case}")
        name = rng.choice(sorted(commands))
        line, long = draw(rng, name, commands[name]), name in LONG_WORK
        running = start(line, folder)
        for seconds, stop in ((rng.uniform(0.2, 4) if long else SECONDS, signal.SIGTERM), (SECONDS, signal.SIGKILL)):
            if running.end(seconds).status is None:
                running.signal(stop, group=True)
        ended = running.end()
        told = (case, line, ended.errors)
        assert ended.status in ({0, 1, 2, 143} if long else {0, 1, 2}), told
        assert "Traceback" not in ended.errors, told
        assert ended.status == 0 or ended.errors.strip(), told
        assert file.read_bytes() == features, (*told, "features are lost")
