"""Inductive methods with text: zero-shot classification, Tip-Adapter and GDA; and what all methods with text share."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fsbench.methods.base import Method, MethodInfo, NonNegative, Positive
from fsbench.methods.centroids import class_means, support_and_query
from fsbench.methods.lda import ridge_precision
from fsbench.tasks.batch import TaskBatch

SCALE = 100.0  # of cosines in logits, which CLIP learned


class ZeroShot(Method):
    """The nearest text prototype by cosine; the support is not looked at."""

    scale: Positive = SCALE

    preprocessing = "L2N"
    info = MethodInfo(
        "zero-shot", "Zero-shot", 'Radford et al., "Learning Transferable Visual Models From Natural Language '
        'Supervision", ICML 2021', url="https://arxiv.org/abs/2103.00020", order=300, transductive=False,
        text="needed", zero_shot=True, published={"CLIP": {}},
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of scaled cosines, (B, Q, K)."""
        return torch.softmax(text_logits(tasks, self.scale), dim=2)


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
        grid={"weight": (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 10.0, 100.0)}, published={"GDA": {}},
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of both logits, (B, Q, K)."""
        query, means = support_and_query(tasks)[1], class_means(tasks)  # μ (B, K, D)
        directions = ridge_precision(tasks, means, alone=0.0)  # (B, K, D) P μ_k
        offset = -math.log(tasks.ways) - (means * directions).sum(dim=2) / 2  # (B, K) b_k
        gaussian = query @ directions.mT + offset[:, None, :]
        return torch.softmax(text_logits(tasks) + self.weight * gaussian, dim=2)


def text_logits(tasks: TaskBatch, scale: float = SCALE) -> Tensor:
    """Scaled cosines of the queries with the text prototypes, (B, Q, K), from rows of unit norm."""
    return scale * support_and_query(tasks)[1] @ text_of(tasks).mT


def text_of(tasks: TaskBatch) -> Tensor:
    """The text prototypes (B, K, D), which whoever runs the method has checked to be there."""
    assert tasks.text is not None
    return tasks.text
