"""PADDLE."""

from __future__ import annotations

import torch
from torch import Tensor

from fsbench.methods.base import Count, Method, MethodInfo, NonNegative
from fsbench.methods.centroids import inner_products, mean_weights, support_and_query
from fsbench.tasks.batch import TaskBatch

_PROPORTION_OFFSET = 1e-6
_FARTHEST = 1e9  # ranges of support coordinates, whose squares must not overflow


class Paddle(Method):
    """K-means with a penalty on the number of classes that are present.

    Features are scaled to the range that the task's queries have in each coordinate. Soft assignments of the queries,
    class proportions and prototypes are then updated in turns, those of the support staying fixed: with weight 1 this
    is EM for a mixture of Gaussians of unit covariance. Transductive; the proportions are estimated and may vanish. It
    was made for many classes of which few are present.
    """

    weight: NonNegative = 1.0  # λ/|Q|, weight of the penalty; the article's λ is the number of queries
    steps: Count = 100

    info = MethodInfo(
        "paddle", "PADDLE",
        'Martin et al., "Towards Practical Few-Shot Query Sets: Transductive Minimum Description Length '
        'Inference", NeurIPS 2022', url="https://arxiv.org/abs/2210.14545", order=170, prior="free",
        grid={"weight": (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)},
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Assignments of the queries after the last round, (B, Q, K)."""
        products = inner_products(scale_to_queries(tasks))
        support = tasks.one_hot()  # (B, K, S)
        centroids = mean_weights(tasks)  # (B, K, N) weights over the samples
        penalty = torch.zeros_like(centroids[:, :, :1])  # (B, K, 1) v
        for _ in range(self.steps):
            similarity = products(centroids)  # (B, K, N)
            squared = (similarity * centroids).sum(dim=2, keepdim=True)  # (B, K, 1)
            logits = similarity - squared / 2 + self.weight * penalty  # −d²/2, up to what all classes share
            assigned = torch.softmax(logits[:, :, support.shape[2] :], dim=1)  # (B, K, Q)
            penalty = (assigned.mean(dim=2, keepdim=True) + _PROPORTION_OFFSET).log()
            everything = torch.cat([support, assigned], dim=2)  # (B, K, N)
            centroids = everything / everything.sum(dim=2, keepdim=True)
        return assigned.mT


def scale_to_queries(tasks: TaskBatch) -> Tensor:
    """Rows (B, N, D), each coordinate divided by its range over the task's queries, if that is not 0.

    They are moved so that the queries have mean 0: no distance depends on it, and inner products keep their digits.
    """
    query = support_and_query(tasks)[1]
    extent = query.amax(dim=1, keepdim=True) - query.amin(dim=1, keepdim=True)  # (B, 1, D)
    scaled = (tasks.rows - query.mean(dim=1, keepdim=True)) / torch.where(extent > 0, extent, 1.0)
    return scaled.clamp_(-_FARTHEST, _FARTHEST)
