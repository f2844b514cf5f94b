"""PT-MAP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from fsbench.errors import FsbenchError
from fsbench.features.preprocess import centre_parts, power_rows
from fsbench.methods.base import MethodInfo, Parameters, require_amount, require_count
from fsbench.methods.catalog import INFOS
from fsbench.methods.centroids import InnerProducts, inner_products, mean_weights
from fsbench.methods.transport import EqualSizes

if TYPE_CHECKING:
    from fsbench.features.scatter import BaseStatistics
    from fsbench.tasks.batch import TaskBatch

# Newton steps from nothing, and from the potentials of the epoch before. With λ = 10, 12 and 4
# come within 1e-8 of the limit, in probabilities; the others are for larger λ.
FIRST_STEPS, NEXT_STEPS = 16, 5


@dataclass(frozen=True)
class PtMap(Parameters):
    """Optimal transport of the queries to the classes, and centroids that follow it.

    Features are made Gaussian-like by a power transform (the chain PT). Then, in turns, queries are assigned to the
    centroids by entropic transport with classes of equal size, and centroids move part of the way to the means of what
    was assigned to them. Transductive; it assumes that all classes are equally frequent among the queries, also where
    they are not. Queries are centred with their own mean, so that of a single query nothing is left: its answer is the
    same whatever it shows.
    """

    scale: float = 10.0  # λ; the transport starts from exp(−λ d²)
    rate: float = 0.2  # a, the part of the way that centroids go in an epoch
    epochs: int = 20  # updates of the centroids

    info: ClassVar[MethodInfo] = INFOS["pt-map"]

    def __post_init__(self) -> None:
        require_amount(scale=self.scale, rate=self.rate)
        require_count(epochs=self.epochs)
        if self.rate > 1:
            raise FsbenchError(f"rate must be at most 1, all of the way, got {self.rate}.")

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """The row-level half of PT; the base classes are not needed."""
        return power_rows(features)

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Transport plan of the queries for the last centroids, (B, Q, K)."""
        # Departs from the released program: no QR reduction first, which would only turn the task.
        products = inner_products(centre_parts(tasks.rows, tasks.support_size))
        support = tasks.one_hot()  # (B, K, S)
        centroids = mean_weights(tasks)  # (B, K, N) weights over the samples
        # Departs from the released program: it stops Sinkhorn's iteration when no sum of a query's shares changes by
        # more than 1e-6, or after 1000 rounds. Here its limit is approached more directly.
        assign = EqualSizes(FIRST_STEPS, NEXT_STEPS)
        plan = assign(self._logits(products, centroids, tasks.support_size))  # (B, K, Q)
        for _ in range(self.epochs):
            assigned = torch.cat([support, plan], dim=2)  # (B, K, N)
            estimate = assigned / assigned.sum(dim=2, keepdim=True)
            centroids = centroids + self.rate * (estimate - centroids)
            plan = assign(self._logits(products, centroids, tasks.support_size))
        return plan.mT

    def _logits(self, products: InnerProducts, centroids: Tensor, support: int) -> Tensor:
        """−λ d² of the queries, (B, K, Q), without ‖x_n‖² and ‖μ_k‖².

        The plan does not depend on what a sample or a class adds to the logits.
        """
        return 2 * self.scale * products(centroids)[:, :, support:]
