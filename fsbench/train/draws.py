"""Every random choice of a training: a pure function of (seed, epoch, image) or (seed, epoch, step).

Order, augmentation, rotations, mixup. No draw depends on an earlier one: workers and interruptions change none.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsbench.tasks.random import below, uniform, words

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_KINDS = 8  # streams of random numbers per epoch
_ORDER, _SHIFT, _FLIP, _TURN, _MIX, _CROP = range(6)
QUARTER_TURNS = 4
WIDEST = 4 / 3  # aspect ratio of a crop, and its inverse the narrowest


class Mixing(NamedTuple):
    """How one step mixes the images of its batch."""

    position: int  # number of stages before the mixing; 0 mixes the images themselves
    share: float  # λ, the weight of the image itself
    partners: Ints  # (B,) the image that makes up the rest, a permutation of the batch


def order(seed: int, epoch: int, images: int) -> Ints:
    """The images in the random order of an epoch."""
    return np.argsort(words(seed, np.arange(images), _stream(epoch, _ORDER), 1)[:, 0], kind="stable")


def shifts(seed: int, epoch: int, rows: Ints, choices: int) -> Ints:
    """(B, 2) how far each image is moved to the right and down, in [0, choices)."""
    drawn = words(seed, rows, _stream(epoch, _SHIFT), 2)
    return below(drawn, np.full_like(drawn, choices, dtype=np.int64))


def crops(seed: int, epoch: int, rows: Ints, aspects: Floats, least_area: float) -> tuple[Floats, Floats]:
    """Random crops of images whose width/height is given: their centres and their sizes, both (B, 2) as (x, y).

    Positions run from 0 to 1 across the image. A crop covers a share of the area between `least_area` and 1 with an
    aspect ratio, in the image's own geometry, between 3/4 and 4/3; a side that does not fit is cut to the image.
    """
    area, shape, right, down = uniform(words(seed, rows, _stream(epoch, _CROP), 4)).T
    area = least_area + area * (1 - least_area)
    ratio = np.exp((2 * shape - 1) * math.log(WIDEST)) / aspects  # width/height in shares of the image
    sizes = np.minimum(np.sqrt(np.stack([area * ratio, area / ratio], axis=1)), 1.0)
    return sizes / 2 + np.stack([right, down], axis=1) * (1 - sizes), sizes


def flips(seed: int, epoch: int, rows: Ints) -> NDArray[np.bool_]:
    """(B,) whether each image is mirrored."""
    mirrored: NDArray[np.bool_] = words(seed, rows, _stream(epoch, _FLIP), 1)[:, 0] % 2 == 1
    return mirrored


def turns(seed: int, epoch: int, rows: Ints) -> Ints:
    """(B,) by how many quarter turns each image is rotated."""
    return (words(seed, rows, _stream(epoch, _TURN), 1)[:, 0] % QUARTER_TURNS).astype(np.int64)


def mixing(seed: int, epoch: int, step: int, stages: int, images: int) -> Mixing:
    """How a step mixes; λ follows Beta(2, 2), the law of the median of three uniform numbers."""
    drawn = words(seed, np.array([step]), _stream(epoch, _MIX), 4 + images)[0]
    position = int(below(drawn[:1], np.array([stages + 1]))[0])
    return Mixing(position, float(np.median(uniform(drawn[1:4]))), np.argsort(drawn[4:], kind="stable"))


def _stream(epoch: int, kind: int) -> int:
    return epoch * _KINDS + kind
