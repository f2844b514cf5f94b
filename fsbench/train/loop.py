"""The training step: network, objective, optimiser and learning rate."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import torch
from torch import nn

from fsbench.errors import FsbenchError
from fsbench.ranks import ALONE
from fsbench.train import draws
from fsbench.train.objective import Objective
from fsbench.train.settings import MOMENTUM, WARM_UP, WEIGHT_DECAY

if TYPE_CHECKING:
    from fsbench.backbones.base import Backbone
    from fsbench.ranks import Ranks
    from fsbench.train.images import Batch
    from fsbench.train.settings import TrainSettings

_CHANNELS_AT_ONCE = 8


def learning_rate(step: int, steps: int, peak: float, warm_up: float) -> float:
    """Linear up to the peak over the first share of all steps, then half a cosine down towards zero.

    Args:
        step: Of the whole training, from 0.
        steps: All steps of the training.
        peak: The largest rate.
        warm_up: The share of all steps that the ascent takes; it takes at least one step.
    """
    ascent = max(1, round(warm_up * steps))
    if step < ascent:
        return peak * (step + 1) / ascent
    return peak * (1 + math.cos(math.pi * (step - ascent + 1) / (steps - ascent + 1))) / 2


class Trainer:
    """A network, its optimiser, and the step that both take together.

    The loss is added up on the device; nothing waits for it until it is asked for.

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
        self._loss = torch.zeros((), device=device)  # sum over the steps since the last `mean_loss`
        self._steps = 0

    def step(self, batch: Batch, epoch: int, step: int, steps: int) -> None:
        """Take step `step` of the `steps` of an epoch."""
        rate = learning_rate(epoch * steps + step, self.settings.epochs * steps, self.settings.lr, WARM_UP)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        images, labels, turns = (tensor.to(self.device, non_blocking=True) for tensor in batch)
        images = images.contiguous(memory_format=self.format)
        mixing = None
        if self.settings.mixup:
            mixing = draws.mixing(self.settings.seed, epoch, step, self.stages, len(images))
        loss = self.shared(images, labels, turns, mixing)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self._loss += loss.detach()
        self._steps += 1

    def mean_loss(self) -> float:
        """The mean loss over all ranks and over the steps since the last call; NaN without a step."""
        total, steps = self.ranks.mean(self._loss), self._steps
        self._loss.zero_()
        self._steps = 0
        return total / steps if steps else math.nan

    def require_finite(self, epoch: int) -> None:
        """Refuse a loss or a weight that is no finite number."""
        state = [self._loss, *self.objective.state_dict().values()]
        if not all(bool(value.isfinite().all()) for value in state):
            raise FsbenchError(
                f"The training diverged in epoch {epoch + 1}: the loss or a weight is not a finite number.",
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


def choose_workers(asked: int | None, device: torch.device, in_memory: bool) -> int:
    """Processes that read images: several for a GPU; for the CPU one if files must be read, else none."""
    if asked is not None:
        return asked
    if device.type == "cuda":
        return min(8, os.cpu_count() or 1)
    return 0 if in_memory else 1
