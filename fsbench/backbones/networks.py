"""What backbones have in common, and the networks of the few-shot field: Conv-4, ResNets and two wide ResNets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsbench.data.transforms import EvalTransform
from fsbench.errors import FsbenchError

POSITIONS = 2  # per side, of the maps that become a feature vector of Conv-4
SLOPE = 0.1  # of every leaky ReLU of ResNet-12


class Backbone(nn.Module):
    """A network that maps normalised images to features, cut into an ordered list of stages.

    The forward pass is the stem, then the stages one after the other, then the pool. Training methods that
    act between two stages, such as manifold mixup, call the three parts themselves.
    """

    feature_dim: int  # D, the length of a feature vector
    minimum_side: int = 1  # smallest image height and width that leaves something to pool

    def stem(self, images: Tensor) -> Tensor:
        """What comes before the first stage; nothing unless a network says otherwise."""
        return images

    def stages(self) -> tuple[nn.Module, ...]:
        """The stages, in the order in which they are applied."""
        raise NotImplementedError

    def pool(self, maps: Tensor) -> Tensor:
        """Average the last maps over their positions: (B, D, h, w) to (B, D)."""
        return maps.mean(dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Map normalised images (B, 3, H, W) to features (B, D)."""
        if images.ndim != 4 or images.shape[1] != 3 or min(images.shape[2:]) < self.minimum_side:
            expected = f"images of shape (B, 3, H, W) with H and W at least {self.minimum_side}"
            raise FsbenchError(f"Expected {expected}, found {tuple(images.shape)}.", "Use a larger image size.")
        maps = self.stem(images)
        for stage in self.stages():
            maps = stage(maps)
        return self.pool(maps)


@dataclass(frozen=True)
class BackboneInfo:
    """What a backbone is and where its weights came from."""

    name: str  # on the command line: rn12, rn18, wrn, conv4 or timm/<name>
    family: str  # a name in `fsbench.backbones.families`, e.g. "rn12-easy"; for timm the name again
    feature_dim: int
    weights: str  # name of the weights file, or "none, seed s"
    sha256: str = ""  # of the weights file; empty without one
    architecture: Mapping[str, Any] = field(default_factory=dict)  # widths and depth
    image_size: int | None = None  # the side in pixels that the weights were made for, where it is known
    transform: EvalTransform | None = None  # that of a timm model; None for the others, which have one per data set
    metadata: Mapping[str, str] = field(default_factory=dict)  # the free text of a safetensors header
    trained_by: str = ""  # "fsbench" for weights of `fsbench train`; empty if it is not known
    trained_on: str = ""  # name of the data set that `fsbench train` trained them on; empty if it is not known
    trained_classes: tuple[str, ...] = ()  # the classes that it trained them on, as far as they are known
    note: str = ""  # what a user should know of the features, in words

    def describe(self) -> str:
        """Its name, its weights, who trained them, and the note, in one line."""
        named = self.weights.replace("none, seed", "random weights, seed")
        trained = f"trained by {self.trained_by}" if self.trained_by else ""
        return "; ".join(filter(None, (f"{self.name}: {named}", self.sha256[:8], trained, self.note))) + "."


class Extractor(nn.Module):
    """A network that maps normalised images (B, 3, H, W) to features (B, D), and the facts about it."""

    def __init__(self, network: nn.Module, info: BackboneInfo) -> None:
        super().__init__()
        self.network, self.info = network, info

    def forward(self, images: Tensor) -> Tensor:
        """Map normalised images (B, 3, H, W) to features (B, D)."""
        features: Tensor = self.network(images)
        return features


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
        self.layer1 = self._stage(widths[0], widths[0], 1)
        self.layer2 = self._stage(widths[0], widths[1], 2)
        self.layer3 = self._stage(widths[1], widths[2], 2)
        self.layer4 = self._stage(widths[2], widths[3], 2)
        self.feature_dim = widths[3]

    @staticmethod
    def _stage(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
        return nn.Sequential(BasicBlock(channels_in, channels_out, stride), BasicBlock(channels_out, channels_out, 1))

    def stem(self, images: Tensor) -> Tensor:
        """Convolution, batch norm and ReLU; for the 7×7 stem a 3×3 max-pool with stride 2 as well."""
        maps = functional.relu(self.bn1(self.conv1(images)))
        return maps if self.stem_kernel == 3 else functional.max_pool2d(maps, 3, stride=2, padding=1)

    def stages(self) -> tuple[nn.Module, ...]:
        """The four stages of two blocks each."""
        return self.layer1, self.layer2, self.layer3, self.layer4


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
        self.layer1 = self._stage(widths[0], widths[1], 1, blocks, bias)
        self.layer2 = self._stage(widths[1], widths[2], 2, blocks, bias)
        self.layer3 = self._stage(widths[2], widths[3], 2, blocks, bias)
        self.bn1 = nn.BatchNorm2d(widths[3])
        self.feature_dim = widths[3]

    @staticmethod
    def _stage(channels_in: int, channels_out: int, stride: int, blocks: int, bias: bool) -> nn.Sequential:
        rest = [PreactivationBlock(channels_out, channels_out, 1, bias) for _ in range(blocks - 1)]
        return nn.Sequential(PreactivationBlock(channels_in, channels_out, stride, bias), *rest)

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


# By the names in `fsbench.backbones.families`; all take `widths`, the wide ones also `blocks`.
NETWORKS: Mapping[str, Callable[..., Backbone]] = {
    "conv4": Conv4,
    "rn12": ResNet12,
    "rn18": ResNet18,
    "rn18-7x7": partial(ResNet18, stem_kernel=7),
    "wrn": WideResNet,
    "wrn-s2m2": partial(WideResNet, bias=False),
}
