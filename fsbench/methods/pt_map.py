"""PT-MAP."""

from __future__ import annotations

import torch
from torch import Tensor

from fsbench.features.preprocess import centre_parts
from fsbench.methods.base import Count, Method, MethodInfo, Positive, Share
from fsbench.methods.centroids import InnerProducts, inner_products, mean_weights
from fsbench.methods.transport import EqualSizes
from fsbench.tasks.batch import TaskBatch

# Newton steps from the potentials of the epoch before. With λ = 10, 4 come within 1e-8 of the limit, in probabilities.
STEPS = 5


class PtMap(Method):
    """Optimal transport of the queries to the classes, and centroids that follow it.

    Features are made Gaussian-like by a power transform (the chain PT). Then, in turns, queries are assigned to the
    centroids by entropic transport with classes of equal size, and centroids move part of the way to the means of what
    was assigned to them. Transductive; it assumes that all classes are equally frequent among the queries, also where
    they are not. Queries are centred with their own mean, so that of a single query nothing is left: its answer is the
    same whatever it shows.
    """

    scale: Positive = 10.0  # λ; the transport starts from exp(−λ d²)
    rate: Share = 0.2  # a, the part of the way that centroids go in an epoch
    epochs: Count = 20  # updates of the centroids

    preprocessing = "power"
    info = MethodInfo(
        "pt-map", "PT-MAP",
        'Hu et al., "Leveraging the Feature Distribution in Transfer-based Few-Shot Learning", ICANN 2021',
        url="https://arxiv.org/abs/2006.03806", order=100, prior="uniform",
        grid={"scale": (2.5, 5.0, 7.0, 10.0, 15.0, 20.0, 40.0), "rate": (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6)},
        published={"PT-MAP": {}},
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Transport plan of the queries for the last centroids, (B, Q, K)."""
        # Departs from the released program: no QR reduction first, which would only turn the task.
        products = inner_products(centre_parts(tasks.rows, tasks.support_size))
        support = tasks.one_hot()  # (B, K, S)
        centroids = mean_weights(tasks)  # (B, K, N) weights over the samples
        # Departs from the released program: it stops Sinkhorn's iteration when no sum of a query's shares changes by
        # more than 1e-6, or after 1000 rounds. Here its limit is approached more directly.
        assign = EqualSizes(STEPS)
        plan = assign(self._logits(products, centroids, tasks.support_size))  # (B, K, Q)
        for _ in range(self.epochs):
            assigned = torch.cat([support, plan], dim=2)  # (B, K, N)
            estimate = assigned / assigned.sum(dim=2, keepdim=True)
            centroids = centroids + self.rate * (estimate - centroids)
            plan = assign(self._logits(products, centroids, tasks.support_size))
        return plan.mT

    def _logits(self, products: InnerProducts, centroids: Tensor, support: int) -> Tensor:
        """−λ d² of the queries, (B, K, Q), without ‖x_n‖² and ‖μ_k‖².

        The plan does not depend on what a sample or a class adds to the logits.
        """
        return 2 * self.scale * products(centroids)[:, :, support:]
