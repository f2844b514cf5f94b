"""Exact t-SNE for the few hundred samples of a task.

van der Maaten, Hinton: "Visualizing data using t-SNE", JMLR 2008. All pairs, the gradient without approximation. It
starts from the principal components, and so few samples can be left to L-BFGS: nothing is random, and no rate or
exaggeration needs choosing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import pdist, squareform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

PERPLEXITY = 30.0
_STEPS = 1000
_TINY = 1e-12


def tsne(x: Floats) -> Floats:
    """Place samples (N, D) in the plane, (N, 2), neighbours near each other."""
    target = joint_probabilities(x, perplexity_of(len(x)))

    def objective(flat: Floats) -> tuple[float, Floats]:
        value, slope = divergence(target, flat.reshape(-1, 2))
        return value, slope.ravel()

    start = _principal_components(x).ravel()
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    y: Floats = found.x.reshape(-1, 2)
    y -= y.mean(axis=0)
    return y


def perplexity_of(samples: int) -> float:
    """Effective number of neighbours: 30, or a third of the others if that is less."""
    return min(PERPLEXITY, (samples - 1) / 3)


def joint_probabilities(x: Floats, perplexity: float) -> Floats:
    """p_ij (N, N): Gaussian neighbourhoods, every one as wide as the perplexity asks, made symmetric."""
    distance = squareform(pdist(x, "sqeuclidean"))
    distance = distance / max(distance.mean(), _TINY)
    low, high = np.full((len(x), 1), -20.0), np.full((len(x), 1), 20.0)  # bounds of the log of the precision
    for _ in range(60):
        middle = (low + high) / 2
        conditional = _conditional(distance, np.exp(middle))
        entropy = -(conditional * np.log(np.maximum(conditional, _TINY))).sum(axis=1, keepdims=True)
        too_wide = entropy > np.log(perplexity)
        low, high = np.where(too_wide, middle, low), np.where(too_wide, high, middle)
    return (conditional + conditional.T) / (2 * len(x))


def divergence(target: Floats, y: Floats) -> tuple[float, Floats]:
    """KL(p ‖ q) at positions y, and its slope (N, 2)."""
    gaps = y[:, None] - y[None]  # (N, N, 2)
    closeness = 1 / (1 + (gaps**2).sum(axis=2))  # Student's kernel
    np.fill_diagonal(closeness, 0.0)
    q = closeness / closeness.sum()
    value = (target * np.log(np.maximum(target, _TINY) / np.maximum(q, _TINY))).sum()
    slope: Floats = 4 * (((target - q) * closeness)[:, :, None] * gaps).sum(axis=1)
    return float(value), slope


def _conditional(distance: Floats, precision: Floats) -> Floats:
    """p_j|i: for every sample i (a row) a law over the others."""
    logits = -precision * distance
    np.fill_diagonal(logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    law: Floats = weights / weights.sum(axis=1, keepdims=True)
    return law


def _principal_components(x: Floats) -> Floats:
    """The first two, the first with unit spread, their signs fixed: those of a singular value decomposition are not."""
    x = np.pad(x, ((0, 0), (0, max(0, 2 - x.shape[1]))))
    u, s, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    y = u[:, :2] * np.sign(u[np.abs(u).argmax(axis=0), np.arange(u.shape[1])])[:2] * s[:2]
    start: Floats = y / max(y[:, 0].std(), _TINY)
    return start
