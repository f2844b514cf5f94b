"""Ends that come from outside: Ctrl-C, a batch system's SIGTERM, a closed terminal."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_REASONS = {"SIGINT": "Interrupted", "SIGTERM": "Ended from outside (SIGTERM)", "SIGHUP": "The terminal was closed"}


class Interrupt(BaseException):
    """A signal that ends the program in order: what is half written is removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number
        reason = _REASONS[signal.Signals(number).name]
        self.sentence = f"{reason}. What is finished is kept: the same command goes on from there."


@contextmanager
def interrupts_raise() -> Iterator[None]:
    """Let signals raise an Interrupt within the block; those that the caller ignores, as nohup does, stay ignored."""
    process = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a worker, forked before it had handlers of its own
            os._exit(128 + number)
        signal.signal(number, signal.SIG_DFL)  # a second one ends at once
        if hasattr(signal, "SIGCHLD"):  # torch raises when a worker dies: here they are meant to
            signal.signal(signal.SIGCHLD, lambda number, frame: None)
        raise Interrupt(number)

    known = [getattr(signal, name) for name in _REASONS if hasattr(signal, name)]
    usual = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: found for number in known if (found := signal.getsignal(number)) in usual}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, found in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, found)
