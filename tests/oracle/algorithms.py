"""Algorithms 1 and 2 of the article, one task at a time, to be read beside it. `fsbench` gives the same, faster.

Choices: S_w is that of Eq. 6, so τ = T_vb / n̄ and σ = s_max √n̄ with n̄ images per base class; the assignments of the
support stay one-hot; on balanced tasks the mixing weights are uniform (`mixing`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from fsbench.methods.bavardage import Bavardage

Array = NDArray[Any]


def bavardage(
    x: Array, sphered: Array, labels: Array, given: Bavardage, normalised: Callable[[Array], Array] | None = None
) -> Array:
    """Algorithm 1: assignments (N, K) from CL2N features (N, D), support first, the same sphered, and labels (S,).

    `normalised` makes assignments of the logits of the queries, (Q, K); a softmax unless given.
    """
    normalised = normalised or softmax
    known = np.eye(labels.max() + 1, dtype=x.dtype)[labels]  # (S, K)
    o = soft_kmeans(x, known, given.t_km, given.km_steps, normalised)
    tau, d = float(given.tau), known.shape[1] - 1
    for _ in range(given.steps):
        u = plda(sphered, o, gamma=given.beta)
        count = o.sum(axis=0)  # N_k
        alpha = given.prior_alpha + count - (known.sum(axis=0) if given.variant == "released" else 0)  # Eq. 3
        beta = given.beta + count
        m = o.T @ u / beta[:, None]  # m_o = 0
        log_pi = digamma(alpha) - digamma(alpha.sum()) if given.mixing == "learned" else 0
        constant = 0.5 * d * np.log(tau) - 0.5 * d * np.log(2 * np.pi)  # Λ = τ I
        log_rho = log_pi + constant - 0.5 * (d / beta + tau * squared_distances(u, m))  # Eq. 5
        o = np.concatenate([known, normalised(log_rho[len(known) :])])
    return o


def soft_kmeans(
    x: Array, known: Array, t_km: float, steps: int, normalised: Callable[[Array], Array] | None = None
) -> Array:
    """EM(X, T_km) of Algorithm 1: assignments (N, K) from one-hot labels (S, K)."""
    centroids = known.T @ x[: len(known)] / known.sum(axis=0)[:, None]
    for _ in range(steps):
        o = np.concatenate([known, (normalised or softmax)(-t_km * squared_distances(x, centroids)[len(known) :])])
        centroids = o.T @ x / o.sum(axis=0)[:, None]
    return o


def sphere(x: Array, scatter: Array, sigma: float) -> Array:
    """Eq. 7: sphered samples X' (N, D). Eigenvectors are the columns of R, so T = S Rᵀ in place of S R."""
    values, vectors = np.linalg.eigh(scatter)
    return np.asarray(x @ vectors * np.minimum(np.maximum(values, 1e-300) ** -0.5, sigma))


def sphere_in_span(x: Array, inverse: Array, sigma: float) -> Array:
    """The released program's sphering: scalings are clamped inside the span of the task, from the inverse of S_w."""
    basis, lengths, _ = np.linalg.svd(x.T, full_matrices=False)
    basis = basis[:, lengths > 1e-5 * lengths[0]]
    return sphere(x @ basis, np.linalg.inv(basis.T @ inverse @ basis), sigma)


def plda(sphered: Array, o: Array, gamma: float) -> Array:
    """Algorithm 2 after its first line: samples U (N, K − 1) in the space of the centroids."""
    m = o.T @ sphered / (gamma + o.sum(axis=0))[:, None]  # Eq. 8
    root = m - m.mean(axis=0)  # Ψ = rootᵀ root (Eq. 9): its eigenvectors V are the right singular vectors of the root
    return np.asarray(sphered @ np.linalg.svd(root, full_matrices=False)[2][: len(m) - 1].T)  # Eq. 10


def squared_distances(x: Array, m: Array) -> Array:
    """‖x_n − m_k‖², (N, K)."""
    return np.asarray((x**2).sum(axis=1)[:, None] - 2 * x @ m.T + (m**2).sum(axis=1))


def softmax(logits: Array) -> Array:
    """Over the classes, (N, K)."""
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
