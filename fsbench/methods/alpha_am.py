"""AM and α-AM: labels that spread over a learned graph of centroids and samples.

The n = K + N nodes are the centroids and then the samples. All matrices are (B, n, n):

    Δ             Euclidean distances, σ their standard deviation over the whole matrix
    A_ij          exp(−G_ij Δ_ij / σ) if j is among the nearest neighbours of sample i, else 0; G is learned
    S, W          S = A + Aᵀ, W = E ∘ S; E is learned. Half of S, as printed, gives the same P
    P             D^(−½) W D^(−½), with the row sums D of W
    F  (B, n, K)  (I − α P)⁻¹ Y, with Y one-hot on the centroids

Gradients are derived by hand, `d_x` standing for ∂L/∂x. With a = (I − α Pᵀ)⁻¹ d_F, d_P = α a Fᵀ has rank K, and

    Σ_j d_P_ij P_ij = a_i·(F − Y)_i,    Σ_i d_P_ij P_ij = F_j·(a − d_F)_j,

so neither P nor d_P ∘ P is needed. Of the distances those among samples never change, nor do their sums in σ.
A step is 2.8 times as fast as by autograd (4 tasks of 80 samples, 20 steps, one core).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
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
_FAR = 1e6  # distance of nodes that are never neighbours
_MATRICES = 8  # (n, n) that a step works on at a time


@dataclass(frozen=True)
class Spread:
    """What the labels reached, F (B, n, K), and what the gradient needs of the way there."""

    reached: Tensor
    affinity: Tensor  # A
    symmetric: Tensor  # S
    root: Tensor  # (B, n, 1) D^(−½)
    factors: tuple[Tensor, Tensor]  # LU factors of I − α P, and their pivots


class Distances:
    """Δ / σ of centroids that move among samples that do not."""

    def __init__(self, start: Tensor, rows: Tensor) -> None:
        self.start, self.rows, self.shift = start, rows, torch.zeros_like(start)
        self._squared = exact_distances(start, rows).square()  # (B, K, N)
        ways = start.shape[1]
        among = exact_distances(rows, rows)  # (B, N, N)
        self.nodes = ways + rows.shape[1]
        self._total, self._squares = _sums(among)
        # (B, n, n) Δ, but for the rows of the centroids and the diagonal: those have no neighbours.
        self.neighbours = functional.pad(among, (ways, 0, ways, 0))
        self.neighbours[:, :ways] = _FAR
        self.neighbours.diagonal(dim1=1, dim2=2).fill_(_FAR)
        self.measure()

    def measure(self) -> None:
        """Distances from where the centroids are now."""
        ways = self.start.shape[1]
        self.near = centroid_distances(self.start, self.shift, self.rows, self._squared)  # (B, K, n)
        to_rows = self.near[:, :, ways:]
        self.neighbours[:, ways:, :ways] = to_rows.mT
        once, twice = _sums(self.near[:, :, :ways]), _sums(to_rows)
        total, squares = self._total + once[0] + 2 * twice[0], self._squares + once[1] + 2 * twice[1]
        count = self.nodes**2
        self.mean = total / count  # (B, 1, 1)
        self.deviation = ((squares - total * self.mean) / (count - 1)).clamp_min_(_FLOOR).sqrt_()  # (B, 1, 1) σ


def exact_distances(left: Tensor, right: Tensor) -> Tensor:
    """Euclidean distances, (B, n, m), from differences: those of equal points are exactly 0."""
    return torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")


def centroid_distances(start: Tensor, shift: Tensor, rows: Tensor, squared: Tensor) -> Tensor:
    """Distances of the centroids from all nodes, (B, K, n).

    ‖μ + δ − x‖² = ‖μ − x‖² + 2 δ·(μ − x) + ‖δ‖² keeps its digits when a centroid is close to a sample, and in 1-shot
    tasks it starts on one: μ (B, K, D). By now it has moved by δ (B, K, D); `squared` is ‖μ − x‖², (B, K, N).
    """
    centroids = start + shift
    among = centroids @ centroids.mT  # (B, K, K)
    norms = among.diagonal(dim1=1, dim2=2)  # (B, K)
    among = norms[:, :, None] + norms[:, None, :] - 2 * among
    along = (shift * (start + shift / 2)).sum(dim=2, keepdim=True)  # (B, K, 1) δ·μ + ½‖δ‖²
    to_rows = squared + 2 * (along - shift @ rows.mT)  # (B, K, N)
    return torch.cat([among, to_rows], dim=2).clamp_min_(0).sqrt_()


def _sums(x: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of the entries of each matrix and of their squares, (B, 1, 1)."""
    return x.sum(dim=(1, 2), keepdim=True), torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).square_()


