"""OTTER: optimal transport of queries to classes of known size."""

from __future__ import annotations

import torch
from torch import Tensor

from fsbench.methods.base import Count, Method, MethodInfo, Positive
from fsbench.methods.transport import equal_sizes
from fsbench.methods.zero_shot import text_logits
from fsbench.tasks.batch import TaskBatch


class Otter(Method):
    """Zero-shot classification with as many queries in every class, whatever the tasks are; ignores the support.

    The least Σ P_qk (1 − x_q·t_k) over plans P with classes of equal size.
    Departs from the program, which solves a linear programme and is given the true class sizes: P is the limit of
    entropic transport as the scale of the cosines grows, approached in `rounds` of doubled scale, and the sizes are
    equal.
    """

    scale: Positive = 100.0  # of cosines, in the first round
    rounds: Count = 8
    steps: Count = 8  # of Newton's method, in every round

    preprocessing = "L2N"
    info = MethodInfo(
        "otter", "OTTER", 'Shin et al., "OTTER: Effortless Label Distribution Adaptation of Zero-shot Models", '
        'NeurIPS 2024', url="https://arxiv.org/abs/2404.08461", order=340, prior="uniform", text="needed",
        zero_shot=True,
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """The plan of the last round, (B, Q, K)."""
        logits = text_logits(tasks, self.scale).mT  # (B, K, Q)
        potentials = torch.zeros_like(logits[:, :, :1])
        for _ in range(self.rounds):
            plan, potentials = equal_sizes(logits, potentials, self.steps)
            logits, potentials = 2 * logits, 2 * potentials
        return plan.mT
