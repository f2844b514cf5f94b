"""Tip-Adapter."""

from __future__ import annotations

import torch
from torch import Tensor

from fsbench.methods.base import Method, MethodInfo, NonNegative, Positive
from fsbench.methods.centroids import support_and_query
from fsbench.methods.zero_shot import text_logits
from fsbench.tasks.batch import TaskBatch


class TipAdapter(Method):
    """Zero-shot logits plus those of a cache of the support: 100 x·t_k + a Σ_j exp(−β (1 − x·s_j)) Y_jk.

    Inductive. The defaults a = β = 1 need no validation images; the published numbers chose both by data set.
    """

    weight: NonNegative = 1.0  # a
    sharpness: Positive = 1.0  # β

    preprocessing = "L2N"
    info = MethodInfo(
        "tip-adapter", "Tip-Adapter", 'Zhang et al., "Tip-Adapter: Training-free Adaption of CLIP…", ECCV 2022',
        url="https://arxiv.org/abs/2207.09519", order=310, transductive=False, text="needed",
        grid={"weight": (0.5, 1.0, 2.0, 4.0, 7.0, 12.0), "sharpness": (0.5, 1.0, 2.0, 3.5, 5.5, 7.5, 10.0, 13.0)},
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of both logits, (B, Q, K)."""
        support, query = support_and_query(tasks)
        cached = torch.exp(self.sharpness * (query @ support.mT - 1)) @ tasks.one_hot().mT  # (B, Q, K)
        return torch.softmax(text_logits(tasks) + self.weight * cached, dim=2)
