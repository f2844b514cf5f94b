"""The images of a data set as tensors, and what to do with those that are none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data import Dataset

from fsbench.backbones.fold import fold
from fsbench.data.images import OutOfReachError
from fsbench.devices import out_of_memory, share
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from fsbench.backbones.base import Extractor
    from fsbench.data.dataset import ImageSplit
    from fsbench.data.transforms import CropTransform, EvalTransform


Item = tuple[int, Tensor | str | OutOfReachError]


@dataclass(frozen=True)
class Images(Dataset[Item]):
    """All images of a data set in the order base, val, novel: tensors (crops, 3, H, W), or the reason why not.

    An image that is broken has a text for a reason; one that is out of reach, with its whole folder perhaps, an error.
    """

    splits: tuple[ImageSplit, ...]
    transform: EvalTransform
    random_crops: CropTransform | None
    crops: int

    def __len__(self) -> int:
        return sum(len(split) for split in self.splits)

    def __getitem__(self, row: int) -> Item:
        split, index = self.place(row)
        try:
            image = split.open(index)
            if self.random_crops is None:
                return row, self.transform(image)[None]
            return row, self.random_crops(image, split.image_name(index), self.crops)
        except OutOfReachError as error:
            return row, error
        except FsbenchError as error:
            return row, f"{split.image_name(index)}: {error.message}"

    def place(self, row: int) -> tuple[ImageSplit, int]:
        """The split of an image, and its number there."""
        for split in self.splits:
            if row < len(split):
                return split, row
            row -= len(split)
        raise IndexError(row)


def collate(items: list[Item]) -> tuple[list[int], Tensor, dict[int, str], FsbenchError | None]:
    """Image numbers, their tensors (B, crops, 3, H, W), the reasons for broken ones, and what is out of reach."""
    good = [(row, value) for row, value in items if isinstance(value, Tensor)]
    broken = {row: value for row, value in items if isinstance(value, str)}
    gone: FsbenchError | None = next((value for _, value in items if isinstance(value, OutOfReachError)), None)
    tensors = torch.stack([value for _, value in good]) if good else torch.empty(0)
    try:
        return [row for row, _ in good], share(tensors), broken, gone
    except FsbenchError as error:
        return [], torch.empty(0), {}, error


PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Forward:
    """The forward pass: folded, channels-last, in the asked-for precision, in halves if memory runs out.

    Args:
        backbone: Moved to the device.
        precision: fp32, bf16 or fp16.
        device: Where to compute.
        side: Of the images, in pixels.
        batch: Images at once.
    """

    def __init__(self, backbone: Extractor, precision: str, device: torch.device, side: int, batch: int) -> None:
        sample = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
        network: nn.Module = fold(backbone.cpu().eval(), sample)
        self.network = network.to(device).to(memory_format=torch.channels_last)
        self.device, self.dtype, self.batch = device, PRECISIONS[precision], batch

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> NDArray[np.float32]:
        """Images (B, crops, 3, H, W) → features (B, D), the mean over the crops."""
        flat = images.flatten(0, 1)
        pieces: list[Tensor] = []
        done = 0
        while done < len(flat):
            piece = flat[done : done + self.batch]
            try:
                pieces.append(self._features(piece))
            except RuntimeError as error:
                if len(piece) == 1 or not out_of_memory(error):
                    raise
                self.batch = len(piece) // 2
                continue
            done += len(piece)
        features = torch.cat(pieces).unflatten(0, images.shape[:2]).mean(dim=1)
        array: NDArray[np.float32] = features.cpu().numpy()
        return array

    def _features(self, images: Tensor) -> Tensor:
        there = images.to(self.device, non_blocking=True).contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            features: Tensor = self.network(there)
        return features.float()
