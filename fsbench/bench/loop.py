"""BAVARDAGE one task at a time, written plainly with NumPy's matrix products: what a careful user would write."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def softmax(logits: Floats) -> Floats:
    """Over the classes (N, K)."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Floats = shifted / shifted.sum(axis=1, keepdims=True)
    return shares


def squared_distances(x: Floats, centroids: Floats) -> Floats:
    """(N, K)."""
    distances: Floats = (x**2).sum(axis=1)[:, None] - 2 * x @ centroids.T + (centroids**2).sum(axis=1)[None]
    return distances


def bavardage(x: Floats, sphered: Floats, labels: Ints, ways: int, t_km: float, tau: float, variant: str) -> Floats:
    """Algorithm 1 for one task, from CL2N and sphered features; assignments of the queries (Q, K)."""
    support = len(labels)
    known = np.eye(ways, dtype=np.float32)[labels]
    centroids = known.T @ x[:support] / known.sum(axis=0)[:, None]
    for _ in range(5):
        o = softmax(-t_km * squared_distances(x, centroids))
        o[:support] = known
        centroids = o.T @ x / o.sum(axis=0)[:, None]
    for _ in range(5):
        count = o.sum(axis=0)
        beta = 10 + count
        m = o.T @ sphered / beta[:, None]
        u = sphered @ np.linalg.qr((m[1:] - m[0]).T)[0]
        alpha = 2 + count - (known.sum(axis=0) if variant == "released" else 0)
        log_pi = digamma(alpha) - digamma(alpha.sum())
        o = softmax(log_pi - 0.5 * ((ways - 1) / beta + tau * squared_distances(u, o.T @ u / beta[:, None])))
        o[:support] = known
    return o[support:]


def sphere_in_span(x: Floats, inverse: Floats, sigma: float) -> Floats:
    """The released program's sphering of one task: scalings clamped inside the span of its samples."""
    u = np.linalg.svd(x.T, full_matrices=False)[0]
    values, vectors = np.linalg.eigh(np.linalg.inv(u.T @ inverse @ u))
    sphered: Floats = x @ u @ vectors * np.minimum(values**-0.5, sigma)
    return sphered
