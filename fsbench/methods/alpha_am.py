"""AM and α-AM: labels that spread over a learned graph of centroids and samples.

The n = K + N nodes are the centroids and then the samples. All matrices are (B, n, n):

    Δ             Euclidean distances, σ their standard deviation over the whole matrix
    A_ij          exp(−G_ij Δ_ij / σ) if j is among the nearest neighbours of sample i, else 0; G is learned
    W             E ∘ (A + Aᵀ); E is learned. Half of the sum, as printed, gives the same P
    P             D^(−½) W D^(−½), with the row sums D of W
    F  (B, n, K)  (I − α P)⁻¹ Y, with Y one-hot on the centroids
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fsbench.features.preprocess import centre_task
from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import Context, Count, Method, MethodInfo, NonNegative, Positive, prepared
from fsbench.methods.centroids import class_means
from fsbench.methods.heads import Adam, Objective, in_blocks
from fsbench.tasks.batch import TaskBatch

_FLOOR = 1e-12  # added to row sums
_TIE = 1e-5  # relative difference below which two neighbours are equally near
_MATRICES = 8  # (n, n) that a step works on at a time
_KEPT = 24  # (n, n) that a task takes, measured: what is learned, its averages, and what gradients need


class Graph:
    """Centroids that move among samples that do not, and how labels spread between them.

    Args:
        start: Where the centroids begin, μ (B, K, D).
        rows: The samples, (B, N, D).
        neighbours: How many neighbours a sample has; equally near ones at the border are all taken.
        alpha: α, below 1: how much a node takes from its neighbours.
    """

    def __init__(self, start: Tensor, rows: Tensor, neighbours: int, alpha: float) -> None:
        self.start, self.rows, self.alpha = start, rows, alpha
        self.squared, self.among = exact_distances(start, rows).square(), exact_distances(rows, rows)
        ways, self.nodes = start.shape[1], start.shape[1] + rows.shape[1]
        self.neighbours = min(neighbours, self.nodes - 1)
        # LAPACK's last digits depend on where a matrix lies in memory. With its size a multiple of 4, all matrices of a
        # batch are aligned alike, and the answers of a task do not depend on the others; added nodes stay alone. (At
        # orders above 4 they still do: torch's power function rounds the last elements of a tensor in its own way.)
        self.added = -self.nodes % 4
        self.identity = torch.eye(self.nodes + self.added, dtype=rows.dtype, device=rows.device)
        never = self.identity[: self.nodes, : self.nodes] > 0
        never[:ways] = True
        self.never = never  # (n, n) who is nobody's neighbour: a node itself, and what lies around a centroid

    def distances(self, shift: Tensor) -> Tensor:
        """Δ when the centroids have moved by δ, (B, K, D).

        ‖μ + δ − x‖² = ‖μ − x‖² + 2 δ·(μ − x) + ‖δ‖² keeps its digits when a centroid is close to a sample, and in
        1-shot tasks it starts on one.
        """
        centroids = self.start + shift
        products = centroids @ centroids.mT  # (B, K, K)
        norms = products.diagonal(dim1=1, dim2=2)  # (B, K)
        along = (shift * (self.start + shift / 2)).sum(dim=2, keepdim=True)  # (B, K, 1) δ·μ + ½‖δ‖²
        between = square_root(norms[:, :, None] + norms[:, None, :] - 2 * products)  # (B, K, K)
        to_rows = square_root(self.squared + 2 * (along - shift @ self.rows.mT))  # (B, K, N)
        return torch.cat([torch.cat([between, to_rows], dim=2), torch.cat([to_rows.mT, self.among], dim=2)], dim=1)

    def spread(self, shift: Tensor, gate: Tensor, emphasis: Tensor) -> Tensor:
        """What the labels of the centroids reach at the samples, Fᵀ (B, K, N), for δ, G and E."""
        distances, ways = self.distances(shift), shift.shape[1]
        remoteness = gate * distances
        with torch.no_grad():
            others = remoteness.masked_fill(self.never, torch.inf)
            border = others.topk(self.neighbours, dim=2, largest=False).values[:, :, -1:]  # (B, n, 1)
            # Departs from the released program: it keeps exactly k neighbours. In 1-shot tasks each centroid starts on
            # its support sample, and which of two equally near nodes is the k-th would be a matter of rounding.
            near = (others <= (1 + _TIE) * border) & ~self.never
        deviation = distances.std(dim=(1, 2), keepdim=True).clamp_min(_FLOOR**0.5)  # (B, 1, 1) σ
        affinity = (remoteness / -deviation).exp() * near
        weights = emphasis * (affinity + affinity.mT)
        root = (weights.sum(dim=2, keepdim=True) + 2 * _FLOOR).rsqrt()  # (B, n, 1)
        graph = functional.pad(weights * root * root.mT, (0, self.added, 0, self.added))  # P
        labels = self.identity[:, :ways].expand(len(graph), -1, -1)
        reached: Tensor = torch.linalg.solve_ex(self.identity - self.alpha * graph, labels)[0]
        return reached[:, ways : self.nodes].mT


def exact_distances(left: Tensor, right: Tensor) -> Tensor:
    """Euclidean distances, (B, n, m), from differences: those of equal points are exactly 0."""
    return torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")


def square_root(squared: Tensor) -> Tensor:
    """√x, and 0 without a slope where x is not positive: nodes that coincide do not pull at each other."""
    positive = squared > 0
    return torch.where(positive, squared.where(positive, 1.0).sqrt(), 0.0)


class AlphaAm(Method):
    """Label propagation from learned centroids over a learned graph, trained with the loss of α-TIM. Transductive.

    The labels of one centroid per class spread over a graph of nearest neighbours; Adam moves the centroids and two
    numbers per edge so that the support is fitted and the queries are decided. Tsallis' entropies let the proportions
    of the classes follow the data.

    Departs from the released program: 100 steps of rate 1e-3 instead of 1,000 of rate 1e-4, which go as far in a tenth
    of the time. The neighbours of most samples change in every step, so the path depends on rounding errors either
    way; accuracies agree (`docs/methods.md`).
    """

    chain: Literal["PLC", "L2N"] = "PLC"  # pre-processing
    propagation: Annotated[float, Field(gt=0, lt=1)] = 0.8  # α, how much a node takes from its neighbours
    neighbours: Count = 20  # k, neighbours per sample
    # of the entropies; at 1 they are Shannon's. This and the weights of the loss are those of `Objective`.
    order: Positive = 2.0
    cross_entropy: NonNegative = 1.0
    marginal: NonNegative = 1.0
    conditional: NonNegative = 1.0
    temperature: Positive = 15.0  # T, which multiplies what the labels reach
    rate: Positive = 1e-3
    steps: Count = 100  # passes forward; the answer is that of the last one

    info = MethodInfo(
        "alpha-am", "α-AM",
        'Lazarou et al., "Adaptive manifold for imbalanced transductive few-shot learning", WACV 2024',
        url="https://arxiv.org/abs/2304.14281", order=200, prior="free",
        prior_by={"order": {1.0: "uniform"}},
        # Small, as it is slow: the values of its released program.
        grid={"order": (1.0, 2.0, 5.0), "propagation": (0.8, 0.9), "neighbours": (10, 20)}, cost="slow", version=2,
    )  # fmt: skip

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """As in the released program.

        Departs from it for two to four shots: there it divides by zero; the values of one shot are taken.
        """
        many = context.shots >= 5
        return {"order": 5.0 if many else 2.0, "propagation": 0.9 if many else 0.8, "neighbours": 10 if many else 20}

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """L2N rows, or the row-level half of PLC; the rest of PLC needs whole tasks."""
        return prepared("L2N" if self.chain == "L2N" else "power", features, base, self.info.title)

    def memory_per_task(self, samples: int) -> int:
        """Bytes of the (n, n) matrices of a task."""
        return _KEPT * 4 * samples**2

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of T times what the labels of the centroids reach in the last pass, (B, Q, K)."""
        nodes = tasks.ways + tasks.rows.shape[1]
        with torch.inference_mode(False), torch.no_grad():
            return in_blocks(self._classify, tasks, _MATRICES * nodes**2)

    def _classify(self, tasks: TaskBatch) -> Tensor:
        # Copies: what was made in inference mode cannot take part in a gradient.
        rows = (tasks.rows if self.chain == "L2N" else centre_task(tasks.rows)).clone()  # (B, N, D)
        labels = tasks.one_hot().clone()  # (B, K, S)
        objective = Objective(self.cross_entropy, self.marginal, self.conditional, self.order)
        means = class_means(tasks.with_rows(rows))
        graph = Graph(means, rows, self.neighbours, self.propagation)
        gate = rows.new_ones(len(rows), graph.nodes, graph.nodes)
        learned = [one.requires_grad_() for one in (torch.zeros_like(means), gate, self.propagation * gate)]
        adams = [Adam(one, self.rate) for one in learned]
        for _ in range(self.steps - 1):
            with torch.enable_grad():
                logits = self.temperature * graph.spread(*learned)
            slope = objective.slope(logits.detach().softmax(dim=1), labels)  # (B, K, N)
            for adam, gradient in zip(adams, torch.autograd.grad(logits, learned, slope), strict=True):
                adam.step(gradient)
        logits = self.temperature * graph.spread(*learned)
        return torch.softmax(logits[:, :, tasks.support_size :], dim=1).mT


class Am(AlphaAm):
    """AM: α-AM with the loss of TIM, which draws the proportions of the classes towards uniform ones. Transductive."""

    order: Positive = 1.0
    marginal: NonNegative = 10.0

    info = MethodInfo(
        "am", "AM", 'Lazarou et al., "Adaptive manifold for imbalanced transductive few-shot learning", WACV 2024',
        url="https://arxiv.org/abs/2304.14281", order=190, prior="uniform",
        prior_by={"marginal": {0.0: "none"}},
        # Weaker assumptions of equal classes than in its program too: unbalanced tasks need them.
        grid={"marginal": (0.3, 1.0, 10.0), "propagation": (0.8, 0.9), "neighbours": (10, 20)}, cost="slow",
    )  # fmt: skip

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """As in the released program."""
        many = context.shots > 1
        return {"propagation": 0.9 if many else 0.8, "neighbours": 10 if many else 20}
