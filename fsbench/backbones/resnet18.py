"""ResNet-18 of the few-shot field: with a 3×3 stem for small images, or with the 7×7 stem for 224 pixels."""

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

STANDARD_WIDTHS = SHAPES["rn18"].standard["widths"]


class BasicBlock(nn.Module):
    """Two 3×3 convolutions, the first with the stride, beside the identity or a strided 1×1 projection."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.downsample = nn.Sequential()
        if stride != 1 or channels_in != channels_out:
            projection = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(channels_out))

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (B, C_in, h, w) to (B, C_out, h / stride, w / stride), rounded up."""
        out = functional.relu(self.bn1(self.conv1(maps)))
        return functional.relu(self.bn2(self.conv2(out)) + self.downsample(maps))


class ResNet18(Backbone):
    """The network of SimpleShot, TIM, LaplacianShot and PT-MAP, or, with a 7×7 stem, of CloserLook.

    Features are at least zero.

    Args:
        widths: Channels of the four stages; the stem has as many as the first.
        stem_kernel: 3 keeps the resolution. 7 halves it and is followed by a max-pool that halves it again.
    """

    def __init__(self, widths: Sequence[int], stem_kernel: int = 3) -> None:
        super().__init__()
        self.stem_kernel = stem_kernel
        stem_stride = 1 if stem_kernel == 3 else 2
        self.conv1 = nn.Conv2d(3, widths[0], stem_kernel, stem_stride, padding=stem_kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.layer1 = _stage(widths[0], widths[0], 1)
        self.layer2 = _stage(widths[0], widths[1], 2)
        self.layer3 = _stage(widths[1], widths[2], 2)
        self.layer4 = _stage(widths[2], widths[3], 2)
        self.feature_dim = widths[3]

    def stem(self, images: Tensor) -> Tensor:
        """Convolution, batch norm and ReLU; for the 7×7 stem a 3×3 max-pool with stride 2 as well."""
        maps = functional.relu(self.bn1(self.conv1(images)))
        return maps if self.stem_kernel == 3 else functional.max_pool2d(maps, 3, stride=2, padding=1)

    def stages(self) -> tuple[nn.Module, ...]:
        """The four stages of two blocks each."""
        return self.layer1, self.layer2, self.layer3, self.layer4


def _stage(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(channels_in, channels_out, stride), BasicBlock(channels_out, channels_out, 1))


@register_model
def fsbench_rn18(widths: Sequence[int] = STANDARD_WIDTHS, **asked: object) -> ResNet18:
    """ResNet-18 with a 3×3 stem; `widths` gives the channels of the four stages."""
    refuse_options("fsbench_rn18", asked)
    return ResNet18(widths)


@register_model
def fsbench_rn18_7x7(widths: Sequence[int] = STANDARD_WIDTHS, **asked: object) -> ResNet18:
    """ResNet-18 with a strided 7×7 stem and a max-pool, for images of 224 pixels."""
    refuse_options("fsbench_rn18_7x7", asked)
    return ResNet18(widths, stem_kernel=7)
