"""Synthetic features of the size of real ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import Split, make_split


@dataclass(frozen=True)
class Material:
    """Novel features, and statistics of base classes of the same kind."""

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
