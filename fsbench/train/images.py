"""The batches of a training: base images, decoded once, then cropped and mirrored a whole batch at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from fsbench.data.pixels import decode_into_file, decode_into_memory
from fsbench.data.transforms import EvalTransform, normalise
from fsbench.devices import share, while_workers_live
from fsbench.errors import FsbenchError
from fsbench.train import draws
from fsbench.train.settings import LEAST_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from fsbench.data.dataset import ImageSplit
    from fsbench.reporter import Reporter
    from fsbench.train.settings import TrainSettings

SMALL = 36  # up to this side, images are shifted instead of cropped
LEAST_AREA = 0.35  # share of an image that a crop covers at least
FITS_IN_MEMORY = 1 << 30  # bytes of decoded images


class Key(NamedTuple):
    """The images of a step, and the side in pixels at which it sees them."""

    epoch: int
    rows: NDArray[np.int64]
    side: int


class Batch(NamedTuple):
    """What a step takes: images (B, 3, S, S), their labels (B,), and quarter turns (B,) still to be applied."""

    images: Tensor
    labels: Tensor
    turns: Tensor


@dataclass(frozen=True)
class Keys:
    """The keys of the steps of one rank, epoch after epoch. Images that do not fill a batch are left out of the epoch.

    Attributes:
        images: Number of base images.
        side: Of the images, in pixels.
        first: The epoch and the step to begin with.
    """

    settings: TrainSettings
    images: int
    side: int
    rank: int = 0
    first: tuple[int, int] = (0, 0)

    @property
    def batch(self) -> int:
        """Images per step over all ranks: as asked for, or all there are."""
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
        first_epoch, first_step = self.first
        for epoch in range(first_epoch, self.settings.epochs):
            rows = draws.order(self.settings.seed, epoch, self.images)[: self.steps * self.batch]
            side = self.settings.side_in(epoch, self.side)
            for step in rows.reshape(self.steps, self.batch)[first_step if epoch == first_epoch else 0 :]:
                yield Key(epoch, step[self.rank :: self.settings.ranks], side)


class DecodedImages:
    """The images of a split as squares of one side: decoded once, or whenever asked for if they have no place."""

    def __init__(self, split: ImageSplit, side: int) -> None:
        self.split, self.side = split, side
        self._square = EvalTransform("exact", side, side, mean=(0, 0, 0), std=(1, 1, 1))
        self._kept: tuple[NDArray[np.uint8], NDArray[np.float64]] | None = None

    def __getitem__(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """Pixels (B, side, side, 3) and aspect ratios (B,), width/height."""
        if self._kept is not None:
            pixels, aspects = self._kept
            return pixels[rows], aspects[rows]
        images = [self.split.open(int(row)) for row in rows]
        return np.stack([*map(self._square.pixels, images)]), np.array([image.width / image.height for image in images])

    def keep(self, reporter: Reporter, cache: Path | None = None, limit: int = FITS_IN_MEMORY) -> bool:
        """Decode all images into a file in the cache, or into memory unless they take more bytes than the limit."""
        kept = None if cache is None else decode_into_file(self.split, self._square, cache, reporter)
        if kept is None and len(self.split) * self.side**2 * 3 <= limit:
            kept = decode_into_memory(self.split, self._square, reporter)
        if kept is not None:
            self._kept = kept.pixels, kept.sizes[:, 0] / kept.sizes[:, 1]
        return kept is not None


class Views(Dataset["Batch | FsbenchError"]):
    """The batches of a training, by key; an image that cannot be read comes back as the error that says so.

    Small images are the evaluation's centre crop, shifted by up to an eighth of its side, with mirrored edges. Others
    are random parts of the image. Crop, flip and resize are one bilinear sampling of the whole batch.

    Args:
        images: The base images, as squares of the transform's size.
        transform: The evaluation transform, whose crop and normalisation training shares.
    """

    def __init__(self, images: DecodedImages, transform: EvalTransform, settings: TrainSettings) -> None:
        self.images, self.transform, self.settings = images, transform, settings
        self.labels = torch.from_numpy(images.split.labels)

    def __getitem__(self, key: Key) -> Batch | FsbenchError:
        try:
            pixels, aspects = self.images[key.rows]
            images = share(self._sample(pixels, aspects, key))
        except FsbenchError as error:  # raised in a worker process it would drag a traceback along
            return error
        turns = draws.turns(self.settings.seed, key.epoch, key.rows)
        return Batch(images, self.labels[key.rows], torch.from_numpy(turns))

    def _sample(self, pixels: NDArray[np.uint8], aspects: NDArray[np.float64], key: Key) -> Tensor:
        centres, sizes = self._boxes(aspects, key)
        mirrored = draws.flips(self.settings.seed, key.epoch, key.rows) & self.settings.flip
        affine = np.zeros((len(pixels), 2, 3), dtype=np.float32)  # from the result's [-1, 1]² to the image's
        affine[:, 0, 0] = np.where(mirrored, -sizes[:, 0], sizes[:, 0])
        affine[:, 1, 1] = sizes[:, 1]
        affine[:, :, 2] = 2 * centres - 1
        shape = [len(pixels), 3, key.side, key.side]
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


def make_views(
    split: ImageSplit,
    transform: EvalTransform,
    settings: TrainSettings,
    reporter: Reporter,
    cache: Path | None = None,
) -> tuple[Views, bool]:
    """The views of the base images, and whether the images are decoded: in a file of the cache or in memory."""
    images = DecodedImages(split, transform.size)
    return Views(images, transform, settings), images.keep(reporter, cache)


def load_batches(
    views: Views, keys: Iterable[Key], workers: int, device: torch.device
) -> Iterator[Batch | FsbenchError]:
    """The batches of all remaining steps, one after the other."""
    loader: DataLoader[Batch | FsbenchError] = DataLoader(
        views, batch_size=None, sampler=keys, num_workers=workers, pin_memory=device.type == "cuda"
    )
    return while_workers_live(loader)
