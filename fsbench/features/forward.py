"""The forward pass of an extraction: images as tensors, and a network with batch normalisation folded."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.fx.experimental.optimization import fuse
from torch.utils.data import Dataset

from fsbench.backbones.networks import Extractor
from fsbench.data.dataset import BrokenImageError, ImageSplit, OutOfReachError
from fsbench.data.pixels import normalised
from fsbench.data.transforms import CropTransform, EvalTransform
from fsbench.devices import float32_products, out_of_memory, share
from fsbench.errors import FsbenchError

TOLERANCE = 1e-5


def fold(network: nn.Module, images: Tensor) -> nn.Module:
    """A copy of an eval-mode network with batch normalisation folded, if it gives the same features; else the network.

    Features are compared on `images` (B, 3, H, W), relative to their size, to 10⁻⁵.
    """
    folded = _fold_below(copy.deepcopy(network))
    with torch.inference_mode():
        expected, features = network(images), folded(images)
    same = (features - expected).abs().max() <= TOLERANCE * expected.abs().max().clamp_min(1e-30)
    return folded if bool(same) else network


def _fold_below(module: nn.Module) -> nn.Module:
    """Fold a module as a whole if its forward can be traced, else what is below it. Containers stay containers."""
    if any(True for _ in module.children()) and not isinstance(module, (nn.Sequential, nn.ModuleList)):
        with contextlib.suppress(Exception):  # a forward with decisions of its own cannot be traced, whatever it raises
            return fuse(module)
    for name, child in list(module.named_children()):
        if any(isinstance(part, nn.BatchNorm2d) for part in child.modules()):
            setattr(module, name, _fold_below(child))
    return module


class Loaded(NamedTuple):
    """Rows of images, their tensors (B, crops, ...), and by row the reasons for broken ones."""

    rows: list[int]
    tensors: Tensor
    broken: dict[int, str]


@dataclass(frozen=True)
class Images(Dataset["Loaded | FsbenchError"]):
    """All images of a data set in the order base, val, novel, by lists of rows.

    An image is bytes (1, S, S, 3) where the transform gives bytes, still to be normalised, else floats
    (crops, 3, S, S). What is out of reach, with its whole folder perhaps, is not broken but comes back as an error.
    """

    splits: tuple[ImageSplit, ...]
    transform: EvalTransform
    random_crops: CropTransform | None = None
    crops: int = 1

    def __getitem__(self, rows: list[int]) -> Loaded | FsbenchError:
        tensors: dict[int, Tensor] = {}
        broken: dict[int, str] = {}
        try:
            for row in rows:
                try:
                    tensors[row] = self._tensor(row)
                except OutOfReachError:
                    raise
                except FsbenchError as error:
                    broken[row] = error.reason if isinstance(error, BrokenImageError) else error.message
            together = torch.stack([*tensors.values()]) if tensors else torch.empty(0)
            return Loaded([*tensors], share(together), broken)
        except FsbenchError as error:  # raised in a worker process it would drag a traceback along
            return error

    def _tensor(self, row: int) -> Tensor:
        for split in self.splits:
            if row < len(split):
                break
            row -= len(split)
        image = split.open(row)
        if self.random_crops is not None:
            return self.random_crops(image, split.images[row], self.crops)
        if self.transform.on == "tensor":
            return self.transform(image)[None]
        return torch.from_numpy(self.transform.pixels(image))[None]


PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Forward:
    """The forward pass: folded, channels-last, in the chosen precision, in halves if memory runs out.

    The backbone is moved to the CPU to be folded; `batch` is the number of images at once.
    """

    def __init__(
        self, backbone: Extractor, precision: str, device: torch.device, transform: EvalTransform, batch: int
    ) -> None:
        side = transform.crop
        sample = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
        network: nn.Module = fold(backbone.cpu().eval(), sample)
        self.network = network.to(device).to(memory_format=torch.channels_last)
        self.device, self.dtype, self.batch, self.tf32 = device, PRECISIONS[precision], batch, precision == "tf32"
        self.transform = transform

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> Tensor:
        """Images (B, crops, ...) → features (B, D) on the device, the mean over the crops."""
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
                torch.cuda.empty_cache()  # cuDNN allocates beside what torch reserves
                continue
            done += len(piece)
        features: Tensor = torch.cat(pieces).unflatten(0, images.shape[:2]).mean(dim=1)
        return features

    def _features(self, images: Tensor) -> Tensor:
        inputs = images.to(self.device, non_blocking=True)
        inputs = normalised(inputs, self.transform) if inputs.dtype == torch.uint8 else inputs
        reduced = torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
        with float32_products(self.tf32), reduced:
            features: Tensor = self.network(inputs.contiguous(memory_format=torch.channels_last))
        return features.float()
