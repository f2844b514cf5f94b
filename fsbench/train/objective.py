"""The loss: classification, optionally rotation prediction, optionally a second pass with manifold mixup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsbench.train.draws import QUARTER_TURNS
from fsbench.train.settings import LABEL_SMOOTHING

if TYPE_CHECKING:
    from fsbench.backbones.base import Backbone
    from fsbench.train.draws import Mixing


class Objective(nn.Module):
    """A backbone with linear heads; its output is the loss of a batch, with smoothed class labels.

    Mangla et al.: "Charting the Right Manifold: Manifold Mixup for Few-shot Learning", WACV 2020 (S2M2); Bendou et
    al.: "EASY: Ensemble Augmented-Shot Y-shaped Learning", J. Imaging 2022. With rotation, the first pass sees every
    image rotated by its quarter turns, and its loss is the mean of the class loss and the rotation loss. With mixup, a
    second pass sees the images upright and mixed, and its loss is added.

    Args:
        backbone: The network that is trained.
        classes: Number of base classes.
        rotation: Whether there is a head for the quarter turns; without it images stay upright.
        seed: Random seed of the heads.
    """

    def __init__(self, backbone: Backbone, classes: int, rotation: bool, seed: int) -> None:
        super().__init__()
        self.backbone = backbone
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.class_head = nn.Linear(backbone.feature_dim, classes)
            self.turn_head = nn.Linear(backbone.feature_dim, QUARTER_TURNS) if rotation else None

    def forward(self, images: Tensor, labels: Tensor, turns: Tensor, mixing: Mixing | None) -> Tensor:
        """The loss of images (B, 3, S, S) with labels (B,) and quarter turns (B,)."""
        if self.turn_head is None:
            loss = self._class_loss(self.backbone(images), labels)
        else:
            features = self.backbone(rotate(images, turns))  # (B, D)
            turn_loss = functional.cross_entropy(self.turn_head(features), turns)
            loss = (self._class_loss(features, labels) + turn_loss) / 2
        return loss if mixing is None else loss + self._mixed_loss(images, labels, mixing)

    def _class_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.class_head(features), labels, label_smoothing=LABEL_SMOOTHING)

    def _mixed_loss(self, images: Tensor, labels: Tensor, mixing: Mixing) -> Tensor:
        partners = torch.from_numpy(mixing.partners).to(images.device)
        features = mixed_features(self.backbone, images, mixing.position, mixing.share, partners)
        own, other = (self._class_loss(features, target) for target in (labels, labels[partners]))
        return mixing.share * own + (1 - mixing.share) * other


def mixed_features(backbone: Backbone, images: Tensor, position: int, share: float, partners: Tensor) -> Tensor:
    """The features (B, D) of images mixed with their partners after `position` stages; 0 mixes the images."""
    maps = backbone.stem(_mix(images, share, partners) if position == 0 else images)
    for number, stage in enumerate(backbone.stages(), start=1):
        maps = stage(maps)
        if number == position:
            maps = _mix(maps, share, partners)
    return backbone.pool(maps)


def rotate(images: Tensor, turns: Tensor) -> Tensor:
    """Square images (B, 3, S, S), each rotated by its number of quarter turns."""
    rotated = images
    for number in range(1, QUARTER_TURNS):
        rotated = torch.where((turns == number)[:, None, None, None], images.rot90(number, dims=(2, 3)), rotated)
    return rotated


def _mix(maps: Tensor, share: float, partners: Tensor) -> Tensor:
    return torch.lerp(maps[partners], maps, share)
