"""Cases run in a process of their own, so that a crash, a hang or a flood of memory is an outcome like any other."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SECONDS = 180.0  # to wait for one case, however busy the machine is
CPU_SECONDS = 10.0  # that one case may take
MEGABYTES = 700  # that one case may add


@dataclass(frozen=True)
class Outcome:
    """How a case ended: `accepted`, `refused`, or what is wrong with it."""

    case: int
    kind: str
    told: str = ""

    @property
    def sound(self) -> bool:
        return self.kind in {"accepted", "refused"}


def run_cases(cases: Sequence[int], run: Callable[[int], Outcome]) -> list[Outcome]:
    """Run all cases, in as many processes as it takes."""
    outcomes: list[Outcome] = []
    left = list(cases)
    while left:
        done = _run_until_trouble(left, run)
        outcomes += done
        left = left[len(done) :]
    return outcomes


def _run_until_trouble(cases: Sequence[int], run: Callable[[int], Outcome]) -> list[Outcome]:
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _work(cases, run, writer)
    os.close(writer)
    outcomes, text, hung = [], b"", False
    while True:
        ready, _, _ = select.select([reader], [], [], SECONDS)
        if not ready:
            hung = True
            os.kill(child, signal.SIGKILL)
            break
        piece = os.read(reader, 1 << 16)
        if not piece:
            break
        text += piece
        *lines, text = text.split(b"\n")
        outcomes += [Outcome(**json.loads(line)) for line in lines]
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if len(outcomes) < len(cases):
        kind = "hang" if hung else "crash"
        outcomes.append(Outcome(cases[len(outcomes)], kind, f"status {status}"))
    return outcomes


def _work(cases: Sequence[int], run: Callable[[int], Outcome], writer: int) -> None:
    for case in cases:
        before, start = peak(), time.process_time()
        outcome = run(case)
        if (grown := peak() - before) > MEGABYTES:
            outcome = Outcome(case, "memory", f"{grown} MB")
        if (seconds := time.process_time() - start) > CPU_SECONDS:
            outcome = Outcome(case, "slow", f"{seconds:.0f} s")
        os.write(writer, json.dumps(vars(outcome)).encode() + b"\n")
    os._exit(0)


def peak() -> int:
    """The most memory this process has had, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def judged(case: int, action: Callable[[], bool], names: str) -> Outcome:
    """Do something with a damaged file: it must work, or be refused by an error that names it and says what to do.

    Args:
        case: Its number.
        action: Says whether what it read is right.
        names: What the message must contain.
    """
    try:
        right = action()
    except FsbenchError as error:
        if names not in error.message:
            return Outcome(case, "unnamed", error.message)
        return Outcome(case, "refused" if error.hint else "no remedy", error.message)
    except BaseException:
        return Outcome(case, "traceback", traceback.format_exc()[-1500:])
    return Outcome(case, "accepted" if right else "wrong", "")


def read_in_child(path: Path, read: Callable[[Path], object]) -> Outcome:
    """What comes of reading a file in a process whose time and memory are watched."""
    return run_cases([0], lambda case: judged(case, lambda: bool(read(path)), path.name))[0]


def refused(path: Path, read: Callable[[Path], object]) -> str:
    """What is said of a file that must be refused."""
    found = read_in_child(path, read)
    assert found.kind == "refused", f"{found.kind}: {found.told}"
    return found.told
