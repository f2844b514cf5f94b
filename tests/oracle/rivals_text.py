"""Slow versions of the methods with text, one task at a time, in float64, from their definitions.

Rows are raw features with the support first, `text` (K, D) is of any length; the result is (Q, K).
"""

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import digamma, gammaln

from tests.oracle.algorithms import softmax
from tests.oracle.reference import Floats, Ints
from tests.oracle.rivals_centroids import class_means, unit


def parts(rows: Any, labels: Ints, text: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Unit support and queries, unit text, one-hot labels."""
    x, t = unit(rows.astype(np.float64)), unit(text.astype(np.float64))
    return x[: len(labels)], x[len(labels) :], t, np.eye(len(t))[labels]


def zero_shot(rows: Any, labels: Ints, ways: int, text: Floats) -> Floats:
    _, q, t, _ = parts(rows, labels, text)
    return softmax(100 * q @ t.T)


def tip_adapter(rows: Any, labels: Ints, ways: int, text: Floats, weight: float, sharpness: float) -> Floats:
    s, q, t, known = parts(rows, labels, text)
    logits = 100 * q @ t.T
    for i, x in enumerate(q):
        for j, key in enumerate(s):
            logits[i] += weight * np.exp(-sharpness * (1 - x @ key)) * known[j]
    return softmax(logits)


def gda(rows: Any, labels: Ints, ways: int, text: Floats, weight: float) -> Floats:
    s, q, t, _ = parts(rows, labels, text)
    means = class_means(s, labels, ways)
    centred = s - means[labels]
    covariance = np.cov(centred, rowvar=False)
    n, width = s.shape
    precision = width * np.linalg.pinv((n - 1) * covariance + np.trace(covariance) * np.eye(width), hermitian=True)
    if np.abs(centred).max() < 1e-12:
        precision = np.zeros((width, width))
    bias = np.array([-np.log(ways) - m @ precision @ m / 2 for m in means])
    return softmax(100 * q @ t.T + weight * (q @ precision @ means.T + bias))


def neighbours(q: Floats, points: Floats, count: int, itself: bool) -> Floats:
    """Cosines with the nearest points, 0 elsewhere, (N, M)."""
    cosines = q @ points.T
    graph = np.zeros_like(cosines)
    for i, row in enumerate(cosines):
        order = [j for j in np.argsort(-row, kind="stable") if not (itself and j == i)]
        graph[i, order[:count]] = row[order[:count]]
    return graph


def zlap(rows: Any, labels: Ints, ways: int, text: Floats) -> Floats:
    _, q, t, _ = parts(rows, labels, text)
    nodes = ways + len(q)
    edges = np.zeros((nodes, nodes))
    edges[ways:, :ways] = np.maximum(neighbours(q, t, 5, itself=False), 0) ** 5
    edges[ways:, ways:] = np.maximum(neighbours(q, q, 4, itself=True), 0)
    both = edges + edges.T
    root = 1 / np.sqrt(both.sum(axis=1))
    z = np.linalg.inv(np.eye(nodes) - 0.3 * root[:, None] * both * root)[ways:, :ways]
    return np.asarray(z / z.sum(axis=1, keepdims=True))


def otter(rows: Any, labels: Ints, ways: int, text: Floats) -> Floats:
    """Exact transport to classes of equal size: as many places per class, one query each."""
    _, q, t, _ = parts(rows, labels, text)
    places = len(q) // ways
    assert places * ways == len(q)
    _, chosen = linear_sum_assignment(np.repeat(-q @ t.T, places, axis=1))
    return np.eye(ways)[chosen // places]


def z_steps(z: Floats, prior: Floats, likelihood: Floats, reached: Any) -> Floats:
    for _ in range(5):
        z = softmax(prior + (likelihood + 50 / 6 * reached(z)) / 50)
    return z


def gaussian(q: Floats, mean: Floats, variance: Floats) -> Floats:
    """Log-likelihoods (Q, K) without the constant, from differences; variance (K, D)."""
    return np.array(
        [[-0.5 * ((x - m) ** 2 / v + np.log(v)).sum() for m, v in zip(mean, variance, strict=True)] for x in q]
    )


def transclip(rows: Any, labels: Ints, ways: int, text: Floats, released: bool = False) -> Floats:
    s, q, t, known = parts(rows, labels, text)
    n, shots, width = len(q), len(s), q.shape[1]
    p = softmax(100 * q @ t.T)
    among, of_support = neighbours(q, q, 3, itself=True), neighbours(s, q, 3, itself=False)
    if released and shots:
        of_support = neighbours(s, q, 4, itself=False)
        of_support[np.arange(shots), of_support.argmax(axis=1)] = 0
    z, variance, weight = p, np.full(width, 1 / width), 0.5 if shots else 1.0
    mean = unit(known.T @ s) if shots else np.zeros((ways, width))
    for k in range(0 if shots else ways):
        best = np.argsort(-p[:, k], kind="stable")[:8]
        mean[k] = p[best, k] @ q[best]
    mean = unit(mean)

    def reached(z: Floats) -> Floats:
        whole, every = np.concatenate([of_support, among]), np.concatenate([known, z])  # support first
        if released:
            every = np.concatenate([z, known])
            return np.asarray((whole @ z)[:n] + whole.T @ every)
        return np.asarray(among @ z + whole.T @ every)

    for gamma in (0.002, 0.01, 0.02, 0.2) if released and shots else (0.002,):
        g = 50 * gamma if shots else 0.0
        for step in range(11):
            likelihood = gaussian(q, mean, np.tile(variance, (ways, 1)))
            z = z_steps(z, weight * np.log(p), likelihood, reached)
            if step == 10:
                break
            mean = unit(z.T @ q / n + (g / shots * known.T @ s if shots else 0))
            variance = sum(z[:, k] @ (q - mean[k]) ** 2 for k in range(ways)) / n
            if shots:
                variance = variance + g / shots * sum(known[:, k] @ (s - mean[k]) ** 2 for k in range(ways))
            variance = variance / (1 + g)
    return z


def stata(rows: Any, labels: Ints, ways: int, text: Floats) -> Floats:
    s, q, t, known = parts(rows, labels, text)
    x, among, of_support = np.concatenate([s, q]), neighbours(q, q, 3, itself=True), neighbours(s, q, 3, itself=False)
    p = z = softmax(100 * q @ t.T)
    shares = np.concatenate([known, p])
    around = sum(shares[:, k] @ (x - t[k]) ** 2 for k in range(ways)) / len(x)
    mean, variance = t, np.tile(around, (ways, 1))
    for step in range(11):
        reached = lambda z: among @ z + among.T @ z + of_support.T @ known  # noqa: E731
        z = z_steps(z, np.log(p), gaussian(q, mean, variance), reached)
        if step == 10:
            break
        shares, mean, variance = np.concatenate([known, z]), np.empty_like(t), np.empty_like(t)
        for k in range(ways):
            count = (shares.argmax(axis=1) == k).sum()
            beta, total = count / (count + 1), shares[:, k].sum()
            centre = shares[:, k] @ x / total
            mean[k] = beta * centre / np.linalg.norm(centre) + (1 - beta) * t[k]
            mean[k] /= np.linalg.norm(mean[k])
            within = shares[:, k] @ (x - mean[k]) ** 2 / total
            variance[k] = beta * within + (1 - beta) * (around + (t[k] - mean[k]) ** 2)
    return z


def em_dirichlet(rows: Any, labels: Ints, ways: int, text: Floats, hard: bool, inner: int) -> Floats:
    s, q, t, known = parts(rows, labels, text)
    of_support, logs = (np.log(softmax(30 * x @ t.T) + 1e-15) if len(x) else np.zeros((0, ways)) for x in (s, q))
    u, alpha, weight = np.exp(logs), np.ones((ways, ways)), max(1, ways // 5)
    for _ in range(10 if hard else 20):
        for k in range(ways):
            count = known[:, k].sum() + u[:, k].sum()
            if count > 1e-15:
                alpha[k] = majorised(alpha[k], (known[:, k] @ of_support + u[:, k] @ logs) / count, inner)
        v = np.log(u.mean(axis=0) + 1e-15) + 1
        scores = [gammaln(a.sum()) - gammaln(a).sum() + logs @ (a - 1) + weight * v[k] for k, a in enumerate(alpha)]
        u = softmax(np.stack(scores, axis=1))
        if hard:
            u = np.eye(ways)[u.argmax(axis=1)]
    return u


def majorised(a: Floats, mean: Floats, steps: int) -> Floats:
    for _ in range(steps):
        c = np.abs(2 * (digamma(a + 1) * a - gammaln(a + 1)) / a**2)
        b = digamma(a + 1) - digamma(a.sum()) - c * a - mean
        a = (-b + np.sqrt(b**2 + 4 * c)) / (2 * c)
    return a


def bavardage_text(rows: Any, labels: Ints, ways: int, text: Floats) -> Floats:
    s, q, t, known = parts(rows, labels, text)
    x, p = np.concatenate([s, q]), softmax(100 * q @ t.T)
    shares, z = np.concatenate([known, p]), p
    scatter = np.zeros((x.shape[1], x.shape[1]))
    for k in range(ways):
        mean = shares[:, k] @ x / shares[:, k].sum()
        for share, row in zip(shares[:, k], x, strict=True):
            scatter += share * np.outer(row - mean, row - mean) / len(x)
    precision = np.linalg.inv(scatter + 3 * np.trace(scatter) / len(x) * np.eye(len(scatter)))
    u = shares @ (t - t.mean(axis=0))
    a = ((u - u.mean(axis=0)) * x).sum() / ((u - u.mean(axis=0)) ** 2).sum()
    expected = x.mean(axis=0) + a * (t - t.mean(axis=0) - u.mean(axis=0))
    for _ in range(8):
        count = known.sum(axis=0) + z.sum(axis=0)
        share = count / count.sum()
        absent = 1 - np.exp(-(share * np.log(share)).sum()) / ways
        logits = np.log(p) + absent * np.log(0.1 + count)
        for k in range(ways):
            mean = (expected[k] + known[:, k] @ s + z[:, k] @ q) / (1 + count[k])
            logits[:, k] -= 0.05 * np.array([(row - mean) @ precision @ (row - mean) for row in q])
        z = softmax(logits)
    return z
