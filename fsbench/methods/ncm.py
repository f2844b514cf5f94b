"""Nearest class mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from fsbench.features.preprocess import apply_rows
from fsbench.methods.base import MethodInfo, Parameters, require_base
from fsbench.methods.centroids import class_means, support_and_query

if TYPE_CHECKING:
    from torch import Tensor

    from fsbench.features.scatter import BaseStatistics
    from fsbench.tasks.batch import TaskBatch


@dataclass(frozen=True)
class NearestClassMean(Parameters):
    """Nearest mean of the support, on CL2N features: the inductive reference.

    Snell, Swersky, Zemel: "Prototypical Networks for Few-shot Learning", NeurIPS 2017. Probabilities are the softmax
    over the classes of minus the squared distance.
    """

    info: ClassVar[MethodInfo] = MethodInfo(
        name="ncm",
        title="NCM",
        reference='Snell et al., "Prototypical Networks for Few-shot Learning", NeurIPS 2017',
        transductive=False,
        prior="none",
        needs_base=True,
    )

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """CL2N rows."""
        mean = require_base(base, self.info.title).mean
        return apply_rows("CL2N", features, mean.to(features))

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax over the classes of minus the squared distance to the class means, (B, Q, K)."""
        query = support_and_query(tasks)[1]
        means = class_means(tasks)  # (B, K, D)
        logits = 2 * query @ means.mT - means.square().sum(dim=2)[:, None, :]  # ‖x‖² is the same for every class
        return torch.softmax(logits, dim=2)
