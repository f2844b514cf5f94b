"""Labels that spread over a graph of centroids and samples, and the gradient of where they arrive.

The n = K + N nodes are the centroids and then the samples. All matrices are (B, n, n):

    Δ             Euclidean distances, σ their standard deviation over the whole matrix
    A_ij          exp(−G_ij Δ_ij / σ) if j is among the nearest neighbours of sample i, else 0; G is learned
    S, W          S = (A + Aᵀ) / 2, W = E ∘ S; E is learned
    P             D^(−½) W D^(−½), with the row sums D of W
    F  (B, n, K)  (I − α P)⁻¹ Y, with Y one-hot on the centroids

Gradients are written by hand, `d_x` standing for ∂L/∂x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_FLOOR = 1e-12  # added to row sums
_TIE = 1e-5  # relative difference below which two neighbours are equally near


@dataclass(frozen=True)
class Spread:
    """What the labels reached, F (B, n, K), and what the gradient needs of the way there."""

    reached: Tensor
    scaled: Tensor  # Δ / σ
    deviation: Tensor  # (B, 1, 1) σ
    affinity: Tensor  # A
    symmetric: Tensor  # S
    weights: Tensor  # W
    root: Tensor  # (B, n, 1) D^(−½)
    factors: tuple[Tensor, Tensor]  # LU factors of I − α P, and their pivots


def exact_distances(left: Tensor, right: Tensor) -> Tensor:
    """Euclidean distances, (B, n, m), from differences: those of equal points are exactly 0."""
    return torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")


def centroid_distances(start: Tensor, shift: Tensor, rows: Tensor, squared: Tensor) -> Tensor:
    """Distances of the centroids from all nodes, (B, K, n).

    ‖μ + δ − x‖² = ‖μ − x‖² + 2 δ·(μ − x) + ‖δ‖² keeps its digits when a centroid is close to a sample, and in 1-shot
    tasks it starts on one.

    Args:
        start: Where the centroids started, μ (B, K, D).
        shift: How far they have moved, δ (B, K, D).
        rows: Samples x, (B, N, D).
        squared: ‖μ − x‖², (B, K, N).
    """
    centroids = start + shift
    among = centroids @ centroids.mT  # (B, K, K)
    norms = among.diagonal(dim1=1, dim2=2)  # (B, K)
    among = norms[:, :, None] + norms[:, None, :] - 2 * among
    along = (shift * (start + shift / 2)).sum(dim=2, keepdim=True)  # (B, K, 1) δ·μ + ½‖δ‖²
    to_rows = squared + 2 * (along - shift @ rows.mT)  # (B, K, N)
    return torch.cat([among, to_rows], dim=2).clamp_min_(0).sqrt_()


def set_centroid_distances(distances: Tensor, found: Tensor) -> None:
    """Write the distances of the centroids (B, K, n) into their rows and columns of Δ."""
    ways = found.shape[1]
    distances[:, :ways] = found
    distances[:, ways:, :ways] = found[:, :, ways:].mT


def excluded_edges(ways: int, distances: Tensor) -> Tensor:
    """−∞ where A is 0 from the start, in the rows of the centroids and on the diagonal; else 0. (n, n)."""
    edges = torch.zeros_like(distances[0])
    edges[:ways] = -torch.inf
    edges.fill_diagonal_(-torch.inf)
    return edges


def spread(
    distances: Tensor, gate: Tensor, emphasis: Tensor, excluded: Tensor, ways: int, neighbours: int, alpha: float
) -> Spread:
    """Let the labels of the centroids spread.

    Args:
        distances: Δ.
        gate: G.
        emphasis: E.
        excluded: (n, n), −∞ for pairs that are never neighbours.
        ways: K.
        neighbours: How many neighbours a sample has; equally near ones at the border are all taken.
        alpha: α, below 1: how much a node takes from its neighbours.
    """
    n = distances.shape[1]
    deviation = _deviation(distances)
    scaled = distances / deviation
    closeness = torch.addcmul(excluded, gate, scaled, value=-1)  # −G Δ / σ
    border = closeness.topk(min(neighbours, n - 1), dim=2, sorted=False).values.amin(dim=2, keepdim=True)  # (B, n, 1)
    # Departs from the released program: it keeps exactly k neighbours. In 1-shot tasks each centroid starts on its
    # support sample, and which of two equally near nodes is the k-th would be a matter of rounding.
    near = torch.ge(closeness, border - _TIE * border.abs(), out=torch.empty_like(closeness))  # 1 or 0
    affinity = closeness.exp_().mul_(near)
    symmetric = (affinity + affinity.mT).div_(2)
    weights = emphasis * symmetric
    root = weights.sum(dim=2, keepdim=True).add_(_FLOOR).rsqrt_()  # (B, n, 1)
    system = (weights * root).mul_(-alpha * root.mT)
    system.diagonal(dim1=1, dim2=2).add_(1)  # I − α P
    lu, pivots, _ = torch.linalg.lu_factor_ex(system)
    reached = torch.linalg.lu_solve(lu, pivots, _one_hot(ways, distances))
    return Spread(reached, scaled, deviation, affinity, symmetric, weights, root, (lu, pivots))


def gradients(
    found: Spread, d_reached: Tensor, distances: Tensor, gate: Tensor, emphasis: Tensor, ways: int, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    """∂L/∂Δ in the rows of the centroids, (B, K, n), counting Δ_kj and Δ_jk as one number; ∂L/∂G; ∂L/∂E.

    Args:
        found: The pass forward.
        d_reached: ∂L/∂F, (B, n, K).
        distances: Δ.
        gate: G.
        emphasis: E.
        ways: K.
        alpha: α.
    """
    root = found.root
    adjoint = torch.linalg.lu_solve(*found.factors, d_reached, adjoint=True)  # (I − α P)⁻ᵀ d_F
    d_weights = torch.bmm(adjoint * (alpha * root), (found.reached * root).mT)  # d_P ∘ D^(−½) D^(−½)
    through = d_weights * found.weights  # d_P ∘ P
    d_degree = through.sum(dim=2, keepdim=True).add_(through.sum(dim=1)[:, :, None]).mul_(root.square()).div_(-2)
    d_weights.add_(d_degree)  # (B, n, 1) along the rows
    d_emphasis = d_weights * found.symmetric
    d_symmetric = d_weights.mul_(emphasis)
    d_closeness = (d_symmetric + d_symmetric.mT).div_(2).mul_(found.affinity)
    d_gate = (d_closeness * found.scaled).neg_()
    # Δ enters through Δ / σ, and through σ. A has no entries in the rows of the centroids.
    n = distances.shape[1]
    from_deviation = (d_gate * gate).sum(dim=(1, 2), keepdim=True).mul_(2 / (n * n - 1))  # (B, 1, 1)
    to_centroids = -(d_closeness[:, :, :ways] * gate[:, :, :ways]).mT  # (B, K, n)
    centred = distances[:, :ways] - distances.mean(dim=(1, 2), keepdim=True)
    d_distances = (to_centroids - from_deviation * centred / found.deviation) / found.deviation
    return d_distances, d_gate, d_emphasis


def centroid_gradient(d_distances: Tensor, distances: Tensor, centroids: Tensor, rows: Tensor) -> Tensor:
    """∂L/∂μ (B, K, D) from ∂L/∂Δ and Δ in the rows of the centroids, (B, K, n) each.

    Σ_j d_Δ_kj (μ_k − x_j) / Δ_kj; a node at distance 0 does not pull.
    """
    ways = centroids.shape[1]
    pull = torch.where(distances > 0, d_distances / distances, 0.0)  # (B, K, n)
    towards = pull[:, :, :ways] @ centroids + pull[:, :, ways:] @ rows
    return pull.sum(dim=2, keepdim=True) * centroids - towards


def _deviation(distances: Tensor) -> Tensor:
    """Standard deviation over each matrix, with n² − 1 in the denominator, (B, 1, 1)."""
    count = distances.shape[1] ** 2
    total = distances.sum(dim=(1, 2), keepdim=True)
    squares = torch.linalg.vector_norm(distances, dim=(1, 2), keepdim=True).square_()
    variance: Tensor = (squares - total * (total / count)) / (count - 1)
    return variance.clamp_min_(_FLOOR).sqrt_()


def _one_hot(ways: int, distances: Tensor) -> Tensor:
    """Y: the centroids' own labels, (B, n, K)."""
    batch, n, _ = distances.shape
    return torch.eye(n, ways, dtype=distances.dtype, device=distances.device).expand(batch, -1, -1)
