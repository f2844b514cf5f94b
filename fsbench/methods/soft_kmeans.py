"""Soft-KMEANS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fsbench.methods.base import Context, MethodInfo, require_amount, require_count
from fsbench.methods.catalog import INFOS
from fsbench.methods.centroids import CentredRows, Clusters, products_of
from fsbench.methods.presets import temperature_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsbench.tasks.batch import TaskBatch


@dataclass(frozen=True)
class SoftKMeans(CentredRows):
    """Soft k-means on CL2N features, seeded with the support, whose labels stay fixed.

    As in Hu, Pateux, Gripon. Assignments are softmax(−T_km d²), without a factor ½. The mixing weights are uniform:
    the classes' proportions play no role in the assignment.
    """

    t_km: float = 50.0
    km_steps: int = 5

    info: ClassVar[MethodInfo] = INFOS["soft-kmeans"]

    def __post_init__(self) -> None:
        require_amount(t_km=self.t_km)
        require_count(km_steps=self.km_steps)

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """T_km depends on the setting, and on the preset if one is asked for."""
        return {"t_km": temperature_of(context)}

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Assignments of the queries after the last E step, (B, Q, K)."""
        return last(self.assignments(tasks)).mT

    def assignments(self, tasks: TaskBatch) -> Iterator[Tensor]:
        """Soft assignments o (B, K, Q) of the queries after every E step."""
        return soft_kmeans(Clusters(products_of(tasks), tasks.one_hot()), self.t_km, self.km_steps)


def over_classes(logits: Tensor) -> Tensor:
    """Assignments (B, K, Q) of the queries: softmax over the classes."""
    return torch.softmax(logits, dim=1)


def soft_kmeans(
    clusters: Clusters, temperature: float, steps: int, normalised: Callable[[Tensor], Tensor] = over_classes
) -> Iterator[Tensor]:
    """Soft assignments o (B, K, Q) of the queries after every E step, which `normalised` makes of the logits.

    The first ones are those of the nearest class mean, softmax(−T_km d²) with d the distance to the support's means.
    The centroids after the last step are not needed.
    """
    similarity, squared = clusters.means()
    for step in range(1, steps + 1):
        logits = temperature * (2 * similarity - squared)  # −T d², up to ‖x_n‖², which is the same for every class
        assigned = normalised(logits)
        yield assigned
        if step < steps:
            similarity, squared = clusters.centroids(assigned, clusters.count(assigned))


def last(steps: Iterator[Tensor]) -> Tensor:
    """What the last step gives; those before are not kept."""
    found = next(steps)
    for step in steps:
        found = step
    return found