def smallest(x: Tensor, k: int) -> Tensor:
    """The k-th smallest entry of every row, (B, n, 1), of (B, n, m); on the CPU NumPy finds it."""
    if x.device.type != "cpu" or type(x) is not Tensor or torch.compiler.is_compiling():
        return x.topk(k, dim=2, largest=False, sorted=False).values.amax(dim=2, keepdim=True)
    return torch.from_numpy(np.partition(x.numpy(), k - 1, axis=2)[:, :, k - 1 : k])


def spread(distances: Distances, gate: Tensor, emphasis: Tensor, neighbours: int, alpha: float) -> Spread:
    """Let the labels of the centroids spread.

    Args:
        distances: Δ and σ.
        gate: G.
        emphasis: E.
        neighbours: How many neighbours a sample has; equally near ones at the border are all taken.
        alpha: α, below 1: how much a node takes from its neighbours.
    """
    ways, n = distances.near.shape[1:]
    remoteness = gate * distances.neighbours  # G Δ
    border = smallest(remoteness, min(neighbours, n - 1))  # (B, n, 1)
    # Departs from the released program: it keeps exactly k neighbours. In 1-shot tasks each centroid starts on its
    # support sample, and which of two equally near nodes is the k-th would be a matter of rounding.
    near = torch.le(remoteness, (1 + _TIE) * border, out=torch.empty_like(remoteness))  # 1 or 0
    affinity = remoteness.div_(-distances.deviation).exp_().mul_(near)
    affinity[:, :ways] = 0
    symmetric = affinity + affinity.mT
    system = emphasis * symmetric  # W
    root = system.sum(dim=2, keepdim=True).add_(2 * _FLOOR).rsqrt_()  # (B, n, 1)
    system.mul_(root).mul_(-alpha * root.mT).diagonal(dim1=1, dim2=2).add_(1)  # I − α P
    lu, pivots, _ = torch.linalg.lu_factor_ex(system)
    reached = torch.linalg.lu_solve(lu, pivots, _labels(distances.near))
    return Spread(reached, affinity, symmetric, root, (lu, pivots))


def _labels(near: Tensor) -> Tensor:
    """Y, (B, n, K), of distances (B, K, n)."""
    batch, ways, n = near.shape
    return torch.eye(n, ways, dtype=near.dtype, device=near.device).expand(batch, -1, -1)


