"""Wide residual networks of the few-shot field: two variants that look alike and compute different things."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from timm.models import register_model
from torch import nn
from torch.nn import functional

from fsbench.backbones.base import Backbone, refuse_options
from fsbench.backbones.families import SHAPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

STANDARD_WIDTHS = SHAPES["wrn"].standard["widths"]
STANDARD_BLOCKS = SHAPES["wrn"].standard["blocks"]


class PreactivationBlock(nn.Module):
    """Two 3×3 convolutions, each after batch norm and ReLU, beside the identity or a strided 1×1 shortcut.

    With bias it is SimpleShot's block: all convolutions have a bias, the second one has the stride, and the shortcut
    reads the raw input. Without it is S2M2's: the first convolution has the stride, and the shortcut reads the input
    after batch norm and ReLU.
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int, bias: bool) -> None:
        super().__init__()
        first, second = (1, stride) if bias else (stride, 1)
        self.shortcut_reads_raw = bias
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, first, padding=1, bias=bias)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, second, padding=1, bias=bias)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, stride, bias=bias))

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (B, C_in, h, w) to (B, C_out, h / stride, w / stride), rounded up."""
        activated = functional.relu(self.bn1(maps))
        out: Tensor = self.conv2(functional.relu(self.bn2(self.conv1(activated))))
        raw = self.shortcut_reads_raw or len(self.shortcut) == 0  # an identity always passes on the raw input
        shortcut: Tensor = self.shortcut(maps if raw else activated)
        return out + shortcut


class WideResNet(Backbone):
    """WRN-28-10 of SimpleShot and TIM (with bias) or of S2M2 and PT-MAP (without), at any width and depth.

    Features are at least zero.

    Args:
        widths: Channels of the stem and of the three stages.
        blocks: Residual blocks per stage; the depth is 6 times that plus 4.
        bias: Which variant, see `PreactivationBlock`.
        max_pool: Take the maximum over positions in place of the average, as LibFewShot does.
    """

    def __init__(self, widths: Sequence[int], blocks: int, bias: bool = True, max_pool: bool = False) -> None:
        super().__init__()
        self.max_pool = max_pool
        self.conv1 = nn.Conv2d(3, widths[0], 3, padding=1, bias=bias)
        self.layer1 = _stage(widths[0], widths[1], 1, blocks, bias)
        self.layer2 = _stage(widths[1], widths[2], 2, blocks, bias)
        self.layer3 = _stage(widths[2], widths[3], 2, blocks, bias)
        self.bn1 = nn.BatchNorm2d(widths[3])
        self.feature_dim = widths[3]

    def stem(self, images: Tensor) -> Tensor:
        """One convolution, with neither batch norm nor ReLU after it."""
        maps: Tensor = self.conv1(images)
        return maps

    def stages(self) -> tuple[nn.Module, ...]:
        """The three stages."""
        return self.layer1, self.layer2, self.layer3

    def pool(self, maps: Tensor) -> Tensor:
        """Batch norm and ReLU, then the average (or maximum) over positions: (B, D, h, w) to (B, D)."""
        activated = functional.relu(self.bn1(maps))
        return torch.amax(activated, dim=(2, 3)) if self.max_pool else super().pool(activated)


def _stage(channels_in: int, channels_out: int, stride: int, blocks: int, bias: bool) -> nn.Sequential:
    rest = [PreactivationBlock(channels_out, channels_out, 1, bias) for _ in range(blocks - 1)]
    return nn.Sequential(PreactivationBlock(channels_in, channels_out, stride, bias), *rest)


@register_model
def fsbench_wrn(widths: Sequence[int] = STANDARD_WIDTHS, blocks: int = STANDARD_BLOCKS, **asked: object) -> WideResNet:
    """Wide ResNet as in SimpleShot and TIM; `widths` gives the channels of the stem and the three stages."""
    refuse_options("fsbench_wrn", asked)
    return WideResNet(widths, blocks)


@register_model
def fsbench_wrn_s2m2(
    widths: Sequence[int] = STANDARD_WIDTHS, blocks: int = STANDARD_BLOCKS, max_pool: bool = False, **asked: object
) -> WideResNet:
    """Wide ResNet as in S2M2 and PT-MAP; with `max_pool` as in LibFewShot."""
    refuse_options("fsbench_wrn_s2m2", asked)
    return WideResNet(widths, blocks, bias=False, max_pool=max_pool)
