"""Base images as the network sees them in training: cropped, shifted or mirrored at random, then normalised."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from fsbench.data.recipes import crops_for
from fsbench.data.transforms import normalise
from fsbench.devices import share
from fsbench.errors import FsbenchError
from fsbench.train import draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fsbench.data.dataset import ImageSplit
    from fsbench.data.transforms import CropTransform, EvalTransform
    from fsbench.reporter import Reporter
    from fsbench.train.settings import TrainSettings

    Pixels = NDArray[np.uint8]  # (height, width, 3)

SMALL = 36  # up to this side images are shifted, not cropped and enlarged
FITS_IN_MEMORY = 1 << 30  # bytes of decoded images
_PROBED = 64  # images that stand for the size of all
_READ_AT_ONCE = 256


class Key(NamedTuple):
    """Which images a step takes."""

    epoch: int
    rows: NDArray[np.int64]


class Batch(NamedTuple):
    """What a step takes: images (B, 3, S, S), their labels (B,), and quarter turns (B,) still to be applied."""

    images: Tensor
    labels: Tensor
    turns: Tensor


class Pictures:
    """The decoded images of a split, read once if they fit into memory, else whenever they are asked for.

    Args:
        split: The images.
        side: Resize them to squares of this side when they are read; None leaves them as they are.
    """

    def __init__(self, split: ImageSplit, side: int | None) -> None:
        self.split, self.side = split, side
        self._kept: list[Pixels] = []

    def __getitem__(self, row: int) -> Pixels:
        return self._kept[row] if self._kept else self._read(row)

    def keep(self, reporter: Reporter, limit: int = FITS_IN_MEMORY) -> bool:
        """Read all images into memory, unless that would take more bytes than the limit."""
        probed = range(0, len(self.split), -(-len(self.split) // _PROBED))
        if sum(self._read(row).nbytes for row in probed) / len(probed) * len(self.split) > limit:
            return False
        kept: list[Pixels] = []
        with reporter.bar("reading images", len(self.split)) as advance, ThreadPoolExecutor() as pool:
            for start in range(0, len(self.split), _READ_AT_ONCE):
                part = range(start, min(start + _READ_AT_ONCE, len(self.split)))
                kept += pool.map(self._read, part)
                advance(len(part))
        self._kept = kept
        return True

    def _read(self, row: int) -> Pixels:
        image = self.split.open(row)
        if self.side is not None:
            image = image.resize((self.side, self.side), Image.Resampling.BILINEAR)
        return np.array(image, dtype=np.uint8)


class Crops(Protocol):
    """Takes a random part of every image of a step."""

    def __call__(self, pictures: Pictures, key: Key) -> Tensor:
        """Normalised images (B, 3, S, S)."""


@dataclass(frozen=True)
class ShiftedCrops:
    """For small images: the evaluation's crop, shifted by up to an eighth of its side; edges are mirrored."""

    transform: EvalTransform
    seed: int

    def __call__(self, pictures: Pictures, key: Key) -> Tensor:
        """Normalised images (B, 3, S, S)."""
        side, crop = self.transform.size, self.transform.crop
        whole = np.stack([pictures[row] for row in key.rows])  # (B, side, side, 3)
        start = draws.shifts(self.seed, key.epoch, key.rows, 2 * (crop // 8) + 1)  # (B, 2)
        start += round((side - crop) / 2) - crop // 8
        places = start[:, :, None] + np.arange(crop)  # (B, 2, crop)
        places = (side - 1) - np.abs((side - 1) - np.abs(places))  # mirrored at both edges
        down, right = places[:, 0, :, None], places[:, 1, None, :]
        taken = whole[np.arange(len(whole))[:, None, None], down, right]  # (B, crop, crop, 3)
        pixels = torch.from_numpy(taken).permute(0, 3, 1, 2).float() / 255
        return normalise(pixels, self.transform.mean, self.transform.std)


@dataclass(frozen=True)
class ResizedCrops:
    """For ordinary images: a random part of random shape, resized to a square."""

    transform: CropTransform

    def __call__(self, pictures: Pictures, key: Key) -> Tensor:
        """Normalised images (B, 3, S, S)."""
        parts = []
        for row in key.rows:
            image, name = Image.fromarray(pictures[row]), pictures.split.image_name(row)
            parts.append(self.transform(image, name, 1, start=key.epoch))
        return torch.cat(parts)


class Views(Dataset["Batch | FsbenchError"]):
    """The batches of a training, by key; what cannot be read comes back as the error that says so."""

    def __init__(self, pictures: Pictures, crops: Crops, settings: TrainSettings) -> None:
        self.pictures, self.crops, self.settings = pictures, crops, settings
        self.labels = torch.from_numpy(pictures.split.labels)

    def __getitem__(self, key: Key) -> Batch | FsbenchError:
        seed, (epoch, rows) = self.settings.seed, key
        try:
            images = self.crops(self.pictures, key)
        except FsbenchError as error:  # raised in a worker process it would drag a traceback along
            return error
        if self.settings.flip:
            flipped = torch.from_numpy(draws.flips(seed, epoch, rows))
            images = torch.where(flipped[:, None, None, None], images.flip(3), images)
        try:
            images = share(images)
        except FsbenchError as error:
            return error
        return Batch(images, self.labels[rows], torch.from_numpy(draws.turns(seed, epoch, rows)))


def make_views(
    split: ImageSplit, transform: EvalTransform, dataset: str, settings: TrainSettings, reporter: Reporter
) -> tuple[Views, bool]:
    """The views of the base images, and whether the images are in memory.

    Args:
        split: The base images.
        transform: The evaluation transform: size and normalisation are the same in training.
        dataset: Name of the data set.
        settings: Of the training.
        reporter: Shows how far reading is.
    """
    small = transform.crop <= SMALL
    pictures = Pictures(split, transform.size if small else None)
    crops: Crops
    if small:
        crops = ShiftedCrops(transform, settings.seed)
    else:
        crops = ResizedCrops(crops_for(transform, dataset, settings.seed))
    return Views(pictures, crops, settings), pictures.keep(reporter)
