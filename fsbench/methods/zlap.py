"""ZLaP: label propagation from text prototypes."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fsbench.methods.base import Count, Method, MethodInfo, Positive
from fsbench.methods.centroids import support_and_query
from fsbench.methods.neighbours import Graph, nearest
from fsbench.methods.zero_shot import text_of
from fsbench.tasks.batch import TaskBatch


class ZLaP(Method):
    """Labels of text prototypes, propagated over a graph of texts and queries; the support is not looked at.

    A query has edges to its nearest queries, weighted by cosine, and to its nearest texts, weighted by a power of it.
    With W the symmetric sum of both directions and S = D^-½ W D^-½, Z = (I − αS)⁻¹ from the columns of the texts.
    """

    neighbours: Count = 5  # of either kind; of the queries it is one itself, and left out
    power: Positive = 5.0  # γ, of cosines with texts
    weight: Annotated[float, Field(gt=0, lt=1)] = 0.3  # α
    steps: Count = 20  # terms of the series Σ (αS)^n, which end below α^20

    preprocessing = "L2N"
    info = MethodInfo(
        "zlap", "ZLaP", 'Stojnić et al., "Label Propagation for Zero-shot Classification with Vision-Language Models", '
        'CVPR 2024', url="https://arxiv.org/abs/2404.04072", order=330, text="needed", zero_shot=True,
        grid={"neighbours": (5, 10, 15, 20), "power": (3.0, 5.0, 7.0), "weight": (0.1, 0.3, 0.5, 0.7)},
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """The shares of a query's row of Z, (B, Q, K)."""
        query, text = support_and_query(tasks)[1], text_of(tasks)
        K, nodes = tasks.ways, tasks.ways + query.shape[1]
        near_text, texts = nearest(query, text, self.neighbours)
        near_query, queries = nearest(query, query, self.neighbours - 1, itself=True)
        weights = torch.cat([near_text.clamp_min(0) ** self.power, near_query.clamp_min(0)], dim=2)
        graph = Graph(weights, torch.cat([texts, K + queries], dim=2))

        def both(z: Tensor) -> Tensor:
            """W z, texts first."""
            total = graph.back(z[:, K:], nodes)
            total[:, K:] += graph.to(z)
            return total

        degree = both(torch.ones_like(query[:, :1, :1]).repeat(1, nodes, 1))  # (B, nodes, 1)
        root = degree.clamp_min(torch.finfo(degree.dtype).tiny ** 0.5).rsqrt()
        start = torch.eye(nodes, K, dtype=query.dtype, device=query.device).expand(len(query), -1, -1)
        z = start
        for _ in range(self.steps):
            z = start + self.weight * root * both(root * z)
        shares: Tensor = z[:, K:] + torch.finfo(z.dtype).tiny ** 0.5  # without any edge, all classes are alike
        return shares / shares.sum(dim=2, keepdim=True)
