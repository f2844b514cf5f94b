"""Every random choice of a training, as a pure function of (seed, epoch, image) or (seed, epoch, step).

Nothing is carried from one draw to the next, so neither workers nor an interruption can change one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fsbench.tasks.random import below, uniform, words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_KINDS = 8  # streams of random numbers per epoch
_ORDER, _SHIFT, _FLIP, _TURN, _MIX = range(5)
QUARTER_TURNS = 4


@dataclass(frozen=True)
class Mixing:
    """How one step mixes the images of its batch.

    Attributes:
        position: Number of stages that come before the mixing; 0 mixes the images themselves.
        share: λ, the part of the image itself.
        partners: (B,) the image that makes up the rest, a permutation of the batch.
    """

    position: int
    share: float
    partners: Ints


def order(seed: int, epoch: int, images: int) -> Ints:
    """The images in the random order of an epoch."""
    return np.argsort(words(seed, np.arange(images), _stream(epoch, _ORDER), 1)[:, 0], kind="stable")


def shifts(seed: int, epoch: int, rows: Ints, choices: int) -> Ints:
    """(B, 2) how far each image is moved down and to the right, in [0, choices)."""
    drawn = words(seed, rows, _stream(epoch, _SHIFT), 2)
    return below(drawn, np.full_like(drawn, choices, dtype=np.int64))


def flips(seed: int, epoch: int, rows: Ints) -> NDArray[np.bool_]:
    """(B,) whether each image is mirrored."""
    mirrored: NDArray[np.bool_] = words(seed, rows, _stream(epoch, _FLIP), 1)[:, 0] % 2 == 1
    return mirrored


def turns(seed: int, epoch: int, rows: Ints) -> Ints:
    """(B,) by how many quarter turns each image is rotated."""
    return (words(seed, rows, _stream(epoch, _TURN), 1)[:, 0] % QUARTER_TURNS).astype(np.int64)


def mixing(seed: int, epoch: int, step: int, stages: int, images: int) -> Mixing:
    """How a step mixes; λ follows Beta(2, 2), the law of the middle one of three uniform numbers."""
    drawn = words(seed, np.array([step]), _stream(epoch, _MIX), 4 + images)[0]
    position = below(drawn[:1], np.array([stages + 1]))[0]
    share = float(np.median(uniform(drawn[1:4])))
    return Mixing(int(position), share, np.argsort(drawn[4:], kind="stable"))


def _stream(epoch: int, kind: int) -> int:
    return epoch * _KINDS + kind
