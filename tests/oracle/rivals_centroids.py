"""Slow versions of the centroid methods, one task at a time, in float64.

Rows are raw features with the support first; the result is (Q, K).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.oracle.algorithms import softmax
from tests.oracle.reference import Floats, Ints, cl2n
from tests.oracle.reference import sinkhorn as balanced


def unit(x: Floats) -> Floats:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def class_means(x: Floats, labels: Ints, ways: int) -> Floats:
    return np.stack([x[: len(labels)][labels == k].mean(axis=0) for k in range(ways)])


def distances(x: Floats, points: Floats) -> Floats:
    """d² (Q, K), from differences."""
    return ((x[:, None] - points[None]) ** 2).sum(axis=2)


def simpleshot(rows: NDArray[Any], labels: Ints, ways: int, mean: Floats | None, norm: str) -> Floats:
    x = rows.astype(np.float64)
    if norm == "CL2N":
        assert mean is not None
        x = cl2n(x, mean)
    elif norm == "L2N":
        x = unit(x)
    return softmax(-distances(x[len(labels) :], class_means(x, labels, ways)))


def lda(rows: NDArray[Any], labels: Ints, ways: int, mean: Floats, scatter: Floats, sigma: float) -> Floats:
    """Gaussian classes with a common covariance, whose smallest variance is 1/σ²."""
    x = cl2n(rows, mean)
    values, vectors = np.linalg.eigh(scatter)
    precision = vectors @ np.diag(np.minimum(1 / np.maximum(values, 1e-300), sigma**2)) @ vectors.T
    return gaussian(x, labels, ways, precision)


def lda_ridge(rows: NDArray[Any], labels: Ints, ways: int) -> Floats:
    """GDA: the precision of Kubokawa and Srivastava, from the covariance of the support within classes."""
    x = unit(rows.astype(np.float64))
    support, dimension = x[: len(labels)], x.shape[1]
    centred = support - class_means(x, labels, ways)[labels]
    covariance = np.cov(centred.T)
    if np.trace(covariance) < 1e-15:
        return gaussian(x, labels, ways, np.eye(dimension))
    ridge = (len(labels) - 1) * covariance + np.trace(covariance) * np.eye(dimension)
    return gaussian(x, labels, ways, dimension * np.linalg.inv(ridge))


def gaussian(x: Floats, labels: Ints, ways: int, precision: Floats) -> Floats:
    means = class_means(x, labels, ways)
    gaps = x[len(labels) :, None] - means[None]
    return softmax(-0.5 * np.einsum("qkd,de,qke->qk", gaps, precision, gaps))


def pt(rows: NDArray[Any], support: int, reduce: bool = False) -> Floats:
    """The chain PT, optionally with the QR reduction of the released program."""
    x = np.sqrt(rows.astype(np.float64) + 1e-6)
    if reduce:
        x = np.linalg.qr(x.T)[1].T
    x = unit(x)
    s, q = x[:support], x[support:]
    return np.concatenate([unit(s - s.mean(axis=0)), unit(q - q.mean(axis=0))])


def sinkhorn(cost: Floats, scale: float, tolerance: float, rounds: int) -> Floats:
    """Scale rows to 1 and columns to Q/K in turns."""
    queries, ways = cost.shape
    p = np.exp(-scale * cost)
    p /= p.sum()
    u = np.zeros(queries)
    done = 0
    while np.abs(u - p.sum(axis=1)).max() > tolerance and done < rounds:
        u = p.sum(axis=1)
        p = p / u[:, None]
        p = p * (queries / ways / p.sum(axis=0))
        done += 1
    return p


def pt_map(
    rows: NDArray[Any], labels: Ints, ways: int, *, tolerance: float = 1e-6, rounds: int = 1000, reduce: bool = False
) -> Floats:
    """With the stop test of the released program unless told otherwise."""
    support = len(labels)
    x = pt(rows, support, reduce)
    mu = class_means(x, labels, ways)
    known = np.eye(ways)[labels]
    for _ in range(20):
        o = np.concatenate([known, sinkhorn(distances(x[support:], mu), 10.0, tolerance, rounds)])
        mu = mu + 0.2 * ((o.T @ x) / o.sum(axis=0)[:, None] - mu)
    return sinkhorn(distances(x[support:], mu), 10.0, tolerance, rounds)


def rectified(x: Floats, labels: Ints, ways: int, temperature: float = 10.0) -> Floats:
    support = len(labels)
    shift = x[:support].mean(axis=0) - x[support:].mean(axis=0)
    z = np.concatenate([x[:support], x[support:] + shift])
    means = class_means(x, labels, ways)
    cosine = unit(z) @ unit(means).T
    w = softmax(temperature * cosine)
    result = means.copy()
    for k in range(ways):
        members = [n for n in range(len(z)) if cosine[n].argmax() == k]
        if members:
            result[k] = sum(w[n, k] * z[n] for n in members) / len(members)
    return result


def bd_cspn(rows: NDArray[Any], labels: Ints, ways: int, mean: Floats) -> Floats:
    x = cl2n(rows, mean)
    return softmax(-distances(x[len(labels) :], rectified(x, labels, ways)))


def laplacianshot(
    rows: NDArray[Any], labels: Ints, ways: int, mean: Floats, *, weight: float, rectify: bool, knn: int = 3
) -> tuple[Floats, int]:
    """Assignments, and the number of updates made."""
    x = cl2n(rows, mean)
    q = x[len(labels) :]
    prototypes = rectified(x, labels, ways) if rectify else class_means(x, labels, ways)
    a = distances(q, prototypes)
    graph = np.zeros((len(q), len(q)))
    for i in range(len(q)):
        order = np.argsort([np.linalg.norm(q[i] - other) for other in q], kind="stable")
        graph[i, [j for j in order if j != i][: knn - 1]] = 1.0
    y = softmax(-a)
    previous = np.inf
    for i in range(20):
        y = softmax(-a + weight * graph @ y)
        energy = (y * np.log(np.maximum(y, 1e-20)) + a * y - weight * y * (graph @ y)).sum()
        if i > 1 and abs(energy - previous) <= 1e-6 * abs(previous):
            break
        previous = energy
    return y, i + 1


def paddle(rows: NDArray[Any], labels: Ints, ways: int, *, lam: float | None = None, steps: int = 100) -> Floats:
    """UNEM with equal coefficients, scaled to the queries; lambda is their number unless told otherwise."""
    x, queries = rows.astype(np.float64), len(rows) - len(labels)
    extent = x[len(labels) :].max(axis=0) - x[len(labels) :].min(axis=0)
    coefficient = (queries if lam is None else lam) / queries
    return unem(x / np.where(extent == 0, 1.0, extent), labels, ways, 1.0, [coefficient] * steps, [1.0] * steps)


def bms(rows: NDArray[Any], labels: Ints, ways: int, *, scale: float = 8.5, steps: int = 20) -> Floats:
    """The plan as the released program leaves it: the shares of a query need not add up to 1."""
    support = len(labels)
    x = unit(np.sqrt(rows.astype(np.float64) + 1e-6))
    x = unit(x - x.mean(axis=0))
    known = np.eye(ways)[labels]
    mu = unit(class_means(x, labels, ways))
    least = int(np.bincount(labels, minlength=ways).min())
    for _ in range(steps):
        p = softmax(-scale * (1 - x[support:] @ mu.T))
        for _ in range(50):
            p = p / p.sum(axis=1, keepdims=True)
            for k in range(ways):
                if p[:, k].sum() < least:
                    p[:, k] *= least / p[:, k].sum()
        o = np.concatenate([known, p])
        least = int(np.bincount(o.argmax(axis=1), minlength=ways).min())
        mu = unit((o.T @ x) / o.sum(axis=0)[:, None])
    return p


def leading(x: Floats, count: int) -> Floats:
    """Rows projected on the first right singular vectors."""
    return np.asarray(x @ np.linalg.svd(x, full_matrices=False)[2][:count].T)


def plc(rows: NDArray[Any], dimensions: int | None = None) -> Floats:
    """The chain PLC; optionally only the leading directions before the mean is subtracted."""
    x = unit(np.where(rows < 0, -1, 1) * np.sqrt(np.abs(rows.astype(np.float64)) + 1e-6))
    x = leading(x, dimensions) if dimensions else x
    return unit(x - x.mean(axis=0))


def protolp(
    rows: NDArray[Any], labels: Ints, ways: int, *, graph: str, even: bool, weight: float, share: float, rounds: int
) -> Floats:
    x, support = plc(rows, 40), len(labels)
    known = np.eye(ways)[labels]
    mu = unit(class_means(x, labels, ways))
    assign = balanced if even else softmax
    for _ in range(rounds):
        z = np.concatenate([known, assign(-10 * distances(x[support:], mu))])
        among, inverse = z.T @ z, np.diag(1 / z.sum(axis=0))
        laplacian = np.eye(ways) - among @ inverse if graph == "normalised" else among - among @ inverse @ among
        anchors = np.linalg.inv(known.T @ known + weight * laplacian) @ known.T @ known
        spread = np.maximum((z @ anchors)[support:], 1e-300)
        mixed = np.concatenate([known, share * balanced(np.log(spread)) + (1 - share) * z[support:]])
        mu = mu + 0.2 * (mixed.T @ x / mixed.sum(axis=0)[:, None] - mu)
    return assign(-10 * distances(x[support:], mu))


def unem(
    rows: NDArray[Any], labels: Ints, ways: int, scale: float, balance: list[float], temperature: list[float]
) -> Floats:
    z, support = scale * rows.astype(np.float64), len(labels)
    w, v = class_means(z, labels, ways), np.ones(ways)
    for g, t in zip(balance, temperature, strict=True):
        u = softmax((-0.5 * distances(z[support:], w) + g * v) / t)
        v = np.log(u.mean(axis=0) + 1e-6) + 1
        everything = np.concatenate([np.eye(ways)[labels], u])
        w = everything.T @ z / everything.sum(axis=0)[:, None]
    return u


def ilpc(rows: NDArray[Any], labels: Ints, ways: int, *, propagation: float, neighbours: int, steps: int) -> Floats:
    """Labels only: one-hot."""
    x, support = plc(rows), len(labels)
    n = len(x)
    w = np.zeros((n, n))
    for i in range(n):
        similar = [(x[i] @ x[j], j) for j in range(n) if j != i]
        for similarity, j in sorted(similar, reverse=True)[:neighbours]:
            w[i, j] = max(similarity, 0) ** 3
    w = w + w.T
    root = np.diag(w.sum(axis=1) ** -0.5)
    system = np.eye(n) - propagation * root @ w @ root
    known = {i: int(label) for i, label in enumerate(labels)}
    quota = np.full(ways, (n - support) / ways)
    answer: dict[int, int] = {}
    while len(known) < n:
        indicator = np.zeros((n, ways))
        for i, label in known.items():
            indicator[i, label] = 1
        f = np.maximum(np.linalg.solve(system, indicator), 0)
        p = f / f.sum(axis=1, keepdims=True)
        rest = [i for i in range(n) if i not in known]
        active = np.flatnonzero(quota > 0)
        sizes = quota[active] * len(rest) / quota.sum()
        plan = balanced(3 * np.log(np.maximum(p[rest][:, active], 1e-8)), sizes)
        guess = dict(zip(rest, active[plan.argmax(axis=1)], strict=True))
        answer |= guess
        effort = classifier_effort(x, {**guess, **known}, known, ways, steps)
        chosen = []
        for k in range(ways):
            mine = sorted((effort[i], i) for i in rest if guess[i] == k)
            chosen += [i for _, i in mine[:3]]
        if len(chosen) < 5:
            break
        for i in chosen:
            known[i] = int(guess[i])
            quota[guess[i]] = max(quota[guess[i]] - 1, 0)
    answer |= known
    return np.eye(ways)[[answer[i] for i in range(support, n)]]


def classifier_effort(x: Floats, target: dict[int, int], known: dict[int, int], ways: int, steps: int) -> Floats:
    """Loss of every sample, averaged over the steps of gradient descent on a linear classifier."""
    y = np.eye(ways)[[target[i] for i in range(len(x))]]
    w = unit(np.stack([x[[i for i, label in known.items() if label == k]].mean(axis=0) for k in range(ways)]))
    b = np.zeros(ways)
    momenta = [np.zeros_like(w), np.zeros_like(b)]
    total = np.zeros(len(x))
    for _ in range(steps):
        p = softmax(x @ w.T + b)
        total -= np.log((p * y).sum(axis=1))
        slopes = (p - y).T @ x / len(x) + 5e-4 * w, (p - y).mean(axis=0) + 5e-4 * b
        momenta = [0.9 * momentum + slope for momentum, slope in zip(momenta, slopes, strict=True)]
        w, b = w - 0.1 * momenta[0], b - 0.1 * momenta[1]
    return total / steps
