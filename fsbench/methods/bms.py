"""PEME-BMS."""

from __future__ import annotations

import torch
from torch import Tensor

from fsbench.features.preprocess import centre_task
from fsbench.methods.base import Count, Method, MethodInfo, Positive
from fsbench.methods.centroids import inner_products, mean_weights
from fsbench.tasks.batch import TaskBatch


class Bms(Method):
    """Transport of the queries to classes that have a least size, found along the way.

    Features get a power transform and are centred with the mean of the task, in which a single query hardly counts.
    Queries are assigned by their cosine similarity with the centroids, classes below a least size are raised to it, and
    centroids become weighted means; the least size is that of the smallest cluster before. Transductive; classes need
    not be equally frequent.

    This follows the authors' released program with its standard options: centroids are means, with no logistic
    regression on top of them. The least size counts the support but is asked of the queries alone, so that with
    several shots it rises from step to step and draws classes towards equal sizes.
    """

    scale: Positive = 8.5  # factor of the cosine similarity in the softmax
    steps: Count = 20  # updates of assignments and centroids
    passes: Count = 50  # rounds of raising the small classes in each step

    preprocessing = "power"
    info = MethodInfo(
        "bms", "PEME-BMS",
        'Hu et al., "Squeezing Backbone Feature Distributions to the Max for Efficient Few-Shot Learning", '
        "Algorithms 2022", url="https://doi.org/10.3390/a15050147", order=110, prior="free",
        grid={"scale": (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.5, 10.0, 12.0, 14.0, 17.0, 24.0)}, published={"PEME-BMS": {}},
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Assignments of the queries in the last step, (B, Q, K)."""
        products = inner_products(centre_task(tasks.rows))
        support = tasks.one_hot()  # (B, K, S)
        centroids = mean_weights(tasks)  # (B, K, N) weights over the samples
        # Departs from the released program, where all classes have equally many shots: the fewest count.
        least = support.sum(dim=2, keepdim=True).amin(dim=1, keepdim=True)  # (B, 1, 1)
        rounding = torch.finfo(centroids.dtype).eps  # a centroid this short is 0
        for _ in range(self.steps):
            similarity = products(centroids)  # (B, K, N)
            length = (similarity * centroids).sum(dim=2, keepdim=True).clamp_min(rounding).sqrt()  # (B, K, 1)
            scores = torch.softmax(self.scale * similarity / length, dim=1)[:, :, support.shape[2] :]  # (B, K, Q)
            assigned = torch.cat([support, self._raise_small(scores, least)], dim=2)  # (B, K, N)
            least = smallest_cluster(assigned)
            centroids = assigned / assigned.sum(dim=2, keepdim=True)
        # Departs from the released program, which only asks for the largest share: shares add up to 1.
        query = assigned[:, :, support.shape[2] :]
        return (query / query.sum(dim=1, keepdim=True)).mT

    def _raise_small(self, plan: Tensor, least: Tensor) -> Tensor:
        """Raise every class whose shares (B, K, Q) add up to less than the least size (B, 1, 1).

        All that changes are factors of the classes and of the queries, so that a pass is two products with the plan.
        A power of two keeps the factors finite where queries are too few to raise all classes.
        """
        raised = torch.ones_like(plan[:, :, :1])  # (B, K, 1)
        for _ in range(self.passes):
            raised = raised * torch.exp2(-raised.amax(dim=1, keepdim=True).log2().floor())
            whole = raised.mT @ plan  # (B, 1, Q) sum of the shares of a query
            size = (raised * (plan @ whole.reciprocal().mT)).clamp_min(1e-20)  # (B, K, 1)
            raised = raised * (least / size).clamp_min(1)
        return plan * raised / whole


def smallest_cluster(assigned: Tensor) -> Tensor:
    """Number of samples, support included, in the class that fewest belong to: (B, 1, 1), of shares (B, K, N)."""
    members = assigned == assigned.amax(dim=1, keepdim=True)  # (B, K, N)
    return members.sum(dim=2, keepdim=True).amin(dim=1, keepdim=True).to(assigned.dtype)
