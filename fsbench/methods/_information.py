"""What TIM-GD and its relatives share: a head that goes down a loss of information."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsbench.features.preprocess import apply_rows
from fsbench.methods._blocks import in_blocks
from fsbench.methods._checks import require_amount, require_count
from fsbench.methods._head import descend, probabilities
from fsbench.methods._prototypes import class_means
from fsbench.methods.base import Parameters

if TYPE_CHECKING:
    from torch import Tensor

    from fsbench.features.scatter import BaseStatistics
    from fsbench.methods._objective import Objective
    from fsbench.tasks.batch import TaskBatch


class InformationHead(Parameters):
    """Mixin for methods that differ in their objective alone: L2N features, a head from the class means, Adam."""

    temperature: float
    rate: float
    steps: int

    def __post_init__(self) -> None:
        self.objective()  # checks the weights
        require_amount(temperature=self.temperature, rate=self.rate)
        require_count(steps=self.steps)

    def objective(self) -> Objective:
        """The loss that the parameters describe."""
        raise NotImplementedError

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """L2N rows."""
        return apply_rows("L2N", features)

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of the logits under the weights after the last step, (B, Q, K)."""
        return in_blocks(self._classify, tasks, tasks.rows.shape[1] * tasks.rows.shape[2])

    def _classify(self, tasks: TaskBatch) -> Tensor:
        objective, labels = self.objective(), tasks.one_hot()  # (B, K, S)
        weights = descend(
            tasks.rows,
            class_means(tasks),
            lambda p: objective.slope(p, labels),
            temperature=self.temperature,
            rate=self.rate,
            steps=self.steps,
        )
        return probabilities(tasks.rows[:, tasks.support_size :], weights, self.temperature).mT
