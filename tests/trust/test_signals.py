"""Signals end a command soon and with one sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from fsbench.cli.app import Interrupt, interrupts_raise
from tests.trust.runs import Running, eventually, start
from tests.trust.study import Study

if TYPE_CHECKING:
    from pathlib import Path

    from tests.trust.runs import Before

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")


def solving(tmp_path: Path, *options: str, before: Before = lambda: None) -> Running:
    """`fsbench solve`, which has its scatter and begins with the tasks."""
    study = Study.prepare("solve", tmp_path / "here")
    running = start(("solve", *options, "--quiet", "--device", "cpu"), study.folder, before)
    assert eventually(lambda: any(study.folder.rglob("*.scatter.h5"))), running.log.read_text()
    time.sleep(0.2)
    return running


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_with_one_sentence_also_in_a_long_block(number: int, status: int, tmp_path: Path) -> None:
    running = solving(tmp_path, "--tasks", "3", "--shots", "1", "--steps", "1000000")  # which would take minutes
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


def test_a_signal_ends_the_import_of_torch_at_once(tmp_path: Path) -> None:
    """Torch may swallow an exception while it is imported, and then fail in another place."""
    command = [sys.executable, "-c", DURING_THE_IMPORT_OF_TORCH, "solve", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (143, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: Terminated")


def test_workers_that_die_with_the_program_are_no_further_error() -> None:
    """Torch raises in the program that a worker of it has died; after a signal to all of them that is no news."""

    def shout(number: int, frame: object) -> None:
        raise RuntimeError("DataLoader worker is killed by signal: Terminated.")

    before = signal.signal(signal.SIGCHLD, shout)
    try:
        with pytest.raises(Interrupt), interrupts_raise():
            os.kill(os.getpid(), signal.SIGTERM)
        subprocess.run(["true"], check=True)
    finally:
        signal.signal(signal.SIGCHLD, before)
