"""Killed at any moment, a command leaves nothing that looks finished and is not, and goes on to the same end."""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING

import pytest

from fsbench.features import extract
from fsbench.io.files import TEMPORARY
from tests.trust.runs import run, start
from tests.trust.study import COMMANDS, Study

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")
STATUS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}


def kill_often(command: str, kills: int, tmp_path: Path, seed: int = 0) -> None:
    said, whole = tmp_path / "said", Study.prepare(command, tmp_path / "whole")
    unbroken = run(whole.arguments, whole.folder, said)
    assert unbroken.status == 0, unbroken.errors
    expected = whole.visible()
    rng, study, killed = random.Random(f"{command} {seed}"), Study.prepare(command, tmp_path / "killed"), 0
    number, seen = 0, study.visible()
    for _ in range(20 * kills):
        if killed == kills:
            break
        number = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
        running = start(study.arguments, study.folder, said)
        ended = running.kill_after(rng.uniform(0, unbroken.seconds), number, group=rng.random() < 0.5)
        assert ended.status in {0, STATUS[number], -number}, ended.errors
        assert ended.orderly, ended.errors
        killed += ended.status != 0
        now = study.visible()
        assert not set(seen) - set(now), "finished work is lost"
        changed = [name for name, content in now.items() if expected[name] != content]
        assert all(name.endswith(".tuned.json") for name in changed), "half a file, or a wrong one"
        if ended.status == 0 and killed < kills:
            study = Study.prepare(command, tmp_path / f"killed{rng.random()}")
        seen = study.visible()
    assert killed == kills
    assert run(study.arguments, study.folder, said).status == 0
    assert study.visible() == expected
    left = [name for name in study.hidden() if not TEMPORARY.fullmatch(name)]
    assert left == [], "left behind, and not even hidden from the next run"


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "IMAGES_PER_BLOCK", 16)


@pytest.mark.parametrize("command", ["extract", "tune"])
def test_killed_twice(command: str, tmp_path: Path) -> None:
    kill_often(command, 2, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_many_times(command: str, tmp_path: Path) -> None:
    kill_often(command, 20, tmp_path, seed=1)
