"""Killed at any moment, a command leaves nothing that looks finished and is not, and resumes to the same end."""

from __future__ import annotations

import random
import signal
import time
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


@pytest.mark.parametrize(
    ("command", "kills"),
    [("extract", 2), ("tune", 2), *(pytest.param(command, 20, marks=pytest.mark.slow) for command in COMMANDS)],
)
def test_killed_and_resumed(command: str, kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "IMAGES_PER_BLOCK", 16)
    whole = Study.prepare(command, tmp_path / "whole")
    unbroken = run(whole.arguments, whole.folder)
    assert unbroken.status == 0, unbroken.errors
    expected = whole.visible()
    rng, study, killed, runs = random.Random(command), Study.prepare(command, tmp_path / "killed0"), 0, 0
    while killed < kills:
        runs += 1
        assert runs <= 20 * kills, "it ends before it can be killed"
        before, number = study.visible(), rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
        running = start(study.arguments, study.folder)
        time.sleep(rng.uniform(0, unbroken.seconds))
        running.signal(number, group=rng.random() < 0.5)
        ended = running.end()
        assert ended.status in {0, STATUS[number], -number}, ended.errors  # -number before there are handlers
        assert ended.orderly, ended.errors
        after = study.visible()
        assert not set(before) - set(after), "finished work is lost"
        changed = [name for name, content in after.items() if expected[name] != content]
        assert all(name.endswith(".tuned.json") for name in changed), "half a file, or a wrong one"
        killed += ended.status != 0
        if ended.status == 0 and killed < kills:
            study = Study.prepare(command, tmp_path / f"killed{runs}")
    assert run(study.arguments, study.folder).status == 0
    assert study.visible() == expected
    assert [name for name in study.hidden() if not TEMPORARY.fullmatch(name)] == []
