"""Synthetic features with the traits that matter: non-negative, anisotropic within classes, classes of unequal size."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import FeatureFile, Provenance, Split, make_split, write_features


@dataclass(frozen=True)
class Features:
    """Base, val and novel splits drawn from one law."""

    base: Split
    val: Split
    novel: Split

    @property
    def statistics(self) -> BaseStatistics:
        return BaseStatistics.fit(self.base.features, self.base.labels)

    def write(self, path: Path, dataset: str = "synthetic", backbone: str = "none") -> Path:
        write_features(path, Provenance(dataset, backbone), {"base": self.base, "val": self.val, "novel": self.novel})
        return path


def feature_file(path: Path, made: Provenance | None = None, **splits: Split) -> FeatureFile:
    """Write splits, and open the file."""
    write_features(path, made or Provenance("own", "none"), splits)
    return FeatureFile.open(path)


def make_features(dimension: int = 48, seed: int = 0, classes: tuple[int, int, int] = (16, 8, 10)) -> Features:
    """Classes are Gaussian around their means, with one anisotropic covariance, cut at zero like after a ReLU."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
    within = rotation * np.geomspace(1.6, 0.2, dimension) @ rotation.T
    named = zip(("base", "val", "novel"), classes, strict=True)
    return Features(*(_draw(rng, name, count, dimension, within) for name, count in named))


def _draw(rng: np.random.Generator, name: str, classes: int, dimension: int, within: NDArray[np.float64]) -> Split:
    sizes = rng.integers(40, 61, size=classes)
    labels = np.repeat(np.arange(classes), sizes)
    means = rng.normal(size=(classes, dimension)) * 0.45 + 0.8
    rows = np.maximum(means[labels] + rng.normal(size=(len(labels), dimension)) @ within, 0.0)
    return make_split(rows.astype(np.float32), labels, [f"{name}{c:02d}" for c in range(classes)])
