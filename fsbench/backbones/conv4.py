"""Conv-4 of the few-shot field: four blocks of convolution, batch normalisation, ReLU and max-pool."""

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

STANDARD_WIDTHS = SHAPES["conv4"].standard["widths"]
POSITIONS = 2  # per side, of the maps that become a feature vector


class ConvBlock(nn.Module):
    """A 3×3 convolution, batch normalisation, ReLU, and a 2×2 max-pool."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels_out)

    def forward(self, maps: Tensor) -> Tensor:
        """Halves the resolution: (B, C_in, h, w) to (B, C_out, h // 2, w // 2)."""
        return functional.max_pool2d(functional.relu(self.bn(self.conv(maps))), 2)


class Conv4(Backbone):
    """The network of MAML, ProtoNet and VERSA, with maps of 2×2 positions as features whatever the image size.

    Images of 32 pixels leave maps of 2×2 positions, which the field flattens, and so does this network. Images of 84
    pixels leave 5×5: the field flattens those too (D = 25 · width), this network averages them to 2×2 first, so that
    D = 4 · width always. Features are at least zero.
    """

    minimum_side = 16

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        channels = [3, *widths]
        self.blocks = nn.Sequential(*map(ConvBlock, channels[:-1], channels[1:]))
        self.feature_dim = channels[-1] * POSITIONS**2

    def stages(self) -> tuple[nn.Module, ...]:
        """The four blocks."""
        return tuple(self.blocks)

    def pool(self, maps: Tensor) -> Tensor:
        """Average the last maps to 2×2 positions and flatten them: (B, C, h, w) to (B, 4 · C)."""
        return functional.adaptive_avg_pool2d(maps, POSITIONS).flatten(1)


@register_model
def fsbench_conv4(widths: Sequence[int] = STANDARD_WIDTHS, **asked: object) -> Conv4:
    """Conv-4; `widths` gives the channels of the four blocks."""
    refuse_options("fsbench_conv4", asked)
    return Conv4(widths)
