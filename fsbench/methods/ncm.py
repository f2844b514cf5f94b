"""Nearest class mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from fsbench.methods.catalog import INFOS
from fsbench.methods.centroids import CentredRows, class_means, support_and_query

if TYPE_CHECKING:
    from fsbench.methods.base import MethodInfo
    from fsbench.tasks.batch import TaskBatch


@dataclass(frozen=True)
class NearestClassMean(CentredRows):
    """Nearest mean of the support, on CL2N features: the inductive reference."""

    info: ClassVar[MethodInfo] = INFOS["ncm"]

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax over the classes of minus the squared distance to the class means, (B, Q, K)."""
        means, query = class_means(tasks), support_and_query(tasks)[1]
        logits = 2 * query @ means.mT - means.square().sum(dim=2)[:, None, :]  # ‖x‖² is the same for every class
        return torch.softmax(logits, dim=2)
