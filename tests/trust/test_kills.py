"""Killed at any moment, a command leaves nothing half finished and resumes; signals end it soon, with one sentence."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fsbench.features import extract
from fsbench.io.files import TEMPORARY
from tests.trust.runs import Before, Running, eventually, run, start
from tests.trust.study import COMMANDS, Study

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


def solving(tmp_path: Path, *options: str, before: Before = lambda: None) -> Running:
    """`fsbench solve`, which has its scatter and begins with the tasks."""
    study = Study.prepare("solve", tmp_path / "here")
    running = start(("solve", *options, "--quiet", "--device", "cpu"), study.folder, before)
    assert eventually(lambda: any(study.folder.rglob("*.scatter.h5"))), running.log.read_text()
    time.sleep(0.2)
    return running


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_with_one_sentence_also_in_a_long_block(number: int, status: int, tmp_path: Path) -> None:
    running = solving(tmp_path, "--tasks", "3", "--shots", "1", "--set", "steps=1000000")  # which would take minutes
    running.signal(number)
    ended = running.end()
    assert ended.status == status, ended.errors
    assert ended.errors.count("\n") == 1
    assert "Run the same command again to resume" in ended.errors
    assert ended.seconds < 15
    assert not list((tmp_path / "here").rglob(".*"))


def test_nohup_stays_nohup(tmp_path: Path) -> None:
    ignore = (signal.SIGHUP, signal.SIG_IGN)
    running = solving(tmp_path, "--tasks", "300", before=lambda: signal.signal(*ignore))
    running.signal(signal.SIGHUP)
    assert running.end().status == 0


DURING_THE_IMPORT_OF_TORCH = """
import importlib.abc, os, signal, sys
from fsbench.cli.app import main

class Signal(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch.nn":
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                signal.sigtimedwait([], 5)
            except BaseException:
                print("swallowed")

signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whoever runs the tests may ignore it
sys.meta_path.insert(0, Signal())
main()
"""


SWALLOWED = """
import os, signal, sys
from fsbench.cli import app
signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whoever runs the tests may ignore it
def swallow(**_):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.sigtimedwait([], 5)
    except BaseException as error:
        raise RuntimeError("a library's own") from error
app.app = swallow
app.main()
"""


@pytest.mark.parametrize("program", [DURING_THE_IMPORT_OF_TORCH, SWALLOWED], ids=["import of torch", "own error"])
def test_a_signal_that_a_library_swallows_is_still_that_signal(program: str, tmp_path: Path) -> None:
    """Torch may swallow an exception while it is imported, and then fail in another place."""
    command = [sys.executable, "-c", program, "solve", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (143, "", 1)
    assert done.stderr.startswith("error: Terminated (SIGTERM)")
