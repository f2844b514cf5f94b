"""Few-shot accuracy on the val classes while a network is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader

from fsbench.data.images import OutOfReachError
from fsbench.errors import FsbenchError
from fsbench.evaluation.engine import TaskList, solve_tasks
from fsbench.features.forward import Images
from fsbench.features.preprocess import apply_rows
from fsbench.features.store import make_split
from fsbench.methods.ncm import NearestClassMean
from fsbench.results.statistics import Interval, accuracies, interval
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import check_feasible, pool_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from fsbench.data.dataset import ImageSplit
    from fsbench.data.transforms import EvalTransform
    from fsbench.features.forward import Item
    from fsbench.features.scatter import BaseStatistics

PROTOCOLS = {shots: TaskProtocol(shots=shots, alpha=None) for shots in (1, 5)}
TASKS = 500
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


@dataclass(frozen=True)
class UnitClassMean(NearestClassMean):
    """Nearest class mean on unit-norm features, which needs no statistics of the base classes."""

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """L2N rows."""
        return apply_rows("L2N", features)


@dataclass(frozen=True)
class Validation:
    """Evaluates a network on the val classes; `workers` is the number of processes that read images."""

    split: ImageSplit
    transform: EvalTransform
    workers: int

    def refusal(self) -> FsbenchError | None:
        """Why no tasks can be drawn from these classes; None if they can."""
        try:
            for protocol in PROTOCOLS.values():
                check_feasible(protocol, pool_sizes(protocol, self.split.offsets))
        except FsbenchError as error:
            return error
        return None

    def __call__(self, network: nn.Module, device: torch.device, epoch: int) -> Evaluation:
        """5-way accuracy of the nearest class mean, balanced, for 1 and 5 shots."""
        features = self._features(network, device)
        if not bool(features.isfinite().all()):
            raise FsbenchError(
                f"The training diverged in epoch {epoch}: features of the val classes are not finite numbers.",
                "Lower --lr.",
            )
        split = make_split(features.numpy(), self.split.labels, self.split.class_names)
        accuracy = {}
        for shots, protocol in PROTOCOLS.items():
            outcome = solve_tasks(UnitClassMean(), split, None, TaskList(protocol, _SEED, TASKS), device=device)
            accuracy[shots] = interval(accuracies(outcome.correct, outcome.queries))
        return Evaluation(epoch, accuracy)

    @torch.inference_mode()
    def _features(self, network: nn.Module, device: torch.device) -> Tensor:
        images = Images((self.split,), self.transform, None, 1)
        loader = DataLoader(images, batch_size=_AT_ONCE, num_workers=self.workers, collate_fn=list)
        trained = network.training
        network.eval()
        try:
            return torch.cat([network(_stack(items, device)) for items in loader]).cpu()
        finally:
            network.train(trained)


def best_of(history: Sequence[Evaluation]) -> Evaluation:
    """The evaluation with the highest accuracy at the fewest shots; of equals the latest."""
    return max(history, key=lambda found: (found.accuracy[min(found.accuracy)].mean, found.epoch))


def _stack(items: list[Item], device: torch.device) -> Tensor:
    tensors = []
    for _, value in items:
        if isinstance(value, OutOfReachError):
            raise FsbenchError(f"An image of the val classes cannot be used: {value.message}", value.hint)
        if isinstance(value, str):
            raise FsbenchError(f"An image of the val classes cannot be used: {value}", "Repair or remove it.")
        tensors.append(value)
    return torch.cat(tensors).to(device).contiguous(memory_format=torch.channels_last)
