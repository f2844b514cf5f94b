"""Slow versions of the methods that train a head or a graph, one task at a time, in float64.

Losses are written out plainly and accept complex numbers, so that `derivative` can differentiate them to rounding
without anybody deriving a formula: f(x + ih) = f(x) + ih f'(x) − …, with h far below rounding.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.oracle.algorithms import softmax
from tests.oracle.reference import Floats, Ints
from tests.oracle.rivals_centroids import class_means, unit

Terms = tuple[float, float, float]

EPS = 1e-12
H = 1e-30


def derivative(f: Callable[[NDArray[Any]], NDArray[Any]], at: Floats) -> Floats:
    """Gradient of a function that maps (…, *shape) to (…): all coordinates are perturbed at once."""
    steps = 1j * H * np.eye(at.size).reshape(at.size, *at.shape)
    return (f(at + steps).imag / H).reshape(at.shape)


class Adam:
    def __init__(self, rate: float) -> None:
        self.rate, self.t = rate, 0
        self.m: Floats | float = 0.0
        self.v: Floats | float = 0.0

    def step(self, x: Floats, gradient: Floats) -> Floats:
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * gradient
        self.v = 0.999 * self.v + 0.001 * gradient**2
        return x - self.rate * (self.m / (1 - 0.9**self.t)) / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)


def complex_softmax(logits: NDArray[Any]) -> NDArray[Any]:
    e = np.exp(logits - logits.real.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def entropy(p: NDArray[Any], order: float, eps: float) -> NDArray[Any]:
    if order == 1:
        return -(p * np.log(p + eps)).sum(axis=-1)
    return (1 - ((p + eps) ** order).sum(axis=-1)) / (order - 1)


def information(p: NDArray[Any], labels: Ints, terms: Terms, order: float) -> NDArray[Any]:
    """a·CE − b·H(Y) + c·H(Y|X) of probabilities (…, N, K)."""
    a, b, c = terms
    shots = len(labels)
    fit = -np.log(p[..., np.arange(shots), labels] + EPS).mean(axis=-1)
    if b == c == 0:
        return a * fit
    queries = p[..., shots:, :]
    return a * fit - b * entropy(queries.mean(axis=-2), order, 0.0) + c * entropy(queries, order, EPS).mean(axis=-1)


def head_logits(x: Floats, w: NDArray[Any], temperature: float) -> NDArray[Any]:
    """−T/2 ‖x − w‖², (…, N, K), for heads (…, K, D)."""
    return -temperature / 2 * ((x[:, None] - w[..., None, :, :]) ** 2).sum(axis=-1)


def head_gradient(x: Floats, labels: Ints, w: Floats, temperature: float, terms: Terms, order: float) -> Floats:
    """Sums over samples of ∂L/∂l_k T (x − w_k)."""

    def loss(logits: NDArray[Any]) -> NDArray[Any]:
        return information(complex_softmax(logits), labels, terms, order)

    slope = derivative(loss, head_logits(x, w, temperature))  # (N, K)
    return np.asarray(temperature * (slope.T @ x - slope.sum(axis=0)[:, None] * w))


def head(x: Floats, labels: Ints, ways: int, *, terms: Terms, order: float = 1.0, rate: float, steps: int) -> Floats:
    """TIM-GD, α-TIM and entropy-min on features x, or Baseline if x is the support alone: the last weights."""
    w = class_means(x, labels, ways)
    adam = Adam(rate)
    for _ in range(steps):
        w = adam.step(w, head_gradient(x, labels, w, 15.0, terms, order))
    return w


def cosines(x: Floats, w: Floats) -> Floats:
    return np.asarray(unit(x) @ unit(w).T)


def tim_adm(x: Floats, labels: Ints, ways: int, *, lam: float, b: float, c: float, steps: int) -> Floats:
    shots = len(labels)
    support, query = x[:shots], x[shots:]
    y = np.eye(ways)[labels]
    w = class_means(x, labels, ways)
    ratio = shots / len(query)
    for _ in range(steps):
        ps, pq = softmax(head_logits(support, w, 15.0)), softmax(head_logits(query, w, 15.0))
        q = pq ** (1 + c) / (pq ** (1 + c)).sum(axis=0) ** (b / (b + 1))
        q /= q.sum(axis=1, keepdims=True)
        new = np.zeros_like(w)
        for k in range(ways):
            part = lam / (1 + c) * (y[:, k] @ support + ps[:, k] @ (w[k] - support))
            part += ratio * (q[:, k] @ query + pq[:, k] @ (w[k] - query))
            new[k] = part / (lam / (1 + c) * y[:, k].sum() + ratio * q[:, k].sum())
        w = new
    return softmax(head_logits(query, w, 15.0))


def spread(x: Floats, state: Sequence[NDArray[Any]], k: int, alpha: float, temperature: float) -> NDArray[Any]:
    """Probabilities of the samples, (…, N, K), after the labels of the centroids have spread.

    The state: centroids (…, K, D), gate and emphasis (…, n, n).
    """
    mu, gate, emphasis = state
    ways, n = mu.shape[-2], mu.shape[-2] + len(x)
    lead = np.broadcast_shapes(mu.shape[:-2], gate.shape[:-2], emphasis.shape[:-2])
    nodes = np.concatenate(
        [np.broadcast_to(mu, (*lead, *mu.shape[-2:])), np.broadcast_to(x, (*lead, *x.shape))], axis=-2
    )
    squared = ((nodes[..., :, None, :] - nodes[..., None, :, :]) ** 2).sum(axis=-1)
    distance = np.where(squared.real > 0, np.sqrt(np.where(squared.real > 0, squared, 1.0)), 0.0)
    centred = distance - distance.mean(axis=(-2, -1), keepdims=True)
    scaled = distance / np.sqrt((centred**2).sum(axis=(-2, -1), keepdims=True) / (n * n - 1))
    exponent = gate * scaled
    ranked = exponent.real.copy()
    ranked[..., np.arange(n), np.arange(n)] = np.inf
    kth = np.sort(ranked, axis=-1)[..., min(k, n - 1) - 1 : min(k, n - 1)]
    affinity = np.where(ranked <= kth * (1 + 1e-5), np.exp(-exponent), 0.0)
    affinity[..., :ways, :] = 0.0
    affinity[..., np.arange(n), np.arange(n)] = 0.0
    w = emphasis * (affinity + np.swapaxes(affinity, -1, -2)) / 2
    root = (w.sum(axis=-1) + 1e-12) ** -0.5
    normalised = root[..., :, None] * w * root[..., None, :]
    reached = np.linalg.inv(np.eye(n) - alpha * normalised)[..., :, :ways]
    return complex_softmax(temperature * reached[..., ways:, :])


def alpha_am(
    x: Floats, labels: Ints, ways: int, *, k: int, alpha: float, terms: Terms, order: float, steps: int, rate: float
) -> Floats:
    """On pre-processed features; the gradients of centroids, gate and emphasis by `derivative`."""
    n = ways + len(x)
    state = [class_means(x, labels, ways), np.ones((n, n)), np.full((n, n), alpha)]
    optimisers = [Adam(rate) for _ in state]
    where = partial(spread, x, k=k, alpha=alpha, temperature=15.0)

    def loss(changed: NDArray[Any], i: int, state: list[Floats]) -> NDArray[Any]:
        return information(where([*state[:i], changed, *state[i + 1 :]]), labels, terms, order)

    for step in range(steps):
        p = where(state)
        if step == steps - 1:
            break
        slopes = [derivative(partial(loss, i=i, state=state), state[i]) for i in range(3)]
        state = [adam.step(value, slope) for adam, value, slope in zip(optimisers, state, slopes, strict=True)]
    return p[len(labels) :]
