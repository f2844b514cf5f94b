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
from fsbench.methods.centroids import Clusters, inner_products, support_and_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fsbench.features.scatter import BaseStatistics
    from fsbench.tasks.batch import TaskBatch

LAYERS = 10
_START = math.log1p(math.e)  # softplus(1): every coefficient before learning
_PROPORTION_OFFSET = 1e-6
ROUNDS, RATE = 100, 0.1  # of Adam, when coefficients are learned


@dataclass(frozen=True)
class UnemGaussian(Parameters):
    """Ten iterations of PADDLE's EM, whose coefficients are learned on val tasks. Transductive.

    `fsbench tune` learns them by gradient, and `--tune` uses them. Without tuning they have the start values of the
    released program, and the method is PADDLE's EM with these. Features are raw, so that `scale` belongs to a backbone.

    Attributes:
        scale: Multiplies the features.
        balance: Weight of log π_k; one number, or one per iteration with commas between them.
        temperature: Divides the logits; likewise.
    """

    scale: float = _START
    balance: float | str = _START
    temperature: float | str = 1 + _START

    info: ClassVar[MethodInfo] = MethodInfo(
        name="unem-gaussian",
        title="UNEM-Gaussian",
        reference='Zhou et al., "UNEM: UNrolled Generalized EM for Transductive Few-Shot Learning", CVPR 2025',
        transductive=True,
        prior="free",
    )

    def __post_init__(self) -> None:
        require_amount(scale=self.scale, **{f"temperature of iteration {n}": t for n, t in _layers(self.temperature)})
        require_weight(**{f"balance of iteration {n}": weight for n, weight in _layers(self.balance)})

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """Raw rows; the base classes are not needed."""
        return features

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Assignments of the queries after the last iteration, (B, Q, K)."""
        balance, temperature = ([value for _, value in _layers(given)] for given in (self.balance, self.temperature))
        return unrolled(clusters_of(tasks), self.scale, balance, temperature).softmax(dim=1).mT

    @classmethod
    def learn(cls, batches: Iterable[tuple[TaskBatch, Tensor]], progress: Callable[[int], None]) -> dict[str, Any]:
        """Coefficients with the least cross-entropy on tasks with known query labels (B, Q), by Adam.

        Kept positive by softplus, as in the released program; so is the number of rounds.
        """
        known = [(clusters_of(tasks), labels) for tasks, labels in batches]
        raw = torch.ones(1 + 2 * LAYERS, requires_grad=True)
        adam = torch.optim.Adam([raw], lr=RATE)
        for _ in range(ROUNDS):
            adam.zero_grad()
            for clusters, labels in known:
                scale, balance, temperature = _positive(raw)
                logits = unrolled(clusters, scale, balance, temperature)
                (functional.cross_entropy(logits, labels) / len(known)).backward()
            adam.step()
            progress(1)
        with torch.no_grad():
            learned, *lists = _positive(raw)
        weights, divisors = (",".join(f"{float(value):.5g}" for value in values) for values in lists)
        return {"scale": float(f"{float(learned):.5g}"), "balance": weights, "temperature": divisors}


def _positive(raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scale, weights and temperatures from the numbers that Adam moves."""
    scale, balance, temperature = functional.softplus(raw).split([1, LAYERS, LAYERS])
    return scale, balance, 1 + temperature


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
    assigned = clusters.unassigned()
    log_proportion = torch.zeros_like(assigned[:, :, :1])  # (B, K, 1)
    for weight, divisor in zip(balance, temperature, strict=True):
        similarity, squared = clusters.centroids(assigned, clusters.count(assigned))
        logits: Tensor = (scale * scale * (similarity - squared / 2) + weight * log_proportion) / divisor
        assigned = torch.softmax(logits, dim=1)
        log_proportion = (assigned.mean(dim=2, keepdim=True) + _PROPORTION_OFFSET).log()
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
