"""What is known about a backbone beside its network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class DataConfig:
    """How a timm model wants its images.

    Attributes:
        input_size: Channels, height, width.
        mean: Per channel, subtracted.
        std: Per channel, divided by.
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
        name: The name on the command line: "rn12", "rn18", "wrn" or "timm/<name>".
        family: The network and its origin, e.g. "rn12-easy"; for timm the name again.
        feature_dim: D, the length of a feature vector.
        weights: Name of the weights file, or "none, seed s".
        sha256: Of the weights file; empty without one.
        architecture: Widths and depth.
        image_size: The side in pixels that the weights were made for, where it is known.
        data_config: How a timm model wants its images; None for the others.
        metadata: The free text of a safetensors header.
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


class Extractor(nn.Module):
    """A network that maps normalised images (B, 3, H, W) to features (B, D), and the facts about it."""

    def __init__(self, network: nn.Module, info: BackboneInfo) -> None:
        super().__init__()
        self.network = network
        self.info = info

    def forward(self, images: Tensor) -> Tensor:
        """Maps normalised images (B, 3, H, W) to features (B, D)."""
        features: Tensor = self.network(images)
        return features
