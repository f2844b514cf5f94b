"""Slow versions of the equations, one task at a time, in float64, written from the article."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def cl2n(x: NDArray[Any], mean: Floats) -> Floats:
    centred = x.astype(np.float64) - mean
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)


@dataclass
class Base:
    """Eq. 6 and the class-weighted matrix of the released program, by loops over classes and images."""

    mean: Floats
    scatter: Floats
    class_weighted: Floats
    per_class: float

    @classmethod
    def fit(cls, features: NDArray[Any], labels: NDArray[Any]) -> Base:
        mean = features.astype(np.float64).mean(axis=0)
        x = cl2n(features, mean)
        sums = []
        for c in np.unique(labels):
            rows = x[labels == c]
            centre = rows.mean(axis=0)
            total = np.zeros((x.shape[1], x.shape[1]))
            for row in rows:
                total += np.outer(row - centre, row - centre)
            sums.append(total)
        norms = [np.linalg.norm(total) for total in sums]
        weighted = np.mean([total / norm for total, norm in zip(sums, norms, strict=True)], axis=0) * np.mean(norms)
        return cls(mean, np.sum(sums, axis=0) / len(x), weighted, len(x) / len(sums))


def ncm(x: Floats, labels: Ints, ways: int) -> Floats:
    means = np.stack([x[: len(labels)][labels == k].mean(axis=0) for k in range(ways)])
    distance = ((x[len(labels) :, None] - means[None]) ** 2).sum(axis=2)
    return softmax(-distance)


def softmax(logits: Floats) -> Floats:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: Floats = shifted / shifted.sum(axis=1, keepdims=True)
    return result


def soft_kmeans(x: Floats, labels: Ints, ways: int, t_km: float, steps: int = 5) -> Floats:
    """Assignments (N, K) of support and queries."""
    support = len(labels)
    centroids = np.stack([x[:support][labels == k].mean(axis=0) for k in range(ways)])
    for _ in range(steps):
        o = softmax(-t_km * ((x[:, None] - centroids[None]) ** 2).sum(axis=2))
        o[:support] = np.eye(ways)[labels]
        centroids = np.stack([(o[:, k : k + 1] * x).sum(axis=0) / o[:, k].sum() for k in range(ways)])
    return o


def sphere_article(x: Floats, base: Base, s_max: float, scale: float) -> Floats:
    """Eq. 7, on S_w times `scale`."""
    values, vectors = np.linalg.eigh(base.scatter * scale)
    return x @ vectors * np.minimum(np.maximum(values, 1e-300) ** -0.5, s_max)


def sphere_released(x: Floats, base: Base, s_max: float, ridge: float = 1e-6) -> Floats:
    """Restrict the matrix to the span of the task's samples, then clamp the scalings there."""
    matrix = base.class_weighted + ridge * np.eye(x.shape[1])
    u, singular, _ = np.linalg.svd(x.T, full_matrices=False)
    u = u[:, singular > 1e-5 * singular[0]]
    restricted = np.linalg.inv(u.T @ np.linalg.inv(matrix) @ u)
    values, vectors = np.linalg.eigh((restricted + restricted.T) / 2)
    return x @ u @ vectors * np.minimum(values**-0.5, s_max)


def projection(sphered: Floats, o: Floats, beta: float, basis: str) -> Floats:
    """Eq. 8 to 10: samples in the K−1 dimensional space of the centroids, by QR of differences or eigenvectors of Ψ."""
    ways = o.shape[1]
    m = np.stack([(o[:, k : k + 1] * sphered).sum(axis=0) / (beta + o[:, k].sum()) for k in range(ways)])
    if basis == "qr":
        q = np.linalg.qr((m[1:] - m[0]).T)[0]
    else:
        centred = m - m.mean(axis=0)
        q = np.linalg.eigh(centred.T @ centred)[1][:, -(ways - 1) :]
    return sphered @ q


def bavardage(
    rows: NDArray[Any],
    labels: Ints,
    ways: int,
    base: Base,
    *,
    variant: str,
    t_km: float,
    t_vb: float,
    s_max: float,
    balanced: bool,
    prior_alpha: float = 2.0,
    beta: float = 10.0,
    steps: int = 5,
    basis: str = "qr",
    sphered: Floats | None = None,
) -> Floats:
    """Algorithm 1 in the article's units, with S_w as the average sum per class: (Q, K) probabilities."""
    x = cl2n(rows, base.mean)
    support = len(labels)
    if sphered is None and variant == "released":
        sphered = sphere_released(x, base, s_max)
    elif sphered is None:
        sphered = sphere_article(x, base, s_max, base.per_class)
    o = soft_kmeans(x, labels, ways, t_km)
    d = ways - 1
    for _ in range(steps):
        u = projection(sphered, o, beta, basis)
        count = o.sum(axis=0)
        alpha = prior_alpha + count - (np.bincount(labels, minlength=ways) if variant == "released" else 0)
        beta_k = beta + count
        m = (o.T @ u) / beta_k[:, None]
        log_pi = np.zeros(ways) if balanced else digamma(alpha) - digamma(alpha.sum())
        log_rho = np.empty_like(o)
        for n in range(len(x)):
            for k in range(ways):
                gap = u[n] - m[k]
                log_rho[n, k] = (
                    log_pi[k]
                    + 0.5 * d * np.log(t_vb)
                    - 0.5 * d * np.log(2 * np.pi)
                    - 0.5 * (d / beta_k[k] + t_vb * gap @ gap)
                )
        o = softmax(log_rho)
        o[:support] = np.eye(ways)[labels]
    return o[support:]
