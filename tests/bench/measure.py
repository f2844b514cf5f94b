"""A line of the result, the bound that it must keep, and how it is timed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Bound(NamedTuple):
    """What a value must keep."""

    limit: float
    least: bool = False  # whether larger is better


NOISE = 1.15  # factor by which a value may miss its bound, as other programs run too
# By the case. The aims of the project are lower where a comment says so; docs/speed.md gives both.
BOUNDS = {
    "solve bavardage": Bound(1.35),
    "solve bavardage:released": Bound(3.7),  # aim 2.5
    "compare four methods": Bound(1.3),
    "draw tasks": Bound(5.0),
    "keep answers": Bound(1.05),
    "growth": Bound(1.3),
    "scatter, from disk": Bound(50.0, least=True),
    "extract": Bound(1.25),
    "hash images": Bound(2.0),
    "train": Bound(1.1),
    "fsbench --help": Bound(2.5),
    "fsbench solve --tasks 100": Bound(1.5),
    "fsbench doctor": Bound(1.5),
    "fsbench report of 200 records": Bound(1.7),
    "completion of an option": Bound(3.5),
    "memory of 100,000 tasks": Bound(1.3),
}


@dataclass(frozen=True)
class Measure:
    """One line of the result."""

    case: str
    against: str  # what it is a ratio to, or how it was measured
    value: float
    unit: str  # % (of a rate), ratio, tasks/s, or GB

    @property
    def bound(self) -> Bound | None:
        """What the value must keep, if it must."""
        return BOUNDS.get(self.case)

    def __str__(self) -> str:
        unit, bound = "" if self.unit == "ratio" else f" {self.unit}", ""
        if self.bound:
            bound = f", bound {'≥' if self.bound.least else '≤'} {self.bound.limit:g}{' missed' * self.missed}"
        return f"{self.case}: {self.value:,.3g}{unit} ({self.against}{bound})"

    @property
    def missed(self) -> bool:
        """Whether it misses its bound by more than noise."""
        if self.bound is None:
            return False
        limit, least = self.bound
        return self.value < limit / NOISE if least else self.value > limit * NOISE


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
