"""Few-shot accuracy on the val classes while a network is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fsbench.backbones.base import BackboneInfo, Extractor
from fsbench.data.dataset import ImageSplit
from fsbench.data.pixels import normalised
from fsbench.data.transforms import EvalTransform
from fsbench.errors import FsbenchError
from fsbench.evaluation.engine import TaskList, solve
from fsbench.features.store import Split, make_split
from fsbench.methods.base import Context
from fsbench.methods.images.networks import ImageNetwork
from fsbench.methods.simpleshot import SimpleShot
from fsbench.results.metrics import ACCURACY
from fsbench.results.statistics import Interval, interval
from fsbench.tasks.protocol import TaskProtocol
from fsbench.train.settings import Episodes

SHOTS, TASKS = (1, 5), 500
METHOD_TASKS = 100  # of a method on images, which takes longer
_SEED = 0  # the tasks are the same in every training, whatever its own seed
_AT_ONCE = 256


@dataclass(frozen=True)
class Evaluation:
    """Few-shot accuracy on the val classes in percent, by number of shots, after so many finished epochs."""

    epoch: int
    accuracy: dict[int, Interval]

    def __str__(self) -> str:
        values = self.accuracy.items()
        return ", ".join(f"{shots}-shot {value.mean:.2f} ± {value.half_width:.2f} %" for shots, value in values)


def best_of(history: Sequence[Evaluation]) -> Evaluation:
    """The evaluation with the highest accuracy at the fewest shots; of equals the latest."""
    return max(history, key=lambda look: (look.accuracy[min(look.accuracy)].mean, look.epoch))


@dataclass(frozen=True)
class Validation:
    """Evaluates networks on balanced 5-way tasks of the val classes, whose `pixels` are (M, S, S, 3)."""

    split: ImageSplit
    pixels: NDArray[np.uint8]
    transform: EvalTransform
    device: torch.device

    def of_backbone(self, network: nn.Module, epoch: int) -> Evaluation:
        """The accuracy of the nearest class mean on unit-norm features."""
        features = self._features(network)
        if not bool(features.isfinite().all()):
            message = f"The training diverged in epoch {epoch}: features of the val classes are not finite numbers."
            raise FsbenchError(message, "Lower --lr.")
        table = make_split(features.numpy(), self.split.labels, self.split.class_names)
        return self._evaluate(SimpleShot("L2N"), table, SHOTS, TASKS, epoch)

    def of_method(self, objective: Any, info: BackboneInfo, episodes: Episodes, epoch: int) -> Evaluation:
        """The accuracy of the objective's method on images, for the shots of the training."""
        network = Extractor(objective.backbone, info).eval()
        trained = ImageNetwork(network, self.transform, objective.extras(), {"inner": episodes.inner})
        variant = "transductive" if episodes.transductive else "inductive"
        method = objective.method.configure(Context(balanced=True, network=trained), variant=variant)
        rows: Any = self.pixels.reshape(len(self.pixels), -1)
        table = Split(rows, self.split.offsets, self.split.class_names)
        evaluation = self._evaluate(method, table, episodes.shots, METHOD_TASKS, epoch)
        objective.train()
        return evaluation

    def _evaluate(self, method: Any, table: Split, shots: Sequence[int], tasks: int, epoch: int) -> Evaluation:
        accuracy = {}
        for number in shots:
            drawn = TaskList(TaskProtocol(shots=number, alpha=None), _SEED, np.arange(tasks))
            (outcome,) = solve([method], table, None, drawn, device=self.device)
            accuracy[number] = interval(ACCURACY.per_task(outcome.answers))
        return Evaluation(epoch, accuracy)

    @torch.inference_mode()
    def _features(self, network: nn.Module) -> torch.Tensor:
        trained = network.training
        network.eval()
        try:
            batches = (batch.to(self.device) for batch in torch.from_numpy(self.pixels).split(_AT_ONCE))
            images = (normalised(batch, self.transform) for batch in batches)
            return torch.cat([network(x.contiguous(memory_format=torch.channels_last)) for x in images]).cpu()
        finally:
            network.train(trained)
