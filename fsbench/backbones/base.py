"""What every backbone of this package has in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from fsbench.data.transforms import EvalTransform
from fsbench.errors import FsbenchError


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
