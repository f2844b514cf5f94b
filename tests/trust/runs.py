"""Commands in processes of their own, forked from this one so that nothing is imported twice."""

import contextlib
import importlib
import multiprocessing
import os
import pkgutil
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

import torch

import fsbench
from fsbench.cli.app import main

Before = Callable[[], object]


for _module in pkgutil.walk_packages(fsbench.__path__, "fsbench."):  # commands import some only when they run
    importlib.import_module(_module.name)


class Ended(NamedTuple):
    """How a process ended."""

    status: int | None  # negative for a signal
    errors: str
    seconds: float

    @property
    def orderly(self) -> bool:
        return "Traceback" not in self.errors and "Error:" not in self.errors


class Running(NamedTuple):
    """A command at work."""

    process: BaseProcess
    log: Path  # of its errors
    started: float

    def end(self, seconds: float | None = None) -> Ended:
        """Wait for it, no longer than some seconds: its status is None then, and it goes on."""
        self.process.join(seconds)
        return Ended(self.process.exitcode, self.log.read_text(), time.monotonic() - self.started)

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal, to its workers too if asked; nothing, if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.process.pid or 0, number)


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    """Wait until something holds; False if it does not within some seconds."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def start(arguments: Sequence[str], folder: Path, before: Before = lambda: None) -> Running:
    """Start a command in a folder, and wait until its process is about to run it; `before` is called there first."""
    wait, ready = os.pipe()
    log = folder.with_name(f"{folder.name}-{time.monotonic_ns()}.log")
    process = multiprocessing.get_context("fork").Process(target=_command, args=(arguments, folder, log, before, ready))
    process.start()
    os.close(ready)
    with os.fdopen(wait) as stream:
        stream.read()  # to its end, when the child is ready
    return Running(process, log, time.monotonic())


def _command(arguments: Sequence[str], folder: Path, log: Path, before: Before, ready: int) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # whoever runs the tests, nohup or a batch system, may ignore some
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    warnings.resetwarnings()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.argv = ["fsbench", *arguments]
    before()
    os.close(ready)
    main()


def run(arguments: Sequence[str], folder: Path, before: Before = lambda: None) -> Ended:
    """Run a command to its end."""
    return start(arguments, folder, before).end()


def small_files(size: int) -> Callable[[], None]:
    """Keep every file below a size, as a full disk does."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
