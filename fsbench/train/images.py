"""The batches of a training: base images, decoded once, then cropped and mirrored a whole batch at a time.

Every random choice (order, augmentation, rotations, mixup) is a pure function of (seed, epoch, image) or (seed, epoch,
step). No draw depends on an earlier one: interruptions change none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fsbench.data.dataset import ImageSplit
from fsbench.data.pixels import Decoded, decode
from fsbench.data.transforms import EvalTransform, normalise
from fsbench.devices import moved
from fsbench.errors import FsbenchError
from fsbench.reporter import Reporter
from fsbench.tasks.random import below, uniform, words
from fsbench.train.settings import LEAST_SHARE, TrainSettings

SMALL = 36  # up to this side, images are shifted instead of cropped
LEAST_AREA = 0.35  # share of an image that a crop covers at least
QUARTER_TURNS = 4
WIDEST = 4 / 3  # aspect ratio of a crop, and its inverse the narrowest

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_KINDS = 8  # streams of random numbers per epoch
_ORDER, _SHIFT, _FLIP, _TURN, _MIX, _CROP = range(6)


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


class Key(NamedTuple):
    """The images of a step, and the epoch that their augmentation is drawn for."""

    epoch: int
    rows: Ints


class Batch(NamedTuple):
    """What a step takes: images (B, 3, S, S), their labels (B,), and quarter turns (B,) still to be applied."""

    images: Tensor
    labels: Tensor
    turns: Tensor


@dataclass(frozen=True)
class Keys:
    """The keys of the steps of one rank from epoch `first` on; a last, incomplete batch of an epoch is left out."""

    settings: TrainSettings
    images: int
    rank: int = 0
    first: int = 0

    @property
    def batch(self) -> int:
        """Images per step over all ranks: as chosen, or all there are."""
        fitting = self.images // self.settings.ranks * self.settings.ranks
        if fitting < LEAST_SHARE * self.settings.ranks:
            hint = f"Batch normalisation needs {LEAST_SHARE} images in each process."
            raise FsbenchError(f"{self.images} base image(s) are too few to train on.", hint)
        return min(self.settings.batch, fitting)

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return self.images // self.batch

    def __iter__(self) -> Iterator[Key]:
        for epoch in range(self.first, self.settings.epochs):
            rows = order(self.settings.seed, epoch, self.images)[: self.steps * self.batch]
            for step in rows.reshape(self.steps, self.batch):
                yield Key(epoch, step[self.rank :: self.settings.ranks])


class Views:
    """The batches of a training, by key, from images decoded to squares of the size of the evaluation transform.

    Small images are the evaluation's centre crop, shifted by up to an eighth of its side, with mirrored edges. Others
    are random parts of the image. Crop, flip and resize are one bilinear sampling of the whole batch.
    """

    def __init__(self, labels: Ints, decoded: Decoded, transform: EvalTransform, settings: TrainSettings) -> None:
        self.labels, self.decoded = labels, decoded
        self.transform, self.settings = transform, settings

    def batch(self, key: Key, device: torch.device) -> Batch:
        """The batch of a key: images go to the device as bytes, and are sampled there."""
        drawn = turns(self.settings.seed, key.epoch, key.rows)
        arrays = self.decoded.pixels[key.rows], self._affine(key), self.labels[key.rows], drawn
        pixels, affine, labels, turned = (moved(torch.from_numpy(array), device) for array in arrays)
        shape = [len(pixels), 3, self.transform.crop, self.transform.crop]
        grid = functional.affine_grid(affine, shape, align_corners=False)
        images = normalise(pixels.permute(0, 3, 1, 2).float() / 255, self.transform.mean, self.transform.std)
        sampled = functional.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
        return Batch(sampled, labels, turned)

    def _affine(self, key: Key) -> NDArray[np.float32]:
        """(B, 2, 3) from the result's [-1, 1]² to the image's."""
        seed, size, crop = self.settings.seed, self.transform.size, self.transform.crop
        if crop > SMALL:
            width, height = self.decoded.sizes[key.rows].T
            centres, sizes = crops(seed, key.epoch, key.rows, width / height, LEAST_AREA)
        else:
            reach = crop // 8
            start = shifts(seed, key.epoch, key.rows, 2 * reach + 1) - reach + round((size - crop) / 2)
            centres, sizes = (start + crop / 2) / size, np.full(start.shape, crop / size)
        mirrored = flips(seed, key.epoch, key.rows) & self.settings.flip
        affine = np.zeros((len(sizes), 2, 3), dtype=np.float32)
        affine[:, 0, 0] = np.where(mirrored, -sizes[:, 0], sizes[:, 0])
        affine[:, 1, 1] = sizes[:, 1]
        affine[:, :, 2] = 2 * centres - 1
        return affine


def make_views(
    split: ImageSplit, transform: EvalTransform, settings: TrainSettings, reporter: Reporter, cache: Path | None = None
) -> Views:
    """The views of the base images, decoded into a file of the cache, or into memory where there is none."""
    square = EvalTransform("exact", transform.size, transform.size, mean=(0, 0, 0), std=(1, 1, 1))
    return Views(split.labels, decode(split, square, cache, reporter), transform, settings)
