"""Prototypes of the classes of a task, and distances from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from fsbench.tasks.batch import TaskBatch


def support_and_query(tasks: TaskBatch) -> tuple[Tensor, Tensor]:
    """The rows of the support (B, S, D) and of the queries (B, Q, D)."""
    return tasks.rows[:, : tasks.support_size], tasks.rows[:, tasks.support_size :]


def class_means(tasks: TaskBatch) -> Tensor:
    """Means of the support samples of each class, (B, K, D)."""
    labels = tasks.one_hot()  # (B, K, S)
    return (labels @ support_and_query(tasks)[0]) / labels.sum(dim=2, keepdim=True)


def mean_weights(tasks: TaskBatch) -> Tensor:
    """The class means of the support as weights over all samples, (B, K, N)."""
    labels = tasks.one_hot()  # (B, K, S)
    queries = tasks.rows.shape[1] - tasks.support_size
    return torch.nn.functional.pad(labels / labels.sum(dim=2, keepdim=True), (0, queries))


def squared_distances(points: Tensor, rows: Tensor) -> Tensor:
    """Squared Euclidean distances (B, K, N) between points (B, K, D) and rows (B, N, D)."""
    squared_points, squared_rows = (torch.linalg.vector_norm(x, dim=2).square() for x in (points, rows))
    lengths = squared_points[:, :, None] + squared_rows[:, None, :]  # (B, K, N)
    return torch.baddbmm(lengths, points, rows.mT, alpha=-2).clamp_min(0)
