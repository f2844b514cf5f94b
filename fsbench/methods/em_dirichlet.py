"""EM-Dirichlet: a Dirichlet law per class over the zero-shot probabilities."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from fsbench.methods.base import Count, Method, MethodInfo, Positive, Variants
from fsbench.methods.zero_shot import text_of
from fsbench.tasks.batch import TaskBatch

_EPS = 1e-15
_CHECKED = 50  # steps between tests whether a task has settled
_TOLERANCE = 1e-11


class EMDirichlet(Method):
    """Mixture of Dirichlet laws over q = softmax(30 x·t), with a penalty on the number of classes present.

    Departs from the few-shot program, which is told the number of classes among the queries: `expected` is always the
    5 of the zero-shot program. Departs from the zero-shot program, which relabels clusters at the end.
    """

    variant: Literal["soft", "hard"] = "soft"  # `hard`: every E step ends with the most likely class
    scale: Positive = 30.0  # of cosines
    expected: Count = 5  # classes among the queries; the penalty weighs K / expected, rounded down
    steps: Count = 20  # of EM; `hard` takes at most 10
    # at most, of the parameters in every M step; the program's 1,000 cost ten times as much and move 1 % of the answers
    # of `soft`, none of `hard`
    inner_steps: Count = 100

    preprocessing = "L2N"
    info = MethodInfo(
        "em-dirichlet", "EM-Dirichlet", 'Martin et al., "Transductive Zero-Shot and Few-Shot CLIP", CVPR 2024',
        url="https://arxiv.org/abs/2405.18437", order=370, prior="free", text="needed", zero_shot=True,
        variants=Variants("variant", ("soft", "hard"), in_all=("hard",)), cost="slow",
        published={"EM-Dirichlet": {"variant": ("soft",)}, "Hard EM-Dirichlet": {"variant": ("hard",)}},
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Assignments of the queries after the last step, (B, Q, K)."""
        labels = tasks.one_hot()  # (B, K, S)
        logs = (torch.softmax(self.scale * tasks.rows @ text_of(tasks).mT, dim=2) + _EPS).log()  # (B, N, K)
        known, asked = logs[:, : tasks.support_size], logs[:, tasks.support_size :]
        known_sums, shots = labels @ known, labels.sum(dim=2)[:, :, None]  # (B, K, K), (B, K, 1)
        z, alpha = asked.exp(), torch.ones_like(known_sums)
        weight = max(1, tasks.ways // self.expected)
        for _ in range(min(10, self.steps) if self.variant == "hard" else self.steps):
            count = shots + z.sum(dim=1)[:, :, None]
            mean = (known_sums + z.mT @ asked) / count.clamp_min(_EPS)
            alpha = torch.where(count > _EPS, self._fitted(alpha, mean), alpha)
            size = (z.mean(dim=1) + _EPS).log() + 1  # (B, K)
            norm = torch.lgamma(alpha.sum(dim=2)) - torch.lgamma(alpha).sum(dim=2)
            z = torch.softmax(asked @ (alpha - 1).mT + (norm + weight * size)[:, None], dim=2)
            if self.variant == "hard":
                z = torch.zeros_like(z).scatter(2, z.argmax(dim=2, keepdim=True), 1.0)
        return z

    def _fitted(self, alpha: Tensor, mean: Tensor) -> Tensor:
        """Parameters (B, K, K) of laws with these means of logarithms, by majorisation-minimisation from `alpha`.

        Departs from the program: whether a task has settled does not depend on the others of its batch.
        """
        settled = torch.zeros_like(alpha[:, :1, :1], dtype=torch.bool)
        for step in range(1, self.inner_steps + 1):
            slope = torch.digamma(alpha + 1)
            curvature = (2 * (slope * alpha - torch.lgamma(alpha + 1)) / alpha.square()).abs()
            curvature = torch.where(alpha > 1e-11, curvature, math.pi**2 / 6)
            linear = slope - torch.digamma(alpha.sum(dim=2, keepdim=True)) - curvature * alpha - mean
            update = (torch.sqrt(linear.square() + 4 * curvature) - linear) / (2 * curvature)
            if step % _CHECKED == 0:
                moved = (update - alpha).square().sum(dim=(1, 2), keepdim=True)
                update = torch.where(settled, alpha, update)
                settled = settled | (moved < _TOLERANCE * update.square().sum(dim=(1, 2), keepdim=True))
            alpha = torch.where(settled, alpha, update)
        return alpha
