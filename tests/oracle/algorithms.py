"""Algorithms 1 and 2 of the article, one task at a time, to be read beside it. `fsbench` gives the same, faster.

Choices: S_w is that of Eq. 6, so τ = T_vb / n̄ and σ = s_max √n̄ with n̄ images per base class; the assignments of the
support stay one-hot; on balanced tasks the mixing weights are uniform (`mixing`). What is not the article's: the query
weight λ, the start `product`, the weight of the size terms, and the choice of equal class sizes (`look_equal`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from fsbench.methods.bavardage import START_TAU, Bavardage

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
    tau, d, equal = float(given.tau), known.shape[1] - 1, normalised is not softmax
    if given.start == "product":
        means = known.T @ sphered[: len(known)] / known.sum(axis=0)[:, None]
        nearest = softmax(-0.5 * START_TAU * squared_distances(sphered, means))
        with np.errstate(divide="ignore"):
            product = np.maximum(np.log(o), -700) + np.maximum(np.log(nearest), -700)
        o = np.concatenate([known, normalised(product[len(known) :])])
    share = off_centre(sphered, soft_kmeans(x, known, given.t_km, given.km_steps, normalised), given)  # of m_o
    large, trust = trust_in_sizes(o[len(known) :], given), trust_in_rest(o, len(known), 0 if equal else share, given)
    weight, prior = np.ones((len(x), 1)), given.beta * trust  # of every sample, and β_o
    weight[len(known) :] = query_weight(given, equal, (len(x) - len(known)) / (d + 1), trust)
    for _ in range(given.steps):
        u = plda(sphered - share * sphered[len(known) :].mean(axis=0), o * weight, gamma=prior)  # m_o is then 0
        count = o.sum(axis=0)  # N_k
        alpha = given.prior_alpha + count - (known.sum(axis=0) if given.variant == "released" else 0)  # Eq. 3
        beta = prior + (o * weight).sum(axis=0)
        m = (o * weight).T @ u / beta[:, None]
        log_pi = digamma(alpha) - digamma(alpha.sum()) if given.mixing == "learned" else 0
        constant = 0.5 * d * np.log(tau) - 0.5 * d * np.log(2 * np.pi)  # Λ = τ I
        log_rho = large * (log_pi - 0.5 * d / beta) + constant - 0.5 * tau * squared_distances(u, m)  # Eq. 5
        o = np.concatenate([known, normalised(log_rho[len(known) :])])
    return o


def query_weight(given: Bavardage, equal: bool, queries: float, trust: float) -> float:
    """λ: a number, or 0.4 (equal sizes: 0.8) at 15 queries per class, falling with the root of their number."""
    chosen = (0.8 if equal else 0.4) * (queries / 15) ** -0.5 * trust
    return min(1.0, chosen) if given.query_weight == "auto" else float(given.query_weight)


def off_centre(sphered: Array, o: Array, given: Bavardage) -> float:
    """What of ‖Σ_n x_n‖² exceeds the sum over classes of ‖Σ_n o_nk x_n‖², as a share."""
    total = (sphered.sum(axis=0) ** 2).sum()
    spread = sum((o[:, k] @ sphered) @ (o[:, k] @ sphered) for k in range(o.shape[1])) / total
    return max(0.0, 1 - spread) if given.prior_mean == "task" else 0.0


def trust_in_rest(o: Array, support: int, share: float, given: Bavardage) -> float:
    """min(1, c / d)^e: e is ½ at one shot or a share of 0, else up to S / (S + 1), more with n classes per query."""
    shots, n = support / o.shape[1], np.mean([1 / (row @ row) for row in o[support:]])
    return float(min(1.0, given.size_terms / (o.shape[1] - 1)) ** (0.5 + share * n * (shots / (shots + 1) - 0.5)))


def look_equal(o: Array) -> bool:
    """Whether the class shares of assignments (Q, K) are compatible with equal sizes."""
    return bool(2 * len(o) * divergence_from_equal(o) < o.shape[1] - 1)


def divergence_from_equal(o: Array) -> float:
    """KL(p ‖ 1/K) of the class shares of assignments (Q, K)."""
    p = o.mean(axis=0)
    return float(sum(q * np.log(q * len(p)) for q in p if q > 0))


def trust_in_sizes(o: Array, given: Bavardage) -> float:
    """ω: min(1, c / d), and what the divergence of the start's shares exceeds its expectation by, up to 2.

    The latter is weighted by min(1, c K / Q).
    """
    ways, alpha = o.shape[1], given.prior_alpha
    if given.size_terms == np.inf:
        return 1.0
    expected = digamma(alpha + 1) - digamma(ways * alpha + 1) + np.log(ways)  # of a Dirichlet prior
    flat, few = min(1.0, given.size_terms / (ways - 1)), min(1.0, given.size_terms / (len(o) / ways))
    return min(2.0, flat + few * max(0.0, divergence_from_equal(o) / float(expected) - 1))


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
