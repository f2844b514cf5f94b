"""GDA: Gaussian discriminant analysis beside zero-shot classification."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fsbench.methods.base import Method, MethodInfo, NonNegative
from fsbench.methods.centroids import class_means, support_and_query
from fsbench.methods.zero_shot import text_logits
from fsbench.tasks.batch import TaskBatch


class GDA(Method):
    """Zero-shot logits plus α times those of Gaussians with one covariance: 100 x·t_k + α (x·Pμ_k + b_k).

    Inductive. P is the precision of the support around its class means with the ridge of Kubokawa and Srivastava. With
    one shot it is zero, and the text decides alone. The published numbers chose α by data set.
    """

    weight: NonNegative = 0.01  # α

    preprocessing = "L2N"
    info = MethodInfo(
        "gda", "GDA", 'Wang et al., "A Hard-to-Beat Baseline for Training-free CLIP-based Adaptation", ICLR 2024',
        url="https://arxiv.org/abs/2402.04087", order=320, transductive=False, text="needed",
        grid={"weight": (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0)}, published={"GDA": {}},
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of both logits, (B, Q, K)."""
        query, means = support_and_query(tasks)[1], class_means(tasks)  # μ (B, K, D)
        directions = self._precise(tasks, means)  # (B, K, D) P μ_k
        offset = -math.log(tasks.ways) - (means * directions).sum(dim=2) / 2  # (B, K) b_k
        gaussian = query @ directions.mT + offset[:, None, :]
        return torch.softmax(text_logits(tasks) + self.weight * gaussian, dim=2)

    @staticmethod
    def _precise(tasks: TaskBatch, means: Tensor) -> Tensor:
        """P μ_k (B, K, D), P = D (CᵀC + r I)⁻¹ with rows C (B, S, D) around their class means, r = tr(CᵀC) / (S − 1).

        Through S × S matrices while these are the smaller ones: (CᵀC + r I)⁻¹ = (I − Cᵀ (C Cᵀ + r I)⁻¹ C) / r.
        """
        support = support_and_query(tasks)[0]
        centred = support - tasks.one_hot().mT @ means  # C
        S, D = centred.shape[1:]
        spread = centred.square().sum(dim=(1, 2))[:, None, None] / max(1, S - 1)  # (B, 1, 1) r
        ridge = spread.clamp_min(torch.finfo(spread.dtype).eps)
        identity = torch.eye(min(S, D), dtype=centred.dtype, device=centred.device)
        if S < D:
            inner = torch.linalg.solve(centred @ centred.mT + ridge * identity, centred @ means.mT)  # (B, S, K)
            precise = (means - inner.mT @ centred) / ridge
        else:
            precise = torch.linalg.solve(centred.mT @ centred + ridge * identity, means.mT).mT
        return torch.where(spread > torch.finfo(spread.dtype).eps, D * precise, 0.0)
