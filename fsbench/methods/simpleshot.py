"""SimpleShot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from fsbench.errors import unknown_name
from fsbench.features.preprocess import ROW_CHAINS, apply_rows, extreme_scale
from fsbench.methods.base import MethodInfo, Parameters, require_base
from fsbench.methods.catalog import INFOS
from fsbench.methods.centroids import class_means, squared_distances, support_and_query

if TYPE_CHECKING:
    from fsbench.features.scatter import BaseStatistics
    from fsbench.tasks.batch import TaskBatch


@dataclass(frozen=True)
class SimpleShot(Parameters):
    """Nearest class mean on features that were centred and normalised, or not.

    Class means of the transformed support are not normalised again; queries go to the nearest one by Euclidean
    distance. Inductive; the classes' proportions play no role. Probabilities are the softmax of minus the squared
    distance, so that with CL2N it is the same as `ncm`.

    Attributes:
        norm: `CL2N`: subtract the mean of the base features, unit norm. `L2N`: unit norm. `UN`: raw features. Only
            CL2N needs base classes.
    """

    norm: Literal["CL2N", "L2N", "UN"] = "CL2N"

    info: ClassVar[MethodInfo] = INFOS["simpleshot"]

    def __post_init__(self) -> None:
        if self.norm not in ROW_CHAINS:
            raise unknown_name("norm", str(self.norm), ROW_CHAINS)

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """Rows with the chosen norm."""
        if self.norm != "CL2N":
            return apply_rows(self.norm, features)
        return apply_rows("CL2N", features, require_base(base, "SimpleShot with norm CL2N").mean.to(features))

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax over the classes of minus the squared distance to the class means, (B, Q, K)."""
        means, query = class_means(tasks), support_and_query(tasks)[1]
        # Distances from a point nearby keep their digits when raw features share a large offset.
        origin = means.mean(dim=1, keepdim=True)
        means, query = means - origin, query - origin
        scale = extreme_scale(means, (-2, -1))
        return torch.softmax(-squared_distances(means / scale, query / scale), dim=1).mT
