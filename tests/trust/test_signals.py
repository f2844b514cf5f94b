"""Signals end a command soon and with one sentence."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
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
    assert "Run the same command again to resume" in ended.errors
    assert study.hidden() == []


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_signals_end_the_import_of_torch(share: float, tmp_path: Path) -> None:
    """Which may swallow exceptions, and then fails in another place."""
    command = [sys.executable, "-m", "fsbench", "solve", "--quiet"]
    with (tmp_path / "errors").open("w+") as errors:
        running = subprocess.Popen(command, cwd=tmp_path, stderr=errors, preexec_fn=with_usual_signals)
        time.sleep(share * seconds_to_start())
        running.terminate()
        assert running.wait(60) in (143, -signal.SIGTERM)  # -15 before there are handlers
        assert "Traceback" not in (tmp_path / "errors").read_text()


@functools.cache
def seconds_to_start() -> float:
    """Seconds that a command takes before it does anything, on this machine at this time."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "fsbench", "solve", "--help"], capture_output=True, check=True)
    return time.monotonic() - started


def with_usual_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whoever runs the tests may ignore it


def test_a_signal_while_a_command_is_loaded_ends_at_once() -> None:
    code = (
        "import os, signal\n"
        "from fsbench.cli.app import interrupts_end, interrupts_raise\n"
        "with interrupts_raise(), interrupts_end():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        signal.sigtimedwait([], 1)\n"
        "    except BaseException:\n"
        "        print('swallowed')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (143, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: Terminated")


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
