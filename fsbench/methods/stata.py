"""StatA: TransCLIP with a covariance per class, anchored at the text."""

from __future__ import annotations

import torch
from torch import Tensor

from fsbench.features.preprocess import unit_norm
from fsbench.methods.base import Count, Method, MethodInfo, Positive
from fsbench.methods.centroids import support_and_query
from fsbench.methods.transclip import TEMPERATURE, Neighbours, settled
from fsbench.methods.zero_shot import text_logits, text_of
from fsbench.tasks.batch import TaskBatch


class StatA(Method):
    """Gaussian classes with diagonal covariances of their own; a class with few queries stays near its text.

    Mean and covariance of a class are those of its queries and those of the text, in shares β = n / (n + α) and 1 − β
    by its number n of queries, so that classes may be absent.
    Departs from the article, which has no support: labelled images count as queries with fixed assignments.
    """

    anchor: Positive = 1.0  # α
    neighbours: Count = 3
    steps: Count = 10  # M steps
    inner_steps: Count = 5  # of the assignments, before every M step and at the end

    preprocessing = "L2N"
    info = MethodInfo(
        "stata", "StatA", 'Zanella et al., "Realistic Test-Time Adaptation of Vision-Language Models", CVPR 2025',
        url="https://arxiv.org/abs/2501.03729", order=360, prior="free", text="needed", zero_shot=True,
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Assignments of the queries after the last step, (B, Q, K)."""
        text, labels = text_of(tasks), tasks.one_hot().mT  # (B, K, D), (B, S, K)
        prior, graph = torch.log_softmax(text_logits(tasks), dim=2), Neighbours(tasks, self.neighbours)
        rows, squares = tasks.rows, tasks.rows.square()
        z, mean = prior.exp(), text
        first = torch.cat([labels, z], dim=1)  # (B, N, K)
        # σ0², (B, 1, D). Departs from the program: over all queries, not the last 2,500 of them.
        around = (squares - 2 * rows * (first @ text) + first @ text.square()).mean(dim=1, keepdim=True)
        variance = around.expand_as(text)  # (B, K, D)
        query, query_squares = support_and_query(tasks)[1], squares[:, tasks.support_size :]
        for step in range(self.steps + 1):
            precision = variance.reciprocal()
            scaled = mean * precision
            constant = (mean * scaled + variance.log()).sum(dim=2)[:, None]  # (B, 1, K)
            likelihood = query @ scaled.mT - (query_squares @ precision.mT + constant) / 2
            z = settled(z, prior + likelihood / TEMPERATURE, graph, self.inner_steps)
            if step < self.steps:
                mean, variance = self._gaussians(rows, squares, torch.cat([labels, z], dim=1), text, around)
        return z

    def _gaussians(
        self, rows: Tensor, squares: Tensor, z: Tensor, text: Tensor, around: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The M step: means (B, K, D) on the unit sphere and diagonal covariances (B, K, D)."""
        winners = torch.zeros_like(z).scatter(2, z.argmax(dim=2, keepdim=True), 1.0)
        number = winners.sum(dim=1)[:, :, None]  # (B, K, 1) n_k
        share = number / (number + self.anchor)  # β_k
        total = z.sum(dim=1)[:, :, None].clamp_min(torch.finfo(z.dtype).tiny)
        centre = z.mT @ rows / total
        mean = unit_norm(share * unit_norm(centre) + (1 - share) * text)
        within = z.mT @ squares / total - 2 * mean * centre + mean.square()
        variance = share * within + (1 - share) * (around + (text - mean).square())
        return mean, variance.clamp_min(torch.finfo(z.dtype).eps)
