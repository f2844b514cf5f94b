"""The batches of a training: base images, decoded once, then cropped and mirrored a whole batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from fsbench.data.dataset import ImageSplit
from fsbench.data.pixels import Decoded, decode_into_file, decode_into_memory
from fsbench.data.transforms import EvalTransform, normalise
from fsbench.devices import share, while_workers_live
from fsbench.errors import FsbenchError
from fsbench.train import draws
from fsbench.train.settings import LEAST_SHARE, TrainSettings

if TYPE_CHECKING:
    from fsbench.reporter import Reporter

SMALL = 36  # up to this side, images are shifted instead of cropped
LEAST_AREA = 0.35  # share of an image that a crop covers at least
FITS_IN_MEMORY = 1 << 30  # bytes of decoded images


class Key(NamedTuple):
    """The images of a step, and the epoch that their augmentation is drawn for."""

    epoch: int
    rows: NDArray[np.int64]


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
            raise FsbenchError(
                f"{self.images} base image(s) are too few to train on with {self.settings.ranks} process(es).",
                f"Batch normalisation needs {LEAST_SHARE} images in each process.",
            )
        return min(self.settings.batch, fitting)

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return self.images // self.batch

    def __iter__(self) -> Iterator[Key]:
        for epoch in range(self.first, self.settings.epochs):
            rows = draws.order(self.settings.seed, epoch, self.images)[: self.steps * self.batch]
            for step in rows.reshape(self.steps, self.batch):
                yield Key(epoch, step[self.rank :: self.settings.ranks])


class Views(Dataset["Batch | FsbenchError"]):
    """The batches of a training, by key; an image that cannot be read comes back as the error that says so.

    Small images are the evaluation's centre crop, shifted by up to an eighth of its side, with mirrored edges. Others
    are random parts of the image. Crop, flip and resize are one bilinear sampling of the whole batch.

    Args:
        split: The base images.
        transform: The evaluation transform, whose crop and normalisation training shares.
        settings: Of the training.
        decoded: The images as squares of the transform's size; None decodes them whenever they are needed.
    """

    def __init__(
        self, split: ImageSplit, transform: EvalTransform, settings: TrainSettings, decoded: Decoded | None = None
    ) -> None:
        self.split, self.transform, self.settings, self.decoded = split, transform, settings, decoded
        self.labels = torch.from_numpy(split.labels)

    def __getitem__(self, key: Key) -> Batch | FsbenchError:
        try:
            images = share(self._sample(*self._squares(key.rows), key))
        except FsbenchError as error:  # raised in a worker process it would drag a traceback along
            return error
        turns = draws.turns(self.settings.seed, key.epoch, key.rows)
        return Batch(images, self.labels[key.rows], torch.from_numpy(turns))

    def _squares(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """Pixels (B, side, side, 3) and aspect ratios (B,), width/height."""
        if self.decoded is not None:
            sizes = self.decoded.sizes[rows]
            return self.decoded.pixels[rows], sizes[:, 0] / sizes[:, 1]
        images = [self.split.open(int(row)) for row in rows]
        square = _square(self.transform.size)
        return np.stack([*map(square.pixels, images)]), np.array([image.width / image.height for image in images])

    def _sample(self, pixels: NDArray[np.uint8], aspects: NDArray[np.float64], key: Key) -> Tensor:
        centres, sizes = self._boxes(aspects, key)
        mirrored = draws.flips(self.settings.seed, key.epoch, key.rows) & self.settings.flip
        affine = np.zeros((len(pixels), 2, 3), dtype=np.float32)  # from the result's [-1, 1]² to the image's
        affine[:, 0, 0] = np.where(mirrored, -sizes[:, 0], sizes[:, 0])
        affine[:, 1, 1] = sizes[:, 1]
        affine[:, :, 2] = 2 * centres - 1
        shape = [len(pixels), 3, self.transform.crop, self.transform.crop]
        grid = functional.affine_grid(torch.from_numpy(affine), shape, align_corners=False)
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
        images = normalise(images, self.transform.mean, self.transform.std)
        return functional.grid_sample(images, grid, padding_mode="reflection", align_corners=False)

    def _boxes(self, aspects: NDArray[np.float64], key: Key) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Centres and sizes (B, 2) of the parts of the images that are taken, in shares of the image."""
        seed, size, crop = self.settings.seed, self.transform.size, self.transform.crop
        if crop > SMALL:
            return draws.crops(seed, key.epoch, key.rows, aspects, LEAST_AREA)
        reach = crop // 8
        start = draws.shifts(seed, key.epoch, key.rows, 2 * reach + 1) - reach + round((size - crop) / 2)
        return (start + crop / 2) / size, np.full(start.shape, crop / size)


def _square(side: int) -> EvalTransform:
    return EvalTransform("exact", side, side, mean=(0, 0, 0), std=(1, 1, 1))


def make_views(
    split: ImageSplit, transform: EvalTransform, settings: TrainSettings, reporter: Reporter, cache: Path | None = None
) -> Views:
    """The views of the base images, decoded into a file of the cache, or into memory if they fit."""
    square = _square(transform.size)
    decoded = None if cache is None else decode_into_file(split, square, cache, reporter)
    if decoded is None and len(split) * transform.size**2 * 3 <= FITS_IN_MEMORY:
        decoded = decode_into_memory(split, square, reporter)
    return Views(split, transform, settings, decoded)


def load_batches(
    views: Views, keys: Iterable[Key], workers: int, device: torch.device
) -> Iterator[Batch | FsbenchError]:
    """The batches of all remaining steps, one after the other."""
    loader: DataLoader[Batch | FsbenchError] = DataLoader(
        views, batch_size=None, sampler=keys, num_workers=workers, pin_memory=device.type == "cuda"
    )
    return while_workers_live(loader)
