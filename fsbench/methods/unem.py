"""UNEM-Gaussian: the EM of PADDLE with coefficients of its own in every iteration."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import torch
from pydantic import AfterValidator
from torch import Tensor
from torch.nn import functional

from fsbench.features.preprocess import extreme_scale
from fsbench.methods.base import Method, MethodInfo, Positive
from fsbench.methods.centroids import Clusters, inner_products, support_and_query
from fsbench.tasks.batch import TaskBatch

LAYERS = 10
ROUNDS, RATE = 300, 0.1  # of Adam; the released program ends after 100 rounds, where the loss still falls
_START = math.log1p(math.e)  # softplus(1), where the released program begins
_PROPORTION_OFFSET = 1e-6


def _per_iteration(value: float | str) -> list[float]:
    """The coefficient of every iteration, from one number or from ten with commas between them."""
    return [float(part) for part in value.split(",")] if isinstance(value, str) else [value] * LAYERS


def _checked(value: float | str, positive: bool) -> float | str:
    """One coefficient for all iterations, or one for each."""
    try:
        numbers = _per_iteration(value)
    except ValueError:
        numbers = []
    if len(numbers) != LAYERS or not all(0 <= number < math.inf for number in numbers) or (positive and 0 in numbers):
        size = "positive" if positive else "of at least 0"
        raise ValueError(f"a number, or {LAYERS} with commas between them, {size}")
    return value


class UnemGaussian(Method):
    """Ten iterations of PADDLE's EM, each with coefficients of its own. Transductive.

    `fsbench tune` learns them by gradient on val tasks, as in the article, and `--tune` uses them. Untuned they have
    the start values of the released program: PADDLE's EM with these. Features are raw, so that `scale` belongs to a
    backbone.
    """

    scale: Positive = _START  # multiplies the features
    # weight of log π_k; one number, or one per iteration with commas between them
    balance: Annotated[float | str, AfterValidator(partial(_checked, positive=False))] = _START
    # divides the logits; likewise
    temperature: Annotated[float | str, AfterValidator(partial(_checked, positive=True))] = 1 + _START

    info = MethodInfo(
        "unem-gaussian", "UNEM-Gaussian",
        'Zhou et al., "UNEM: UNrolled Generalized EM for Transductive Few-Shot Learning", CVPR 2025',
        url="https://arxiv.org/abs/2412.16739", order=180, prior="free",
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Assignments of the queries after the last iteration, (B, Q, K)."""
        return unrolled(clusters_of(tasks), **self._coefficients()).softmax(dim=1).mT

    def learn(self, labelled: Sequence[tuple[TaskBatch, Tensor]], free: Collection[str]) -> dict[str, float | str]:
        """The parameters with the least cross-entropy on tasks whose query labels (B, Q) are known.

        Adam moves those in `free`, from the start values of the released program.
        """
        prepared = [(clusters_of(tasks), labels) for tasks, labels in labelled]
        like = labelled[0][0].rows
        raw = {
            name: like.new_ones(1 if name == "scale" else LAYERS).requires_grad_()
            for name in self._coefficients()
            if name in free
        }
        adam = torch.optim.Adam(raw.values(), lr=RATE)
        for _ in range(ROUNDS):
            adam.zero_grad()
            for clusters, labels in prepared:
                logits = unrolled(clusters, **{**self._coefficients(), **positive(raw)})
                loss = functional.cross_entropy(logits, labels) / len(prepared)
                loss.backward()
            adam.step()
        learned = {name: [float(f"{value:.5g}") for value in one.tolist()] for name, one in positive(raw).items()}
        return {name: values[0] if name == "scale" else ",".join(map(str, values)) for name, values in learned.items()}

    def _coefficients(self) -> dict[str, Any]:
        """The parameters as `unrolled` takes them."""
        balance, temperature = _per_iteration(self.balance), _per_iteration(self.temperature)
        return {"scale": self.scale, "balance": balance, "temperature": temperature}


def positive(raw: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Coefficients from the numbers that Adam moves; temperatures are at least 1."""
    return {name: functional.softplus(values) + (name == "temperature") for name, values in raw.items()}


def clusters_of(tasks: TaskBatch) -> Clusters:
    """Centroids of tasks, moved so that the queries have mean 0: distances stay, and inner products keep digits.

    Tasks of an extreme scale are brought to a usual one, where squares neither overflow nor vanish.
    """
    rows = tasks.rows - support_and_query(tasks)[1].mean(dim=1, keepdim=True)
    return Clusters(inner_products(rows / extreme_scale(rows, (-2, -1))), tasks.one_hot())


def unrolled(
    clusters: Clusters, scale: float | Tensor, balance: Sequence[float] | Tensor, temperature: Sequence[float] | Tensor
) -> Tensor:
    """Logits (B, K, Q) of the last iteration: (−½ ‖s x_q − s w_k‖² + g_l log π_k) / T_l."""
    similarity, squared = clusters.means()
    log_proportion = torch.zeros_like(squared)  # (B, K, 1)
    for weight, divisor in zip(balance, temperature, strict=True):
        logits: Tensor = (scale * scale * (similarity - squared / 2) + weight * log_proportion) / divisor
        assigned = torch.softmax(logits, dim=1)
        log_proportion = (assigned.mean(dim=2, keepdim=True) + _PROPORTION_OFFSET).log()
        similarity, squared = clusters.centroids(assigned, clusters.count(assigned))
    return logits
