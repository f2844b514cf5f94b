"""Counter-based random numbers: word j of task i is a pure function of (seed, i, stream, j).

Philox-4x32 with ten rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
There is no state to carry, so tasks can be drawn in any order, in any batch, on any rank, and stay the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

# Streams of random numbers of one task. Redraws of attempt a use stream + a · ATTEMPT.
CLASSES, COUNTS, SUPPORT, QUERY, ORDER, PRESENT, SIZES, SHOTS = range(8)
ATTEMPT = 8
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF
_LOW = np.uint64(_MASK)
_HALF = np.uint64(32)
_ROUNDS = 10
MOST_REDRAWS = 1_000  # of proportions that the classes of a task cannot give


def philox(counter: tuple[Words, Words, Words, Words], key: int) -> tuple[Words, Words, Words, Words]:
    """Turn 128-bit counters, given as four 32-bit words, into four random words each, under a 64-bit key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key & _MASK, key >> 32 & _MASK
    for _ in range(_ROUNDS):
        product0 = c0 * _MULTIPLIERS[0]
        product1 = c2 * _MULTIPLIERS[1]
        c0 = (product1 >> _HALF) ^ c1 ^ np.uint64(k0)
        c2 = (product0 >> _HALF) ^ c3 ^ np.uint64(k1)
        c1 = product1 & _LOW
        c3 = product0 & _LOW
        k0 = (k0 + _KEY_STEPS[0]) & _MASK
        k1 = (k1 + _KEY_STEPS[1]) & _MASK
    return c0, c1, c2, c3


def words(seed: int, tasks: NDArray[np.int64], stream: int, count: int) -> Words:
    """Draw `count` random 32-bit words for every task: (B, count)."""
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    index = tasks.astype(np.uint64)[:, None]
    counter = (index & _LOW, index >> _HALF, np.full_like(index, stream), blocks)  # the rounds broadcast it
    return np.stack(philox(counter, seed), axis=-1).reshape(len(tasks), 4 * len(blocks))[:, :count]


def words_at(seed: int, tasks: NDArray[np.int64], stream: int, slots: NDArray[np.int64]) -> Words:
    """Draw single words: entry e is word `slots[e]` of task `tasks[e]`, equal to what `words` gives there."""
    index = tasks.astype(np.uint64)
    block, lane = np.divmod(slots, 4)
    counter = (index & _LOW, index >> _HALF, np.full_like(index, stream), block.astype(np.uint64))
    drawn = np.stack(philox(counter, seed), axis=-1)
    return np.take_along_axis(drawn, lane[:, None], axis=-1)[:, 0]


def below(drawn: Words, bound: NDArray[np.int64]) -> NDArray[np.int64]:
    """Map words to integers in [0, bound). The bias is at most bound / 2³², a ten-millionth for any class."""
    return ((drawn * bound.astype(np.uint64)) >> _HALF).astype(np.int64)


def uniform(drawn: Words) -> NDArray[np.float64]:
    """Map words to the open interval (0, 1)."""
    return (drawn.astype(np.float64) + 0.5) / 2.0**32


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
    drawn = words(seed, tasks, COUNTS + attempt * ATTEMPT, held)
    gamma = gammaincinv(alpha, uniform(drawn))  # Gamma(α, 1) by inversion
    total = gamma.sum(axis=1, keepdims=True)
    # A tiny α can underflow to all zeros: the largest uniform then takes everything, the limit of the law.
    winner = drawn == drawn.max(axis=1, keepdims=True)
    shares = np.where(total > 0, gamma / np.where(total > 0, total, 1.0), winner / winner.sum(axis=1, keepdims=True))
    return apportion(shares, queries)
