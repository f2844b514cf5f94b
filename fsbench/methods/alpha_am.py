"""alpha-AM: adaptive manifold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch.nn import functional

from fsbench.errors import FsbenchError
from fsbench.features.preprocess import centre_task, power_rows, unit_norm
from fsbench.methods._adam import Adam
from fsbench.methods._checks import require_amount, require_count
from fsbench.methods._manifold import (
    centroid_distances,
    centroid_gradient,
    exact_distances,
    excluded_edges,
    gradients,
    set_centroid_distances,
    spread,
)
from fsbench.methods._objective import Objective
from fsbench.methods._prototypes import class_means
from fsbench.methods.base import Context, MethodInfo, Parameters
from fsbench.tasks.batch import TaskBatch

if TYPE_CHECKING:
    from torch import Tensor

    from fsbench.features.scatter import BaseStatistics


@dataclass(frozen=True)
class AlphaAm(Parameters):
    """Label propagation from learned centroids over a learned graph, trained with the loss of α-TIM. Transductive.

    Lazarou, Avrithis, Stathaki: "Adaptive manifold for imbalanced transductive few-shot learning", WACV 2024.
    The labels of one centroid per class spread over a graph of nearest neighbours; Adam moves the centroids and two
    numbers per edge so that the support is fitted and the queries are decided. On balanced tasks the loss is that of
    TIM, which draws the proportions of the classes towards uniform ones (the article's AM); on others Tsallis'
    entropies let the proportions follow the data (its α-AM).

    Attributes:
        chain: Pre-processing: `PLC` or `L2N`.
        propagation: α, how much a node takes from its neighbours.
        neighbours: k, neighbours per sample.
        order: Of the entropies; at 1 they are Shannon's.
        cross_entropy: Weight of the cross-entropy of the support.
        marginal: Weight of the entropy of the mean prediction.
        conditional: Weight of the mean entropy of the predictions.
        temperature: T, which multiplies what the labels reach.
        rate: Learning rate of Adam.
        steps: Passes forward; the answer is that of the last one.
    """

    chain: Literal["PLC", "L2N"] = "PLC"
    propagation: float = 0.8
    neighbours: int = 20
    order: float = 2.0
    cross_entropy: float = 1.0
    marginal: float = 1.0
    conditional: float = 1.0
    temperature: float = 15.0
    rate: float = 1e-4
    steps: int = 1000

    info: ClassVar[MethodInfo] = MethodInfo(
        name="alpha-am",
        title="α-AM",
        source='Lazarou et al., "Adaptive manifold for imbalanced transductive few-shot learning", WACV 2024',
        transductive=True,
        prior="free",
    )

    def __post_init__(self) -> None:
        if self.chain not in ("PLC", "L2N"):
            raise FsbenchError(f"chain must be PLC or L2N, got {self.chain!r}.")
        self._objective()
        require_amount(propagation=self.propagation, temperature=self.temperature, rate=self.rate)
        require_count(neighbours=self.neighbours, steps=self.steps)
        if self.propagation >= 1:
            raise FsbenchError(f"propagation must be below 1, got {self.propagation}.")

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """As in the released program.

        Departs from it for two to four shots of unbalanced tasks: there it divides by zero; the order of one shot
        is taken.
        """
        if context.balanced:
            many, loss = context.shots > 1, {"order": 1.0, "marginal": 10.0}
        else:
            many = context.shots >= 5
            loss = {"order": 5.0 if many else 2.0, "marginal": 1.0}
        return {**loss, "propagation": 0.9 if many else 0.8, "neighbours": 10 if many else 20}

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """L2N rows; for PLC, which is applied to whole tasks, rows as they are."""
        return unit_norm(features) if self.chain == "L2N" else power_rows(features)

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of T times what the labels of the centroids reach in the last pass, (B, Q, K)."""
        rows = tasks.rows if self.chain == "L2N" else centre_task(tasks.rows)  # (B, N, D)
        labels, ways, objective = tasks.one_hot(), tasks.ways, self._objective()
        start = class_means(TaskBatch(rows, tasks.support_labels, ways))  # (B, K, D)
        squared = exact_distances(start, rows).square()  # (B, K, N)
        distances = functional.pad(exact_distances(rows, rows), (ways, 0, ways, 0))  # (B, n, n)
        excluded = excluded_edges(ways, distances)
        gate = torch.ones_like(distances)
        emphasis = torch.full_like(distances, self.propagation)
        shift = torch.zeros_like(start)
        optimisers = [Adam(parameter, self.rate) for parameter in (shift, gate, emphasis)]
        for step in range(self.steps):
            near = centroid_distances(start, shift, rows, squared)  # (B, K, n)
            set_centroid_distances(distances, near)
            found = spread(distances, gate, emphasis, excluded, ways, self.neighbours, self.propagation)
            p = torch.softmax(self.temperature * found.reached[:, ways:], dim=2).mT  # (B, K, N)
            if step == self.steps - 1:
                break
            slope = objective.slope(p, labels).mT.mul(self.temperature)  # (B, N, K)
            d_reached = functional.pad(slope, (0, 0, ways, 0))  # (B, n, K): the loss does not see the centroids
            d_near, d_gate, d_emphasis = gradients(found, d_reached, distances, gate, emphasis, ways, self.propagation)
            d_centroids = centroid_gradient(d_near, near, start + shift, rows)
            for optimiser, gradient in zip(optimisers, (d_centroids, d_gate, d_emphasis), strict=True):
                optimiser.step(gradient)
        return p[:, :, tasks.support_size :].mT

    def _objective(self) -> Objective:
        return Objective(self.cross_entropy, self.marginal, self.conditional, self.order)
