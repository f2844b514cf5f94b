"""UNEM-Gaussian: the EM of PADDLE with coefficients of its own in every iteration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fsbench.errors import FsbenchError
from fsbench.features.preprocess import extreme_scale
from fsbench.methods.base import MethodInfo, Parameters, require_amount, require_weight
from fsbench.methods.catalog import INFOS
from fsbench.methods.centroids import Clusters, inner_products, support_and_query

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fsbench.features.scatter import BaseStatistics
    from fsbench.tasks.batch import TaskBatch

LAYERS = 10
ROUNDS, RATE = 300, 0.1  # of Adam; the released program ends after 100 rounds, where the loss still falls
_START = math.log1p(math.e)  # softplus(1), where the released program begins
_PROPORTION_OFFSET = 1e-6


@dataclass(frozen=True)
class UnemGaussian(Parameters):
    """Ten iterations of PADDLE's EM, each with coefficients of its own. Transductive.

    `fsbench tune` learns them by gradient on val tasks, as in the article, and `--tune` uses them. Untuned they have
    the start values of the released program: PADDLE's EM with these. Features are raw, so that `scale` belongs to a
    backbone.

    Attributes:
        scale: Multiplies the features.
        balance: Weight of log π_k; one number, or one per iteration with commas between them.
        temperature: Divides the logits; likewise.
    """

    scale: float = _START
    balance: float | str = _START
    temperature: float | str = 1 + _START

    info: ClassVar[MethodInfo] = INFOS["unem-gaussian"]

    def __post_init__(self) -> None:
        require_amount(scale=self.scale, **{f"temperature of iteration {n}": t for n, t in _layers(self.temperature)})
        require_weight(**{f"balance of iteration {n}": weight for n, weight in _layers(self.balance)})

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """Raw rows; the base classes are not needed."""
        return features

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Assignments of the queries after the last iteration, (B, Q, K)."""
        return unrolled(clusters_of(tasks), **self._coefficients()).softmax(dim=1).mT

    def learn(self, known: Sequence[tuple[TaskBatch, Tensor]], free: Collection[str]) -> dict[str, float | str]:
        """The parameters with the least cross-entropy on tasks whose query labels (B, Q) are known.

        Adam moves those in `free`, from the start values of the released program.
        """
        prepared = [(clusters_of(tasks), labels) for tasks, labels in known]
        like = known[0][0].rows
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
        found = {name: [float(f"{value:.5g}") for value in values.tolist()] for name, values in positive(raw).items()}
        return {name: values[0] if name == "scale" else ",".join(map(str, values)) for name, values in found.items()}

    def _coefficients(self) -> dict[str, Any]:
        """The parameters as `unrolled` takes them."""
        lists = {"balance": self.balance, "temperature": self.temperature}
        return {"scale": self.scale, **{name: [value for _, value in _layers(given)] for name, given in lists.items()}}


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
    clusters: Clusters,
    scale: float | Tensor,
    balance: Sequence[float] | Tensor,
    temperature: Sequence[float] | Tensor,
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


def _layers(value: float | str) -> list[tuple[int, float]]:
    """The number of each iteration, counted from 1, with its coefficient."""
    try:
        numbers = [float(part) for part in value.split(",")] if isinstance(value, str) else [float(value)] * LAYERS
    except ValueError:
        numbers = []
    if len(numbers) != LAYERS:
        raise FsbenchError(f"Expected a number, or {LAYERS} with commas between them, got {value!r}.")
    return list(enumerate(numbers, start=1))
