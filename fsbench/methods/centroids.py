"""Prototypes and centroids of the classes of a task, from its features or from their inner products alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fsbench.tasks.batch import TaskBatch, gram


@dataclass(frozen=True)
class InnerProducts:
    """Products with samples X (B, N, D), as one matrix X Xᵀ or as two that are applied one after the other.

    Points given as weights over the samples, W (B, K, N), stand for the vectors W X.
    """

    first: Tensor  # (B, N, N) the Gram matrix, or (B, N, D) the features
    second: Tensor | None = None  # or (B, D, N) the features

    def __call__(self, weights: Tensor) -> Tensor:
        """The inner products of points W (B, K, N) with all samples, W X Xᵀ (B, K, N)."""
        points = weights @ self.first
        return points if self.second is None else points @ self.second

    def of(self, rows: slice, columns: slice) -> InnerProducts:
        """Products of points over some samples with others."""
        if self.second is None:
            return InnerProducts(self.first[:, rows, columns])
        return InnerProducts(self.first[:, rows], self.second[:, :, columns])


def inner_products(x: Tensor) -> InnerProducts:
    """Prepare products with X (B, N, D): through the Gram matrix while it is the smaller one, else the features."""
    _, N, D = x.shape
    return InnerProducts(gram(x)) if N <= D else InnerProducts(x, x.mT)


def products_of(tasks: TaskBatch, name: str = "") -> InnerProducts:
    """The same for the rows of tasks as they are, in the space of that name."""
    _, N, D = tasks.shape
    if N <= D:
        return InnerProducts(tasks.gram(name))
    x = tasks.space(name)
    return InnerProducts(x, x.mT)


class Clusters:
    """Centroids m_k = (Σ_support x_n + Σ_queries o_nk x_n) / w_k, known by inner products alone.

    The support, which comes first in the products, counts once and for its own class only, by its one-hot labels
    (B, K, S); what it contributes is computed once.
    """

    def __init__(self, products: InnerProducts, support: Tensor) -> None:
        known, asked = slice(None, support.shape[2]), slice(support.shape[2], None)
        self.products, self.support = products, support
        self.shots = support.sum(dim=2, keepdim=True)  # (B, K, 1)
        self._start = products.of(known, asked)(support)  # (B, K, Q) ⟨x_q, Σ_support x_n⟩
        among_support = products.of(known, known)(support)  # (B, K, S)
        self._squared_start = (among_support * support).sum(dim=2, keepdim=True)  # (B, K, 1)
        self._among_queries = products.of(asked, asked)

    def means(self) -> tuple[Tensor, Tensor]:
        """The same as `centroids`, of the means of the support."""
        return self._start / self.shots, self._squared_start / self.shots.square()

    def count(self, assigned: Tensor) -> Tensor:
        """N_k (B, K, 1), from the assignments of the queries (B, K, Q)."""
        return self.shots + assigned.sum(dim=2, keepdim=True)

    def centroids(self, assigned: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """⟨x_q, m_k⟩ (B, K, Q) and ‖m_k‖² (B, K, 1), for assignments o (B, K, Q) and weights w (B, K, 1)."""
        total = self._start + self._among_queries(assigned)  # ⟨x_q, w_k m_k⟩
        squared = self._squared_start + (assigned * (self._start + total)).sum(dim=2, keepdim=True)  # ‖w_k m_k‖²
        return total / weight, squared / weight.square()


def support_and_query(tasks: TaskBatch, name: str = "") -> tuple[Tensor, Tensor]:
    """The rows of the support (B, S, D) and of the queries (B, Q, D), in the space of that name."""
    rows = tasks.space(name)
    return rows[:, : tasks.support_size], rows[:, tasks.support_size :]


def class_means(tasks: TaskBatch, name: str = "") -> Tensor:
    """Means of the support samples of each class, (B, K, D), in the space of that name."""
    labels = tasks.one_hot()  # (B, K, S)
    return (labels @ support_and_query(tasks, name)[0]) / labels.sum(dim=2, keepdim=True)


def strangeness(tasks: TaskBatch) -> Tensor:
    """One minus the largest cosine of a query with the class means of the support, (B, Q), in the last space.

    Without support, with the text prototypes.
    Of the scores that were tried on val classes it ranks queries of unknown classes best. Centroids that queries take
    part in rank them hardly better than chance: unknown queries have drawn the centroids to themselves.
    """
    name = [*tasks.spaces][-1]
    points = class_means(tasks, name) if tasks.support_size or tasks.text is None else tasks.text
    directions, queries = (torch.nn.functional.normalize(x, dim=2) for x in (points, support_and_query(tasks, name)[1]))
    return 1 - (queries @ directions.mT).amax(dim=2)


def mean_weights(tasks: TaskBatch) -> Tensor:
    """The class means of the support as weights over all samples, (B, K, N)."""
    labels = tasks.one_hot()  # (B, K, S)
    queries = tasks.shape[1] - tasks.support_size
    return torch.nn.functional.pad(labels / labels.sum(dim=2, keepdim=True), (0, queries))


def squared_distances(points: Tensor, rows: Tensor) -> Tensor:
    """Squared Euclidean distances (B, K, N) between points (B, K, D) and rows (B, N, D)."""
    squared_points, squared_rows = (torch.linalg.vector_norm(x, dim=2).square() for x in (points, rows))
    lengths = squared_points[:, :, None] + squared_rows[:, None, :]  # (B, K, N)
    return torch.baddbmm(lengths, points, rows.mT, alpha=-2).clamp_min(0)
