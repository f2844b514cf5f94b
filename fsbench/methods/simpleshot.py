"""SimpleShot."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fsbench.features.preprocess import extreme_scale
from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import Method, MethodInfo, Variants, prepared
from fsbench.methods.centroids import class_means, squared_distances, support_and_query
from fsbench.tasks.batch import TaskBatch


class SimpleShot(Method):
    """Nearest class mean on features that were centred and normalised, or not.

    Class means of the transformed support are not normalised again; queries go to the nearest one by Euclidean
    distance. Inductive; the classes' proportions play no role. Probabilities are the softmax of minus the squared
    distance, so that with CL2N it is the same as `ncm`.
    """

    # `CL2N`: subtract the mean of the base features, unit norm. `L2N`: unit norm. `UN`: raw features. Only CL2N needs
    # base classes.
    norm: Literal["CL2N", "L2N", "UN"] = "CL2N"

    info = MethodInfo(
        "simpleshot", "SimpleShot",
        'Wang et al., "SimpleShot: Revisiting Nearest-Neighbor Classification for Few-Shot Learning", 2019',
        url="https://arxiv.org/abs/1911.04623", order=20, transductive=False, prior="none", needs_base=True,
        variants=Variants("norm", ("CL2N", "L2N", "UN"), without_base=("L2N", "UN")),
        published={"SimpleShot": {"norm": ("CL2N",)}},
    )  # fmt: skip

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """Rows with the chosen norm."""
        return prepared(self.norm, features, base, "SimpleShot with norm CL2N")

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax over the classes of minus the squared distance to the class means, (B, Q, K)."""
        means, query = class_means(tasks), support_and_query(tasks)[1]
        # Distances from a point nearby keep their digits when raw features share a large offset.
        origin = means.mean(dim=1, keepdim=True)
        means, query = means - origin, query - origin
        scale = extreme_scale(means, (-2, -1))
        return torch.softmax(-squared_distances(means / scale, query / scale), dim=1).mT
