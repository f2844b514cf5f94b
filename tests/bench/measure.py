"""A line of the result, the bound that it must keep, and how it is timed."""

import time
from collections.abc import Callable
from dataclasses import dataclass

NOISE = 1.15  # factor by which a value may miss its bound, as other programs run too
# By the case. The aims of the project are lower where a comment says so; docs/speed.md gives both.
BOUNDS = {
    "solve bavardage": 1.35,
    "solve bavardage:released": 3.7,  # aim 2.5
    "solve bavardage:weighted": 1.2,
    "compare four methods": 1.3,
    "draw tasks": 5.0,
    "keep answers": 1.05,
    "time of a large task": 3.0,
    "memory of a large task": 4.0,
    "scatter, from disk": 2.0,
    "extract": 1.25,
    "hash images": 2.0,
    "list images": 3.0,
    "train": 1.1,
    "fsbench --help": 2.5,
    "fsbench solve --tasks 100": 1.5,
    "fsbench doctor": 1.5,
    "fsbench report of 200 records": 1.7,
    "completion of an option": 3.5,
}


@dataclass(frozen=True)
class Measure:
    """One line of the result."""

    case: str
    against: str  # what it is a ratio to, or how it was measured
    value: float
    unit: str = ""  # % (of a rate), or tasks/s, where it is not a ratio

    def __str__(self) -> str:
        bound = f", bound ≤ {BOUNDS[self.case]:g}{' missed' * self.missed}" if self.case in BOUNDS else ""
        return f"{self.case}: {self.value:,.3g} {self.unit}".rstrip() + f" ({self.against}{bound})"

    @property
    def missed(self) -> bool:
        """Whether it misses its bound by more than noise."""
        return self.value > BOUNDS.get(self.case, float("inf")) * NOISE


def in_turns(
    repeats: int, clock: Callable[[], float] = time.perf_counter, /, **actions: Callable[[], object]
) -> dict[str, float]:
    """Least seconds of every action, in turns; each is done once before, to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(repeats + 1):
        for name, action in actions.items():
            started = clock()
            action()
            if turn:
                taken[name].append(clock() - started)
    return {name: min(seconds) for name, seconds in taken.items()}
