"""The images of a data set as tensors, and what to do with those that are none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data import Dataset

from fsbench.data.images import OutOfReachError
from fsbench.data.workers import share
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from fsbench.data.listing import ImageSplit
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
