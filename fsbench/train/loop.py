"""The training step: network, loss (classification, rotation prediction, manifold mixup), optimiser, learning rate."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsbench.backbones.networks import Backbone
from fsbench.errors import FsbenchError
from fsbench.ranks import ALONE, Ranks
from fsbench.train.episodes import EpisodeKeys, EpisodeObjective
from fsbench.train.images import QUARTER_TURNS, Batch, Keys, Mixing, mixing
from fsbench.train.settings import LABEL_SMOOTHING, LARGEST_SLOPE, MOMENTUM, WARM_UP, WEIGHT_DECAY

_CHANNELS_AT_ONCE = 8


class Objective(nn.Module):
    """A backbone, trained in place, with linear heads; its output is the loss of a batch, with smoothed class labels.

    Mangla et al.: "Charting the Right Manifold: Manifold Mixup for Few-shot Learning", WACV 2020 (S2M2); Bendou et
    al.: "EASY: Ensemble Augmented-Shot Y-shaped Learning", J. Imaging 2022. With rotation, the first pass sees every
    image rotated by its quarter turns, and its loss is the mean of the class loss and the rotation loss. With mixup, a
    second pass sees the images upright and mixed, and its loss is added.
    """

    def __init__(self, backbone: Backbone, classes: int, rotation: bool, seed: int) -> None:
        super().__init__()
        self.backbone = backbone
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.class_head = nn.Linear(backbone.feature_dim, classes)
            self.turn_head = nn.Linear(backbone.feature_dim, QUARTER_TURNS) if rotation else None

    def arguments(self, batch: Batch, keys: Any, epoch: int, step: int) -> tuple[Any, ...]:
        """What `forward` takes in a step."""
        settings, stages = keys.settings, len(self.backbone.stages())
        mixed = mixing(settings.seed, epoch, step, stages, len(batch.images)) if settings.mixup else None
        return *batch, mixed

    def forward(self, images: Tensor, labels: Tensor, turns: Tensor, mixing: Mixing | None) -> Tensor:
        """The loss of images (B, 3, S, S) with labels (B,) and quarter turns (B,)."""
        if self.turn_head is None:
            loss = self._class_loss(self.backbone(images), labels)
        else:
            features = self.backbone(rotate(images, turns))  # (B, D)
            turn_loss = functional.cross_entropy(self.turn_head(features), turns)
            loss = (self._class_loss(features, labels) + turn_loss) / 2
        if mixing is None:
            return loss
        partners = torch.from_numpy(mixing.partners).to(images.device, non_blocking=True)
        features = mixed_features(self.backbone, images, mixing.position, mixing.share, partners)
        own, other = (self._class_loss(features, target) for target in (labels, labels[partners]))
        return loss + (mixing.share * own + (1 - mixing.share) * other)

    def _class_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.class_head(features), labels, label_smoothing=LABEL_SMOOTHING)


def mixed_features(backbone: Backbone, images: Tensor, position: int, share: float, partners: Tensor) -> Tensor:
    """The features (B, D) of images mixed with their partners after `position` stages; 0 mixes the images."""
    maps = backbone.stem(torch.lerp(images[partners], images, share) if position == 0 else images)
    for number, stage in enumerate(backbone.stages(), start=1):
        maps = stage(maps)
        if number == position:
            maps = torch.lerp(maps[partners], maps, share)
    return backbone.pool(maps)


def rotate(images: Tensor, turns: Tensor) -> Tensor:
    """Square images (B, 3, S, S), each rotated by its number of quarter turns."""
    rotated = images
    for number in range(1, QUARTER_TURNS):
        rotated = torch.where((turns == number)[:, None, None, None], images.rot90(number, dims=(2, 3)), rotated)
    return rotated


def learning_rate(step: int, steps: int, peak: float, warm_up: float) -> float:
    """Linear up to the peak over the share `warm_up` of all steps, at least one, then half a cosine towards zero."""
    ascent = max(1, round(warm_up * steps))
    if step < ascent:
        return peak * (step + 1) / ascent
    return peak * (1 + math.cos(math.pi * (step - ascent + 1) / (steps - ascent + 1))) / 2


class Trainer:
    """An objective, its optimiser, and the step that both take together: SGD on classes, Adam on tasks.

    The loss is added up on the device; nothing waits for it until it is asked for.
    """

    def __init__(
        self,
        objective: Objective | EpisodeObjective,
        keys: Keys | EpisodeKeys,
        device: torch.device,
        ranks: Ranks = ALONE,
    ) -> None:
        self.keys, self.settings, self.device, self.ranks = keys, keys.settings, device, ranks
        self.format = memory_format_of(objective, device)
        self.objective = objective.to(device).to(memory_format=self.format).train()
        self.shared = ranks.share(self.objective)
        free = [parameter for parameter in objective.parameters() if parameter.requires_grad]
        self.optimiser: torch.optim.Optimizer
        if self.settings.episodes:
            self.optimiser = torch.optim.Adam(free, self.settings.lr)
        else:
            self.optimiser = torch.optim.SGD(free, self.settings.lr, MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True)
        self._loss = torch.zeros((), device=device)  # sum over the steps since the last `mean_loss`
        self._steps = 0

    def step(self, batch: Batch, epoch: int, step: int) -> None:
        """Take a step of an epoch; both count from 0."""
        total = self.settings.epochs * self.keys.steps
        rate = learning_rate(epoch * self.keys.steps + step, total, self.settings.lr, WARM_UP)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        images, labels, turns = (tensor.to(self.device, non_blocking=True) for tensor in batch)
        moved = Batch(images.contiguous(memory_format=self.format), labels, turns)
        bf16 = torch.autocast(self.device.type, torch.bfloat16) if self.settings.precision == "bf16" else nullcontext()
        with bf16:
            loss = self.shared(*self.objective.arguments(moved, self.keys, epoch, step))
        self.optimiser.zero_grad()
        loss.backward()
        if self.settings.episodes:
            nn.utils.clip_grad_value_(self.objective.parameters(), LARGEST_SLOPE)
        self.optimiser.step()
        self._loss += loss.detach()
        self._steps += 1

    def mean_loss(self) -> float:
        """The mean loss over all ranks and over the steps since the last call."""
        mean = self.ranks.mean(self._loss) / self._steps
        self._loss.zero_()
        self._steps = 0
        return mean

    def require_finite(self, epoch: int) -> None:
        """Refuse a loss or a weight that is not a finite number."""
        state = [self._loss, *self.objective.state_dict().values()]
        if not all(bool(value.isfinite().all()) for value in state):
            message = f"The training diverged in epoch {epoch}: the loss or a weight is not a finite number."
            raise FsbenchError(message, f"Lower --lr, which is {self.settings.lr:g}.")


def memory_format_of(network: nn.Module, device: torch.device) -> torch.memory_format:
    """Channels-last, the faster layout, wherever it is safe.

    On the CPU oneDNN's backward pass of a strided 1×1 convolution writes beyond its buffers when channels come last
    and the input has fewer channels than a vector register holds (torch 2.15), so any number of channels that does not
    fill registers is left in the usual layout.
    """
    unsafe = device.type == "cpu" and any(
        isinstance(part, nn.Conv2d)
        and part.kernel_size == (1, 1)
        and part.stride != (1, 1)
        and part.in_channels % _CHANNELS_AT_ONCE
        for part in network.modules()
    )
    return torch.contiguous_format if unsafe else torch.channels_last
