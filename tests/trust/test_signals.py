"""Signals end a command soon and with one sentence."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from fsbench.cli.app import Interrupt, interrupts_raise
from tests.trust.runs import start
from tests.trust.study import Study

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_signals_end_with_one_sentence(number: int, status: int, tmp_path: Path) -> None:
    study = Study.prepare("solve", tmp_path / "here")
    arguments = ("solve", "--tasks", "400000", "--quiet")
    ended = start(arguments, study.folder, tmp_path / "said").kill_after(0.8, number)
    assert ended.status == status, ended.errors
    assert ended.errors.count("\n") == 1
    assert "Finished work is kept" in ended.errors
    assert study.hidden() == []


def test_nobody_waits_for_a_long_block(tmp_path: Path) -> None:
    study = Study.prepare("solve", tmp_path / "here")
    endless = ("solve", "--tasks", "3", "--shots", "1", "--steps", "1000000", "--quiet")
    ended = start(endless, study.folder, tmp_path / "said").kill_after(1.5, signal.SIGTERM)
    assert ended.status == 143, ended.errors
    assert ended.errors.count("\n") == 1
    assert ended.seconds < 15  # all steps take minutes


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


def test_nohup_stays_nohup(tmp_path: Path) -> None:
    study = Study.prepare("solve", tmp_path / "here")
    ignored = start(
        study.arguments, study.folder, tmp_path / "said", lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    assert ignored.kill_after(0.3, signal.SIGHUP).status == 0
