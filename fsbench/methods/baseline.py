"""Baseline and Baseline++: a linear head, fitted to the support."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fsbench.features.preprocess import apply_rows
from fsbench.methods.base import MethodInfo, Parameters, require_amount, require_count
from fsbench.methods.centroids import class_means
from fsbench.methods.heads import descend, probabilities, support_slope

if TYPE_CHECKING:
    from fsbench.features.scatter import BaseStatistics
    from fsbench.tasks.batch import TaskBatch

_REFERENCE = 'Chen et al., "A Closer Look at Few-shot Classification", ICLR 2019'
_GRID = {
    "temperature": (0.1, 0.5, 1.5, 5.0, 15.0, 30.0, 60.0),
    "rate": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
}


@dataclass(frozen=True)
class Baseline(Parameters):
    """A head fitted to the support by cross-entropy, on features as they are. Inductive.

    As in Veilleux et al., "Realistic Evaluation of Transductive Few-Shot Learning", NeurIPS 2021, that is with logits
    −T/2 d², started from the class means. On raw features the softmax is so sharp that with one shot the head hardly
    leaves the means. The proportions of the classes among the queries play no role.
    """

    temperature: float = 15.0
    rate: float = 1e-3
    steps: int = 100

    info: ClassVar[MethodInfo] = MethodInfo(
        name="baseline",
        title="Baseline",
        reference=_REFERENCE,
        transductive=False,
        prior="none",
        grid=_GRID,
    )

    def __post_init__(self) -> None:
        require_amount(temperature=self.temperature, rate=self.rate)
        require_count(steps=self.steps)

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """Features as they are (UN)."""
        return apply_rows("UN", features)

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of the logits under the fitted head, (B, Q, K)."""
        return probabilities(tasks.rows[:, tasks.support_size :], self._fit(tasks), self.temperature).mT

    def _fit(self, tasks: TaskBatch) -> Tensor:
        """Weights (B, K, D) after the last step on the mean of −log p_y over the support."""
        rows, slope = tasks.rows[:, : tasks.support_size], partial(support_slope, labels=tasks.one_hot())
        start = class_means(tasks)
        return descend(rows, start, slope, temperature=self.temperature, rate=self.rate, steps=self.steps)


@dataclass(frozen=True)
class BaselinePlusPlus(Baseline):
    """The head of Baseline, read by cosines: the softmax of T times those between queries and weights. Inductive.

    Departs from Chen et al.: the head is fitted with the logits −T/2 d² of Baseline, not with cosines. The tables
    of Veilleux et al. were made this way.
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        name="baseline++",
        title="Baseline++",
        reference=_REFERENCE,
        transductive=False,
        prior="none",
        grid=_GRID,
    )

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of T times the cosines, (B, Q, K)."""
        query = functional.normalize(tasks.rows[:, tasks.support_size :], dim=2)
        weights = functional.normalize(self._fit(tasks), dim=2)
        return torch.softmax(self.temperature * (query @ weights.mT), dim=2)
