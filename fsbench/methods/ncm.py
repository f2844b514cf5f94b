"""Nearest class mean."""

from __future__ import annotations

import torch
from torch import Tensor

from fsbench.methods.base import Method, MethodInfo
from fsbench.methods.centroids import class_means, support_and_query
from fsbench.tasks.batch import TaskBatch


class NearestClassMean(Method):
    """Nearest mean of the support, on CL2N features: the inductive reference."""

    preprocessing = "CL2N"
    info = MethodInfo(
        "ncm", "NCM", 'Snell et al., "Prototypical Networks for Few-shot Learning", NeurIPS 2017',
        url="https://arxiv.org/abs/1703.05175", order=10, transductive=False, prior="none", needs_base=True,
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax over the classes of minus the squared distance to the class means, (B, Q, K)."""
        means, query = class_means(tasks), support_and_query(tasks)[1]
        logits = 2 * query @ means.mT - means.square().sum(dim=2)[:, None, :]  # ‖x‖² is the same for every class
        return torch.softmax(logits, dim=2)
