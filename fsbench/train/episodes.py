"""Training on tasks: MAML and VERSA. An update sees a few tasks of the base classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fsbench.backbones.networks import Backbone
from fsbench.methods.images.maml import Classifier, InnerLoop, Maml
from fsbench.methods.images.networks import ImageMethod, count_images
from fsbench.methods.images.versa import Amortised, Versa, log_predictive
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.random import words
from fsbench.tasks.sampling import TaskRows, feasible_sizes, sample_tasks
from fsbench.train.images import Batch, Key
from fsbench.train.settings import UPDATES, Episodes, TrainSettings

SAMPLES = 10  # of the logits, in a training of VERSA
_NOISE = 1 << 20  # stream of random numbers, beyond those of the sampler


@dataclass(frozen=True)
class EpisodeKeys:
    """The images of the updates of one rank from epoch `first` on; tasks are drawn as everywhere in fsbench.

    `offsets` are the first base image of every class, then M.
    """

    settings: TrainSettings
    episodes: Episodes
    offsets: NDArray[np.int64]
    rank: int = 0
    first: int = 0

    def __post_init__(self) -> None:
        for shots in self.episodes.shots:
            feasible_sizes(self._protocol(shots), self.offsets)

    @property
    def batch(self) -> int:
        """Tasks per update over all ranks."""
        return self.settings.batch

    @property
    def steps(self) -> int:
        """Updates per epoch."""
        return UPDATES

    def numbers(self, update: int) -> NDArray[np.int64]:
        """The numbers of the tasks of this rank in an update."""
        return np.arange(update * self.batch + self.rank, (update + 1) * self.batch, self.settings.ranks)

    def tasks(self, update: int) -> TaskRows:
        """The tasks of this rank in an update; numbers of shots take turns."""
        protocol = self._protocol(self.episodes.shots[update % len(self.episodes.shots)])
        return sample_tasks(protocol, self.offsets, self.settings.seed, self.numbers(update))

    def _protocol(self, shots: int) -> TaskProtocol:
        return TaskProtocol(ways=self.episodes.ways, shots=shots, queries=self.episodes.queries, alpha=None)

    def __iter__(self) -> Iterator[Key]:
        for update in range(self.first * self.steps, self.settings.epochs * self.steps):
            drawn = self.tasks(update)
            yield Key(update, np.concatenate([drawn.support, drawn.query], axis=1).reshape(-1))


class EpisodeObjective(nn.Module):
    """A backbone and what is trained beside it; its output is the mean loss of tasks.

    `method` is the method on images that classifies with what was trained.
    """

    method: type[ImageMethod]

    def __init__(self, backbone: Backbone, episodes: Episodes, seed: int) -> None:
        super().__init__()
        self.backbone, self.episodes, self.seed = backbone, episodes, seed

    def arguments(self, batch: Batch, keys: Any, epoch: int, step: int) -> tuple[Any, ...]:
        """What `forward` takes in a step."""
        update = epoch * keys.steps + step
        drawn = keys.tasks(update)
        images = batch.images.unflatten(0, (len(drawn.classes), -1))
        labels = (torch.from_numpy(values).to(images.device) for values in (drawn.support_labels, drawn.query_labels))
        return images, *labels, keys.numbers(update)

    def extras(self) -> dict[str, Tensor]:
        """Tensors that the weights file holds beside the backbone."""
        return {}


class Amortising(EpisodeObjective):
    """VERSA: minus the logarithm of the predictive probability, over samples of the classifier."""

    method = Versa

    def __init__(self, backbone: Backbone, episodes: Episodes, seed: int) -> None:
        super().__init__(backbone, episodes, seed)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.amortised = Amortised(backbone.feature_dim)

    def forward(self, images: Tensor, support: Tensor, queries: Tensor, numbers: NDArray[np.int64]) -> Tensor:
        """The loss of tasks: images (B, N, 3, S, S), labels of support (B, S) and queries (B, Q), task numbers (B,)."""
        size = support.shape[1]
        features = self.backbone(images.flatten(0, 1)).unflatten(0, images.shape[:2])  # (B, N, D)
        tasks = zip(features[:, :size], support, features[:, size:], queries, numbers.tolist(), strict=True)
        return torch.stack([self.loss(*task) for task in tasks]).mean()

    def loss(self, support: Tensor, labels: Tensor, queries: Tensor, wanted: Tensor, number: int) -> Tensor:
        """The noise is a function of the seed and the number of the task."""
        generator = torch.Generator().manual_seed(int(words(self.seed, np.array([number]), _NOISE, 1)[0, 0]))
        noise = torch.randn(SAMPLES, len(queries), self.episodes.ways, generator=generator).to(queries.device)
        mean, variance = self.amortised(support, labels, queries, self.episodes.ways)
        return functional.nll_loss(log_predictive(mean, variance, noise), wanted)

    def extras(self) -> dict[str, Tensor]:
        """The four networks."""
        return self.amortised.state_dict()


class Learning(EpisodeObjective):
    """MAML: the cross-entropy of the queries after steps of gradient descent on the support."""

    method = Maml

    def __init__(self, backbone: Backbone, episodes: Episodes, seed: int) -> None:
        super().__init__(backbone, episodes, seed)
        count_images(backbone)
        self.model = Classifier(backbone, backbone.feature_dim, episodes.ways)
        self.model.head.requires_grad_(False)
        self.inner = InnerLoop(episodes.steps, episodes.rate, episodes.transductive, episodes.second_order)

    def forward(self, images: Tensor, support: Tensor, queries: Tensor, numbers: NDArray[np.int64]) -> Tensor:
        """The mean over the tasks."""
        start: dict[str, Tensor] = dict(self.model.named_parameters())
        # Every task begins with zeros, which can be differentiated.
        start |= {name: value.clone().requires_grad_() for name, value in start.items() if "head." in name}
        size, losses = support.shape[1], []
        for task, labels, wanted in zip(images, support, queries, strict=True):
            logits = self.inner.logits(self.model, start, task[:size], labels, task[size:])
            losses.append(functional.cross_entropy(logits, wanted))
        return torch.stack(losses).mean()


OBJECTIVES = {"maml": Learning, "maml:transductive": Learning, "versa": Amortising}
