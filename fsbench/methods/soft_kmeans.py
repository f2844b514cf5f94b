"""Soft-KMEANS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fsbench.methods.base import Context, Count, Method, MethodInfo, Positive
from fsbench.methods.centroids import Clusters, products_of
from fsbench.methods.presets import temperature_of
from fsbench.tasks.batch import TaskBatch


@dataclass(frozen=True)
class SoftKMeans(Method):
    """Soft k-means on CL2N features, seeded with the support, whose labels stay fixed.

    As in Hu, Pateux, Gripon. Assignments are softmax(−T_km d²), without a factor ½. The mixing weights are uniform:
    the classes' proportions play no role in the assignment.
    """

    t_km: Positive = 50.0
    km_steps: Count = 5

    preprocessing = "CL2N"
    info = MethodInfo(
        "soft-kmeans", "Soft-KMEANS",
        'Kearns, Mansour, Ng, "An information-theoretic analysis of hard and soft assignment methods for '
        'clustering", 1998', url="https://arxiv.org/abs/1302.1552", order=210, transductive=True, prior="none",
        needs_base=True, grid={"t_km": (2.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0, 100.0, 150.0, 200.0)},
        published={"Soft-KMEANS": {}},
    )  # fmt: skip

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
    for step in steps:
        latest = step
    return latest
