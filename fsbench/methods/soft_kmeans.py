"""Soft-KMEANS, and the parameters that it shares with BAVARDAGE: defaults, and the article's presets.

The presets are those of the article's appendix on tuning, in its units. They belong to the article's networks: on
other features of the same images they can end far below Soft-KMEANS. The scale-free defaults do not, so that presets
are used only on request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fsbench.data.catalog import benchmark_of
from fsbench.errors import FsbenchError, unknown_name
from fsbench.methods.base import Context, Count, Method, MethodInfo, Positive
from fsbench.methods.centroids import Clusters, products_of
from fsbench.tasks.batch import TaskBatch


class Preset(NamedTuple):
    """T_km, T_vb and s_max in the article's units."""

    t_km: float
    t_vb: float
    s_max: float


_MINI = {"balanced": Preset(10, 50, 2), "unbalanced": Preset(50, 50, 1)}
PRESETS = {
    "mini": _MINI,
    "fc100": _MINI,
    "cifarfs": _MINI,
    "tiered": {"balanced": Preset(10, 100, 2), "unbalanced": Preset(100, 100, 1)},
    "cub": {"balanced": Preset(10, 4, 5), "unbalanced": Preset(10, 4, 5)},
}


def benchmark_with_preset(dataset: str) -> str:
    """The benchmark that a data set is a split of, if the article has a preset for it; else an error."""
    benchmark = benchmark_of(dataset)
    if benchmark not in PRESETS:
        raise FsbenchError(
            f"The article has no preset for {dataset or 'a data set without a name'}.",
            f"Use the defaults, which need none. Presets exist for {', '.join(PRESETS)}.",
        )
    return benchmark


def preset_of(context: Context) -> Preset | None:
    """The preset that the context asks for, in its setting; None if it asks for none."""
    if not context.preset:
        return None
    if context.preset not in PRESETS:
        raise unknown_name("preset", context.preset, PRESETS)
    return PRESETS[context.preset]["balanced" if context.balanced else "unbalanced"]


def temperature_of(context: Context) -> float:
    """T_km for the context."""
    preset = preset_of(context)
    return float(preset.t_km) if preset else 10.0 if context.balanced else 50.0


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
        'clustering", 1998', url="https://arxiv.org/abs/1302.1552", order=210,
        needs_base=True, grid={"t_km": (2.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0, 100.0, 150.0, 200.0)},
        published={"Soft-KMEANS": {}},
    )  # fmt: skip

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """T_km depends on the setting, and on the preset if one is asked for."""
        return {"t_km": temperature_of(context)}

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Assignments of the queries after the last E step, (B, Q, K)."""
        return soft_kmeans(Clusters(products_of(tasks), tasks.one_hot()), self.t_km, self.km_steps).mT


def over_classes(logits: Tensor) -> Tensor:
    """Assignments (B, K, Q) of the queries: softmax over the classes."""
    return torch.softmax(logits, dim=1)


def soft_kmeans(
    clusters: Clusters, temperature: float, steps: int, normalised: Callable[[Tensor], Tensor] = over_classes
) -> Tensor:
    """Soft assignments o (B, K, Q) of the queries after the last E step; `normalised` makes them of the logits.

    The first ones are those of the nearest class mean, softmax(−T_km d²) with d the distance to the support's means.
    """
    similarity, squared = clusters.means()
    # −T d², up to ‖x_n‖², which is the same for every class
    assigned = normalised(temperature * (2 * similarity - squared))
    for _ in range(steps - 1):
        similarity, squared = clusters.centroids(assigned, clusters.count(assigned))
        assigned = normalised(temperature * (2 * similarity - squared))
    return assigned
