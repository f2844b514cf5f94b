"""TransCLIP and StatA: Gaussian classes, neighbours, and text as a prior."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from fsbench.features.preprocess import unit_norm
from fsbench.methods.base import Context, Count, Method, MethodInfo, NonNegative, Positive, Variants
from fsbench.methods.centroids import support_and_query
from fsbench.methods.neighbours import Graph, nearest
from fsbench.methods.zero_shot import text_logits, text_of
from fsbench.tasks.batch import TaskBatch

_TEMPERATURE = 50.0  # of the log-likelihood beside the text and the neighbours
_FIRST = 8  # most likely queries of a class, which the first mean is made of
_GAMMAS = (0.002, 0.01, 0.02, 0.2)


class TransCLIP(Method):
    """Soft assignments of the queries to Gaussian classes with one diagonal covariance, drawn to the text.

    z_i ∝ p_i^λ exp(ℓ_i / 50 + Σ_j (w_ij + w_ji) z_j / 6), with zero-shot probabilities p, log-likelihoods ℓ and
    cosines w of the three nearest queries; then means on the unit sphere and the covariance anew. Support images join
    these with weight γ, and the neighbours of the queries with their labels. Every class is assumed to be present.
    """

    variant: Literal["article", "released"] = "article"
    text_weight: NonNegative = 0.5  # λ
    gamma: Positive = 0.002  # weight of the support; `released` takes its own values in turn
    neighbours: Count = 3
    steps: Count = 10  # M steps
    inner_steps: Count = 5  # of the assignments, before every M step and at the end

    preprocessing = "L2N"
    info = MethodInfo(
        "transclip", "TransCLIP", 'Zanella et al., "Boosting Vision-Language Models with Transduction", NeurIPS 2024',
        url="https://arxiv.org/abs/2406.01837", order=350, text="needed", zero_shot=True,
        variants=Variants("variant", ("article", "released")),
        grid={"gamma": (0.0005, 0.001, 0.002, 0.004, 0.007, 0.01, 0.02, 0.04, 0.07, 0.1, 0.2, 0.5)},
    )  # fmt: skip

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """λ is 1 without support, and 0.5 with it."""
        return {"text_weight": 0.5 if context.shots else 1.0}

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Assignments of the queries after the last step, (B, Q, K)."""
        support, query = support_and_query(tasks)
        labels, prior = tasks.one_hot().mT, torch.log_softmax(text_logits(tasks), dim=2)  # (B, S, K), (B, Q, K) log p
        graph = Neighbours(tasks, self.neighbours, as_released=self.variant == "released")
        z = prior.exp()
        if tasks.support_size:
            mean = unit_norm(labels.mT @ support)
        else:
            first = z.topk(min(_FIRST, z.shape[1]), dim=1)
            mean = unit_norm(torch.zeros_like(z).scatter(1, first.indices, first.values).mT @ query)
        variance = torch.full_like(query[:, :1], 1 / query.shape[2])  # (B, 1, D) σ²
        # Departs from the article, in the variant `released`: the program keeps everything between its values of γ and
        # answers with the last one.
        released = self.variant == "released" and tasks.support_size
        for gamma in _GAMMAS if released else (self.gamma,):
            share = gamma * _TEMPERATURE if tasks.support_size else 0.0
            for step in range(self.steps + 1):
                scaled = mean / variance
                likelihood = query @ scaled.mT - (mean * scaled).sum(dim=2)[:, None] / 2  # (B, Q, K) ℓ
                z = settled(z, self.text_weight * prior + likelihood / _TEMPERATURE, graph, self.inner_steps)
                if step < self.steps:
                    mean, variance = self._gaussians(query, z, support, labels, share)
        return z

    @staticmethod
    def _gaussians(query: Tensor, z: Tensor, support: Tensor, labels: Tensor, share: float) -> tuple[Tensor, Tensor]:
        """The M step: means (B, K, D) on the unit sphere and the diagonal covariance (B, 1, D)."""
        weighed = z / z.shape[1], share / max(1, labels.shape[1]) * labels  # (B, Q, K), (B, S, K)
        sums = weighed[0].mT @ query + weighed[1].mT @ support  # (B, K, D)
        mean = unit_norm(sums)
        count = weighed[0].sum(dim=1) + weighed[1].sum(dim=1)  # (B, K)
        squares = query.square().mean(dim=1)
        if share:
            squares = squares + share * support.square().mean(dim=1)  # (B, D)
        spread = squares - 2 * (mean * sums).sum(dim=1) + (count[:, :, None] * mean.square()).sum(dim=1)
        return mean, (spread / (1 + share)).clamp_min(torch.finfo(mean.dtype).eps)[:, None]


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
            z = settled(z, prior + likelihood / _TEMPERATURE, graph, self.inner_steps)
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


class Neighbours:
    """Σ_j (w_ij + w_ji) z_j over queries j, plus Σ_j w_ji y_j over labelled images j, (B, Q, K).

    w_ij is the cosine where j is among the nearest other queries of i, else 0.
    """

    def __init__(self, tasks: TaskBatch, count: int, *, as_released: bool = False) -> None:
        support, query = support_and_query(tasks)
        self.among, self.as_released = Graph(*nearest(query, query, count, itself=True)), as_released
        self.labels = tasks.one_hot().mT  # (B, S, K)
        self.known: Graph | None = None
        if tasks.support_size:
            similarity, ends = nearest(support, query, count + as_released)
            # Departs from the article: the program drops the nearest query as if it were the image itself.
            self.known = Graph(similarity[:, :, as_released:], ends[:, :, as_released:])

    def __call__(self, z: Tensor) -> Tensor:
        """The sums for assignments z (B, Q, K)."""
        queries, known = z.shape[1], self.known
        if known is None:
            return self.among.to(z) + self.among.back(z, queries)
        if not self.as_released:
            return self.among.to(z) + self.among.back(z, queries) + known.back(self.labels, queries)
        # Departs from the article: the rows of the program's graph are support and queries, those of its assignments
        # queries and support.
        support = self.labels.shape[1]
        every = torch.cat([z, self.labels], dim=1)
        reached = torch.cat([known.to(z), self.among.to(z)], dim=1)[:, :queries]
        return reached + known.back(every[:, :support], queries) + self.among.back(every[:, support:], queries)


def settled(z: Tensor, logits: Tensor, neighbours: Neighbours, steps: int) -> Tensor:
    """Assignments (B, Q, K) after steps of z = softmax(logits + neighbours' z / 6)."""
    for _ in range(steps):
        z = torch.softmax(logits + neighbours(z) / 6, dim=2)
    return z
