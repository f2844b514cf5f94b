"""Commands in processes of their own, forked from this one so that nothing is imported twice."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

import fsbench
from fsbench.cli.app import main

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


for _module in pkgutil.walk_packages(fsbench.__path__, "fsbench."):  # commands import some only when they run
    importlib.import_module(_module.name)


@dataclass(frozen=True)
class Ended:
    """How a process ended: its status, negative for a signal, what it printed and what it took."""

    status: int
    output: str
    errors: str
    seconds: float
    megabytes: int

    @property
    def orderly(self) -> bool:
        return "Traceback" not in self.errors and "Error:" not in self.errors


@dataclass(frozen=True)
class Running:
    """A command at work."""

    process: int
    said: Path
    started: float

    def end(self) -> Ended:
        """Wait for it."""
        _, status, used = os.wait4(self.process, 0)
        seconds = time.monotonic() - self.started
        output, errors = self.printed("out"), self.printed("err")
        return Ended(os.waitstatus_to_exitcode(status), output, errors, seconds, used.ru_maxrss >> 10)

    def printed(self, stream: str) -> str:
        """What it has written to `out` or `err`."""
        return (self.said / f"{self.process}.{stream}").read_text()

    def ends_within(self, seconds: float) -> bool:
        """Wait for it no longer than that; it goes on."""
        return eventually(
            lambda: bool(os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT)), seconds
        )

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal, to its workers too if asked; nothing, if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.process, number)


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    """Wait until something holds; False if it does not within some seconds."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def start(arguments: Sequence[str], folder: Path, said: Path, before: Callable[[], object] = lambda: None) -> Running:
    """Start a command in a folder, and wait until its process is about to run it.

    Args:
        arguments: Of the command line.
        folder: The current folder of the command.
        said: Folder for what it prints.
        before: Called in the new process, before the command.
    """
    said.mkdir(exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    wait, ready = os.pipe()
    process = os.fork()
    if process:
        os.close(ready)
        with os.fdopen(wait) as stream:
            stream.read()  # to its end, when the child is ready
        return Running(process, said, time.monotonic())
    status = 70
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)  # whoever runs the tests, nohup or a batch system, may ignore some
        os.chdir(folder)
        for name, handle in (("out", 1), ("err", 2)):
            os.dup2(os.open(said / f"{os.getpid()}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), handle)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        sys.argv = ["fsbench", *arguments]
        before()
        os.close(ready)
        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                status = 120
        os._exit(status)


def run(arguments: Sequence[str], folder: Path, said: Path, before: Callable[[], object] = lambda: None) -> Ended:
    """Run a command to its end."""
    return start(arguments, folder, said, before).end()


def small_files(size: int) -> Callable[[], None]:
    """Keep every file below a size, as a full disk does."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
