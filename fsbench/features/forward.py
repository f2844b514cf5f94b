"""The forward pass of an extraction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fsbench.backbones.fold import fold
from fsbench.devices import out_of_memory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from fsbench.backbones.info import Extractor

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
