"""ResNet-12 of the few-shot field: four residual blocks, each followed by a 2×2 max-pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timm.models import register_model
from torch import nn
from torch.nn import functional

from fsbench.backbones.base import Backbone, refuse_options
from fsbench.backbones.families import SHAPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

STANDARD_WIDTHS = SHAPES["rn12"].standard["widths"]
SLOPE = 0.1  # of every leaky ReLU


class ResidualBlock(nn.Module):
    """Three 3×3 convolutions beside a 1×1 shortcut; leaky ReLU on the sum; max-pool."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.conv3 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, bias=False), nn.BatchNorm2d(channels_out))

    def forward(self, maps: Tensor) -> Tensor:
        """Halves the resolution: (B, C_in, h, w) to (B, C_out, h // 2, w // 2)."""
        out = functional.leaky_relu(self.bn1(self.conv1(maps)), SLOPE)
        out = functional.leaky_relu(self.bn2(self.conv2(out)), SLOPE)
        out = self.bn3(self.conv3(out)) + self.shortcut(maps)
        return functional.max_pool2d(functional.leaky_relu(out, SLOPE), 2)


class ResNet12(Backbone):
    """The network of EASY, MetaOptNet, RFS, FEAT and Meta-Baseline.

    Theirs differ in key names and widths, the output channels of the four blocks, alone. Features can be slightly
    negative: there is no plain ReLU.
    """

    minimum_side = 16

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        channels = [3, *widths]
        self.layers = nn.Sequential(*map(ResidualBlock, channels[:-1], channels[1:]))
        self.feature_dim = channels[-1]

    def stages(self) -> tuple[nn.Module, ...]:
        """The four residual blocks."""
        return tuple(self.layers)


@register_model
def fsbench_rn12(widths: Sequence[int] = STANDARD_WIDTHS, **asked: object) -> ResNet12:
    """ResNet-12; `widths` gives the channels of the four blocks."""
    refuse_options("fsbench_rn12", asked)
    return ResNet12(widths)
