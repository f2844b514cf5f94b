"""Baseline and Baseline++: a linear head, fitted to the support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch.nn import functional

from fsbench.features.preprocess import apply_rows
from fsbench.methods.base import MethodInfo, Parameters, require_amount, require_count
from fsbench.methods.centroids import class_means
from fsbench.methods.heads import descend, probabilities, support_slope

if TYPE_CHECKING:
    from torch import Tensor

    from fsbench.features.scatter import BaseStatistics
    from fsbench.tasks.batch import TaskBatch

_REFERENCE = 'Chen et al., "A Closer Look at Few-shot Classification", ICLR 2019'


@dataclass(frozen=True)
class Baseline(Parameters):
    """A head fitted to the support by cross-entropy, on features as they are. Inductive.

    Chen, Liu, Kira, Wang, Huang: "A Closer Look at Few-shot Classification", ICLR 2019; as in Veilleux, Boudiaf,
    Piantanida, Ben Ayed: "Realistic Evaluation of Transductive Few-Shot Learning", NeurIPS 2021, that is with logits
    −T/2 d², started from the class means. On raw features the softmax is so sharp that with one shot the head hardly
    leaves the means. The proportions of the classes among the queries play no role.

    Attributes:
        temperature: T.
        rate: Learning rate of Adam.
        steps: Steps of Adam.
    """

    temperature: float = 15.0
    rate: float = 1e-3
    steps: int = 100

    info: ClassVar[MethodInfo] = MethodInfo(
        name="baseline", title="Baseline", reference=_REFERENCE, transductive=False, prior="none"
    )

    def __post_init__(self) -> None:
        require_amount(temperature=self.temperature, rate=self.rate)
        require_count(steps=self.steps)

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """Features as they are (UN)."""
        return apply_rows("UN", features)

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of the logits under the fitted head, (B, Q, K)."""
        query = tasks.rows[:, tasks.support_size :]
        return probabilities(query, self._fit(tasks), self.temperature).mT

    def _fit(self, tasks: TaskBatch) -> Tensor:
        """Weights (B, K, D) after the last step on the mean of −log p_y over the support."""
        labels = tasks.one_hot()  # (B, K, S)
        return descend(
            tasks.rows[:, : tasks.support_size],
            class_means(tasks),
            lambda p: support_slope(p, labels),
            temperature=self.temperature,
            rate=self.rate,
            steps=self.steps,
        )


@dataclass(frozen=True)
class BaselinePlusPlus(Baseline):
    """The head of Baseline, read by cosines. Inductive.

    Chen, Liu, Kira, Wang, Huang: "A Closer Look at Few-shot Classification", ICLR 2019; as in Veilleux et al., NeurIPS
    2021. Probabilities are the softmax of T times the cosines between queries and weights.

    Departs from Chen et al.: the head is fitted with the logits −T/2 d² of Baseline, not with cosines. The tables
    of Veilleux et al. were made this way.
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        name="baseline++", title="Baseline++", reference=_REFERENCE, transductive=False, prior="none"
    )

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of T times the cosines, (B, Q, K)."""
        query = functional.normalize(tasks.rows[:, tasks.support_size :], dim=2)
        weights = functional.normalize(self._fit(tasks), dim=2)
        return torch.softmax(self.temperature * (query @ weights.mT), dim=2)
