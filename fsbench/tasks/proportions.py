"""From class proportions to numbers of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from fsbench.tasks import random

if TYPE_CHECKING:
    Ints = NDArray[np.int64]

MOST_REDRAWS = 1_000  # of proportions that the classes of a task cannot give


def apportion(shares: NDArray[np.float64], total: int) -> Ints:
    """Turn proportions (B, K) into counts that add up to `total`: largest remainders (Hamilton) first."""
    quota = shares * total
    counts = np.floor(quota)
    missing = total - counts.sum(axis=1, keepdims=True)  # (B, 1), fewer than K
    rank = np.argsort(np.argsort(counts - quota, axis=1, kind="stable"), axis=1, kind="stable")
    whole: Ints = (counts + (rank < missing)).astype(np.int64)
    return whole


def dirichlet_counts(alpha: float, held: int, queries: int, seed: int, tasks: Ints, attempt: int) -> Ints:
    """(B, held) counts that add up to `queries`, in proportions of a Dirichlet law."""
    drawn = random.words(seed, tasks, random.COUNTS + attempt * random.ATTEMPT, held)
    gamma = gammaincinv(alpha, random.uniform(drawn))  # Gamma(α, 1) by inversion
    total = gamma.sum(axis=1, keepdims=True)
    # A tiny α can underflow to all zeros: the largest uniform then takes everything, the limit of the law.
    winner = drawn == drawn.max(axis=1, keepdims=True)
    shares = np.where(total > 0, gamma / np.where(total > 0, total, 1.0), winner / winner.sum(axis=1, keepdims=True))
    return apportion(shares, queries)
