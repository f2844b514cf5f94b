"""Timing of actions in turns, so that what disturbs one disturbs all, and features to time them on."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import Split, make_split

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


@dataclass(frozen=True)
class Material:
    """Synthetic novel features, and statistics of base classes of the same kind."""

    novel: Split
    base: BaseStatistics


def draw_split(classes: int, images: int, dimension: int, seed: int = 0) -> Split:
    """Non-negative features around class means."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), images)
    means = rng.random((classes, dimension), dtype=np.float32)
    noise = rng.standard_normal((len(labels), dimension), dtype=np.float32)
    return make_split(np.maximum(means[labels] + 0.5 * noise, 0), labels)


def mini_like(dimension: int = 640) -> Material:
    """As many novel classes and images as mini-ImageNet has, and base classes with fewer images."""
    base = draw_split(64, 100, dimension, seed=1)
    return Material(draw_split(20, 600, dimension), BaseStatistics.fit(base.features, base.labels))
