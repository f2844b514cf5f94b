"""Baseline and Baseline++: a linear head, fitted to the support."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from fsbench.features.preprocess import extreme_scale
from fsbench.methods.base import Count, Method, MethodInfo, Positive
from fsbench.methods.centroids import class_means, squared_distances
from fsbench.methods.heads import TINY, descend, probabilities, support_slope
from fsbench.tasks.batch import TaskBatch


class Baseline(Method):
    """A head fitted to the support by cross-entropy, on features as they are. Inductive.

    As in Veilleux et al., "Realistic Evaluation of Transductive Few-Shot Learning", NeurIPS 2021, that is with logits
    −T/2 d², started from the class means. On raw features the softmax is so sharp that with one shot the head hardly
    leaves the means. The proportions of the classes among the queries play no role. Features are moved so that the
    class means of the support are around 0, which changes no distance and keeps their digits.
    """

    temperature: Positive = 15.0
    rate: Positive = 1e-3
    steps: Count = 100

    info = MethodInfo(
        "baseline", "Baseline", 'Chen et al., "A Closer Look at Few-shot Classification", ICLR 2019',
        url="https://arxiv.org/abs/1904.04232", order=30, transductive=False, prior="none",
        grid={"temperature": (0.1, 0.5, 1.5, 5.0, 15.0, 30.0, 60.0), "rate": (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1)},
        version=2,  # 1: features were not centred
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of the logits under the fitted head, (B, Q, K)."""
        moved, _ = around_support(tasks)
        return probabilities(moved.rows[:, tasks.support_size :], self._fit(moved), self.temperature).mT

    def _fit(self, tasks: TaskBatch) -> Tensor:
        """Weights (B, K, D) after the last step on the mean of −log p_y over the support."""
        rows, slope = tasks.rows[:, : tasks.support_size], partial(support_slope, labels=tasks.one_hot())
        start = class_means(tasks)
        return descend(rows, start, slope, temperature=self.temperature, rate=self.rate, steps=self.steps)


class BaselinePlusPlus(Baseline):
    """The head of Baseline, read by cosines: the softmax of T times those between queries and weights. Inductive.

    Departs from Chen et al.: the head is fitted with the logits −T/2 d² of Baseline, not with cosines. The tables
    of Veilleux et al. were made this way. Cosines are those of the features as they are: unlike Baseline, they depend
    on an offset that all features share.
    """

    info = MethodInfo(
        "baseline++", "Baseline++", 'Chen et al., "A Closer Look at Few-shot Classification", ICLR 2019',
        url="https://arxiv.org/abs/1904.04232", order=40, transductive=False, prior="none",
        grid={"temperature": (0.1, 0.5, 1.5, 5.0, 15.0, 30.0, 60.0), "rate": (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1)},
        version=2,  # 1: features were not centred
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of T times the cosines, (B, Q, K)."""
        moved, origin = around_support(tasks)
        query, weights = (directions(x, origin) for x in (moved.rows[:, tasks.support_size :], self._fit(moved)))
        return torch.softmax(-self.temperature / 2 * squared_distances(weights, query), dim=1).mT  # cos = 1 − d²/2


def around_support(tasks: TaskBatch) -> tuple[TaskBatch, Tensor]:
    """Tasks minus the mean of their class means, and that mean (B, 1, D); extreme ones are scaled like the support."""
    origin = class_means(tasks).mean(dim=1, keepdim=True)
    moved = tasks.rows - origin
    scale = extreme_scale(moved[:, : tasks.support_size], (-2, -1))
    return tasks.with_rows(moved / scale), origin / scale


def directions(moved: Tensor, origin: Tensor) -> Tensor:
    """Unit vectors of x = `moved` + `origin`, minus that of the origin c: (B, N, D) each, and (B, 1, D).

    x/‖x‖ − c/‖c‖ = (moved − c/‖c‖ (‖x‖ − ‖c‖)) / ‖x‖ keeps its digits where all x are far away in one direction.
    """
    length = torch.linalg.vector_norm(origin, dim=2, keepdim=True)
    whole = torch.linalg.vector_norm(moved + origin, dim=2, keepdim=True).clamp_min(TINY)
    longer = (moved * (moved + 2 * origin)).sum(dim=2, keepdim=True) / (whole + length)  # ‖x‖ − ‖c‖
    unit: Tensor = (moved - origin / length.clamp_min(TINY) * longer) / whole
    return unit
