"""What every backbone of this package has in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


class Backbone(nn.Module):
    """A network that maps normalised images to features, cut into an ordered list of stages.

    The forward pass is the stem, then the stages one after the other, then the pool. Training methods that
    act between two stages, such as manifold mixup, call the three parts themselves.

    Attributes:
        feature_dim: D, the length of a feature vector.
        minimum_side: The smallest image height and width that leaves something to pool.
    """

    feature_dim: int
    minimum_side: int = 1

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


def refuse_options(name: str, asked: Mapping[str, object]) -> None:
    """Refuse what timm's `create_model` was asked for beyond features from random weights."""
    wanted = sorted(key for key, value in asked.items() if value)
    if wanted:
        message = f"{name} yields features from random weights and does not take {', '.join(wanted)}."
        raise FsbenchError(message, "Weights are loaded by fsbench.backbones.load.load_backbone.")


@dataclass(frozen=True)
class DataConfig:
    """How a timm model wants its images.

    Attributes:
        input_size: Channels, height, width.
        interpolation: Of the resize, e.g. "bicubic".
        crop_pct: Size of the centre crop relative to the resized image.
    """

    input_size: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str
    crop_pct: float


@dataclass(frozen=True)
class BackboneInfo:
    """What a backbone is and where its weights came from.

    Attributes:
        name: The name on the command line: "rn12", "rn18", "wrn", "conv4" or "timm/<name>".
        family: A name in `fsbench.backbones.families`, e.g. "rn12-easy"; for timm the name again.
        weights: Name of the weights file, or "none, seed s".
        sha256: Of the weights file; empty without one.
        architecture: Widths and depth.
        image_size: The side in pixels that the weights were made for, where it is known.
        data_config: How a timm model wants its images; None for the others.
        metadata: The free text of a safetensors header.
        trained_by: "fsbench" for weights of `fsbench train`; empty if it is not known.
        trained_on: Name of the data set that `fsbench train` trained them on; empty if it is not known.
        note: What a user should know of the features, in words.
    """

    name: str
    family: str
    feature_dim: int
    weights: str
    sha256: str = ""
    architecture: Mapping[str, Any] = field(default_factory=dict)
    image_size: int | None = None
    data_config: DataConfig | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    trained_by: str = ""
    trained_on: str = ""
    note: str = ""

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