def gradients(
    forward: Spread, d_reached: Tensor, distances: Distances, gate: Tensor, emphasis: Tensor, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    """∂L/∂μ (B, K, D), ∂L/∂G and ∂L/∂E.

    `d_reached` is ∂L/∂F (B, n, K); the rest is what `spread` took and gave.
    """
    ways, n = distances.near.shape[1:]
    root, reached, deviation = forward.root, forward.reached, distances.deviation
    adjoint = torch.linalg.lu_solve(*forward.factors, d_reached, adjoint=True)  # (B, n, K) a
    through = (reached - _labels(distances.near)) * adjoint + (adjoint - d_reached) * reached
    d_degree = through.sum(dim=2, keepdim=True).mul_(root.square()).div_(-2)  # (B, n, 1), along the rows
    left = torch.cat([adjoint * (alpha * root), d_degree], dim=2)  # (B, n, K + 1)
    right = functional.pad(reached * root, (0, 1), value=1.0)
    d_weights = torch.bmm(left, right.mT)
    d_emphasis = d_weights * forward.symmetric
    d_weights.mul_(emphasis)
    d_closeness = (d_weights + d_weights.mT).mul_(forward.affinity)
    to_centroids = -(d_closeness[:, :, :ways] * gate[:, :, :ways]).mT  # (B, K, n)
    d_gate = d_closeness.mul_(distances.neighbours).div_(-deviation)
    # Δ enters through Δ / σ, and through σ. A has no entries in the rows of the centroids.
    from_deviation = torch.linalg.vecdot(d_gate.flatten(1), gate.flatten(1))[:, None, None].mul_(2 / (n * n - 1))
    d_distances = (to_centroids - from_deviation * (distances.near - distances.mean) / deviation) / deviation
    return centroid_gradient(d_distances, distances), d_gate, d_emphasis


def centroid_gradient(d_distances: Tensor, distances: Distances) -> Tensor:
    """∂L/∂μ (B, K, D) from ∂L/∂Δ in the rows of the centroids, (B, K, n), counting Δ_kj and Δ_jk as one number.

    Σ_j d_Δ_kj (μ_k − x_j) / Δ_kj; a node at distance 0 does not pull.
    """
    centroids = distances.start + distances.shift
    pull = torch.where(distances.near > 0, d_distances / distances.near, 0.0)  # (B, K, n)
    towards = pull @ torch.cat([centroids, distances.rows], dim=1)
    return pull.sum(dim=2, keepdim=True) * centroids - towards


@dataclass(frozen=True)
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
        url="https://arxiv.org/abs/2304.14281", order=200, transductive=True, prior="free",
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

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of T times what the labels of the centroids reach in the last pass, (B, Q, K)."""
        nodes = tasks.ways + tasks.rows.shape[1]
        return in_blocks(self._classify, tasks, _MATRICES * nodes**2)

    def _classify(self, tasks: TaskBatch) -> Tensor:
        rows = tasks.rows if self.chain == "L2N" else centre_task(tasks.rows)  # (B, N, D)
        labels, ways = tasks.one_hot(), tasks.ways  # (B, K, S)
        objective = Objective(self.cross_entropy, self.marginal, self.conditional, self.order)
        distances = Distances(class_means(tasks.with_rows(rows)), rows)
        gate = torch.ones_like(distances.neighbours)
        emphasis = torch.full_like(gate, self.propagation)
        optimisers = [Adam(parameter, self.rate) for parameter in (distances.shift, gate, emphasis)]
        for step in range(self.steps):
            forward = spread(distances, gate, emphasis, self.neighbours, self.propagation)
            p = torch.softmax(self.temperature * forward.reached[:, ways:], dim=2).mT  # (B, K, N)
            if step == self.steps - 1:
                break
            slope = objective.slope(p, labels).mT.mul(self.temperature)  # (B, N, K)
            d_reached = functional.pad(slope, (0, 0, ways, 0))  # (B, n, K): the loss does not see the centroids
            slopes = gradients(forward, d_reached, distances, gate, emphasis, self.propagation)
            for optimiser, gradient in zip(optimisers, slopes, strict=True):
                optimiser.step(gradient)
            distances.measure()
        return p[:, :, tasks.support_size :].mT


@dataclass(frozen=True)
class Am(AlphaAm):
    """AM: α-AM with the loss of TIM, which draws the proportions of the classes towards uniform ones. Transductive."""

    order: Positive = 1.0
    marginal: NonNegative = 10.0

    info = MethodInfo(
        "am", "AM", 'Lazarou et al., "Adaptive manifold for imbalanced transductive few-shot learning", WACV 2024',
        url="https://arxiv.org/abs/2304.14281", order=190, transductive=True, prior="uniform",
        prior_by={"marginal": {0.0: "none"}},
        # Weaker assumptions of equal classes than in its program too: unbalanced tasks need them.
        grid={"marginal": (0.3, 1.0, 10.0), "propagation": (0.8, 0.9), "neighbours": (10, 20)}, cost="slow",
    )  # fmt: skip

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """As in the released program."""
        many = context.shots > 1
        return {"propagation": 0.9 if many else 0.8, "neighbours": 10 if many else 20}
