"""Timing of actions in turns, so that what disturbs one disturbs all."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Measure:
    """One line of the result.

    Attributes:
        case: What was measured.
        against: What it is a ratio to, or how it was measured.
        value: The number.
        unit: × (times as fast), % (of a rate), ratio, or GB.
    """

    case: str
    against: str
    value: float
    unit: str


def in_turns(repeats: int, **actions: Callable[[], object]) -> dict[str, float]:
    """Median seconds of every action; each is done once before, to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(repeats + 1):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            if turn:
                taken[name].append(time.perf_counter() - started)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}
