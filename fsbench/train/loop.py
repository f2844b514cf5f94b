"""The training itself: epochs and steps."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.utils.data import DataLoader

from fsbench.devices import while_workers_live
from fsbench.errors import FsbenchError
from fsbench.ranks import ALONE
from fsbench.train import draws
from fsbench.train.objective import Objective
from fsbench.train.schedule import learning_rate
from fsbench.train.settings import LEAST_SHARE, MOMENTUM, WARM_UP, WEIGHT_DECAY
from fsbench.train.views import Batch, Key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsbench.backbones.base import Backbone
    from fsbench.ranks import Ranks
    from fsbench.reporter import Advance
    from fsbench.train.settings import TrainSettings
    from fsbench.train.views import Views

_CHANNELS_AT_ONCE = 8


@dataclass(frozen=True)
class Keys:
    """The keys of the steps of one rank, epoch after epoch. What does not fill a batch is left out of its epoch.

    Attributes:
        settings: Of the training.
        images: Number of base images.
        rank: Whose share of every batch.
        first_epoch: Where to begin.
    """

    settings: TrainSettings
    images: int
    rank: int = 0
    first_epoch: int = 0

    @property
    def batch(self) -> int:
        """Images per step over all ranks: as asked for, or all there are."""
        fitting = self.images // self.settings.ranks * self.settings.ranks
        if fitting < LEAST_SHARE * self.settings.ranks:
            raise FsbenchError(
                f"{self.images} base image(s) are too few to train on with {self.settings.ranks} process(es).",
                f"Batch normalisation needs {LEAST_SHARE} images in each process.",
            )
        return min(self.settings.batch, fitting)

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return self.images // self.batch

    def __iter__(self) -> Iterator[Key]:
        for epoch in range(self.first_epoch, self.settings.epochs):
            rows = draws.order(self.settings.seed, epoch, self.images)[: self.steps * self.batch]
            for step in rows.reshape(self.steps, self.batch):
                yield Key(epoch, step[self.rank :: self.settings.ranks])


class Trainer:
    """A network, its optimiser, and the step that both take together.

    Args:
        backbone: Trained in place.
        classes: Number of base classes.
        settings: Of the training.
        device: Where this process computes.
        ranks: The processes that share it.
    """

    def __init__(
        self, backbone: Backbone, classes: int, settings: TrainSettings, device: torch.device, ranks: Ranks = ALONE
    ) -> None:
        self.settings, self.device, self.ranks = settings, device, ranks
        objective = Objective(backbone, classes, settings.rotation, settings.seed)
        self.format = memory_format_of(backbone, device)
        self.objective = objective.to(device).to(memory_format=self.format).train()
        self.optimiser = torch.optim.SGD(
            self.objective.parameters(), settings.lr, MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True
        )
        self.shared = ranks.share(self.objective)
        self.stages = len(backbone.stages())

    def epoch(self, number: int, batches: Iterator[Batch | FsbenchError], steps: int, advance: Advance) -> float:
        """Take the steps of one epoch; the mean loss."""
        total = 0.0
        for step, batch in enumerate(islice(batches, steps)):
            if isinstance(batch, FsbenchError):
                raise batch
            position, all_steps = number * steps + step, self.settings.epochs * steps
            rate = learning_rate(position, all_steps, self.settings.lr, WARM_UP)
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            total += self._step(batch, number, step)
            advance(len(batch.images) * self.ranks.count)
        state = self.objective.state_dict().values()
        self._require_finite(all(bool(value.isfinite().all()) for value in state), number)
        return total / steps

    def _step(self, batch: Batch, epoch: int, step: int) -> float:
        images, labels, turns = (tensor.to(self.device, non_blocking=True) for tensor in batch)
        images = images.contiguous(memory_format=self.format)
        mixing = None
        if self.settings.mixup:
            mixing = draws.mixing(self.settings.seed, epoch, step, self.stages, len(images))
        loss = self.shared(images, labels, turns, mixing)
        value = self.ranks.mean(loss)
        self._require_finite(math.isfinite(value), epoch)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return value

    def _require_finite(self, finite: bool, epoch: int) -> None:
        if not finite:
            raise FsbenchError(
                f"The training diverged in epoch {epoch + 1}: the loss or a weight is no longer a finite number.",
                f"Lower --lr, which is {self.settings.lr:g}.",
            )


def memory_format_of(network: nn.Module, device: torch.device) -> torch.memory_format:
    """Channels-last, the faster layout, wherever it is safe.

    On the CPU oneDNN's backward pass of a strided 1×1 convolution writes beyond its buffers when channels come last
    and the input has fewer channels than a vector register holds (seen with torch 2.15), so any number of channels
    that does not fill registers is left in the usual layout.
    """
    unsafe = device.type == "cpu" and any(
        isinstance(part, nn.Conv2d)
        and part.kernel_size == (1, 1)
        and part.stride != (1, 1)
        and part.in_channels % _CHANNELS_AT_ONCE
        for part in network.modules()
    )
    return torch.contiguous_format if unsafe else torch.channels_last


def load_batches(views: Views, keys: Keys, workers: int, device: torch.device) -> Iterator[Batch | FsbenchError]:
    """The batches of all epochs that are left, one after the other."""
    loader: DataLoader[Batch | FsbenchError] = DataLoader(
        views, batch_size=None, sampler=keys, num_workers=workers, pin_memory=device.type == "cuda"
    )
    return while_workers_live(loader)


def choose_workers(asked: int | None, device: torch.device, in_memory: bool) -> int:
    """Processes that prepare images: several for a GPU; for the CPU one if files must be read, else none."""
    if asked is not None:
        return asked
    if device.type == "cuda":
        return min(8, os.cpu_count() or 1)
    return 0 if in_memory else 1
