"""Exact t-SNE for the few hundred samples of a task.

van der Maaten, Hinton: "Visualizing data using t-SNE", JMLR 2008. All pairs, the gradient without approximation. It
starts from the principal components, and so few samples can be left to L-BFGS: nothing is random, and no rate or
exaggeration needs choosing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.spatial.distance import pdist, squareform

from fsbench.errors import FsbenchError
from fsbench.evaluation.run import configure
from fsbench.methods.bavardage import unpack
from fsbench.tasks.batch import TaskBatch
from fsbench.tasks.sampling import sample_tasks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    from numpy.typing import NDArray
    from torch import Tensor

    from fsbench.evaluation.source import Source
    from fsbench.methods.bavardage import Bavardage
    from fsbench.methods.centroids import InnerProducts
    from fsbench.tasks.protocol import TaskProtocol


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


@dataclass(frozen=True)
class WatchedTask:
    """A task, and BAVARDAGE's way through it.

    Attributes:
        title: Where the task comes from, and the parameters, in two lines.
        class_names: Names of the K classes.
        support_labels: (S,) labels in 0..K-1.
        query_labels: (Q,) labels in 0..K-1.
        method: BAVARDAGE with its parameters.
        tasks: The task as `method` sees it, a batch of one.
        assignments: (T, N, K) after every step, support first: `km_steps` of Soft-KMEANS, of which the first is the
            nearest class mean, then those of variational Bayes.
    """

    title: str
    class_names: tuple[str, ...]
    support_labels: NDArray[np.int64]
    query_labels: NDArray[np.int64]
    method: Bavardage
    tasks: TaskBatch
    assignments: NDArray[np.float64]

    @property
    def last_steps(self) -> dict[str, int]:
        """The step at which every method ends. The first E step is the nearest class mean, so NCM ends there."""
        return {"NCM": 0, "Soft-KMEANS": self.method.km_steps - 1, "BAVARDAGE": len(self.assignments) - 1}

    @property
    def query_probabilities(self) -> NDArray[np.float64]:
        """(T, Q, K) after every step."""
        return self.assignments[:, len(self.support_labels) :]

    def right(self, step: int) -> NDArray[np.bool_]:
        """(Q,) whether a query's most probable class after a step is its own."""
        right: NDArray[np.bool_] = self.query_probabilities[step].argmax(axis=1) == self.query_labels
        return right


def watch(source: Source, protocol: TaskProtocol, seed: int, number: int, options: dict[str, Any]) -> WatchedTask:
    """Draw a task by its number and follow BAVARDAGE through it.

    Args:
        source: Features.
        protocol: How tasks are drawn.
        seed: Of the task list.
        number: Of the task.
        options: Parameters of BAVARDAGE as the user gave them.
    """
    method = cast("Bavardage", configure("bavardage", source, protocol, options)[0])
    drawn = sample_tasks(protocol, source.split.offsets, seed, np.array([number]))
    present = drawn.query_labels[0] >= 0
    rows = np.concatenate([drawn.support[0], drawn.query[0][present]])
    with torch.inference_mode():
        embedded = method.embed(torch.from_numpy(source.split.features[rows]), source.base)
        tasks = TaskBatch(embedded[None], torch.from_numpy(drawn.support_labels), protocol.ways)
        steps = torch.cat(list(method.assignments(tasks)))  # (T, K, Q)
        steps = torch.cat([tasks.one_hot().expand(len(steps), -1, -1), steps], dim=2)  # (T, K, N)
    return WatchedTask(
        title=_title(source, protocol, seed, number, method),
        class_names=tuple(source.split.class_names[c] for c in drawn.classes[0]),
        support_labels=drawn.support_labels[0],
        query_labels=drawn.query_labels[0][present],
        method=method,
        tasks=tasks,
        assignments=steps.mT.double().numpy(),
    )


def _title(source: Source, protocol: TaskProtocol, seed: int, number: int, method: Bavardage) -> str:
    setting = protocol.setting if protocol.balanced else f"{protocol.setting} (α = {protocol.alpha:g})"
    tau = method.tau if isinstance(method.tau, str) else f"{method.tau:.3g}"
    return (
        f"{source.dataset}, {source.backbone}, {source.split_name}, protocol {protocol.name}: task {number} of seed "
        f"{seed}, {protocol.ways}-way {protocol.shots}-shot, {setting}\n"
        f"BAVARDAGE ({method.variant}): T_km = {method.t_km:g}, τ = {tau}, σ = {method.sigma:.3g}, "
        f"{method.km_steps} + {method.steps} steps"
    )


@dataclass(frozen=True)
class View:
    """A task in the plane, and the method that works in the space it is a picture of.

    Attributes:
        title: What is seen.
        points: (N, 2) samples, support first.
        shares: Per axis its share of the spread between the centroids; none for t-SNE.
        method: Whose answers are shown.
        right: (Q,) whether it answers rightly.
    """

    title: str
    points: NDArray[np.float64]
    shares: tuple[float, ...]
    method: str
    right: NDArray[np.bool_]


def three_views(task: WatchedTask) -> tuple[View, View, View]:
    """The task under t-SNE, on the centroids of Soft-KMEANS without sphering, and on those of BAVARDAGE (PLDA)."""
    if len(task.class_names) < 3:
        raise FsbenchError(
            f"The centroids of {len(task.class_names)} classes span a line, and this picture shows a plane.",
            "Use --ways 3 or more.",
        )
    method = task.method
    rows = unpack(task.tasks.rows.double())
    products = method.products(rows)
    right = {name: task.right(step) for name, step in task.last_steps.items()}
    soft, final = (
        torch.from_numpy(task.assignments[task.last_steps[name]]).mT[None] for name in ("Soft-KMEANS", "BAVARDAGE")
    )  # (1, K, N) each
    on_means, means_share = centroid_plane(products.plain, soft / soft.sum(dim=2, keepdim=True))
    on_plda, plda_share = centroid_plane(
        products.sphered, final / (method.beta + final.sum(dim=2, keepdim=True))
    )  # Eq. 8
    alike = (on_plda * (on_means - on_means.mean(axis=0))).sum(axis=0)
    on_plda = on_plda * np.where(alike < 0, -1.0, 1.0)  # so that classes stay in place from view to view
    sphering = "PLDA: sphered" if method.stage == "plda" else "VB: not sphered"
    return (
        View("t-SNE of the CL2N features", _turned(tsne(rows.plain[0].numpy()), on_means), (), "NCM", right["NCM"]),
        View("On the centroids, not sphered", on_means, means_share, "Soft-KMEANS", right["Soft-KMEANS"]),
        View(f"{sphering}, on the centroids", on_plda, plda_share, "BAVARDAGE", right["BAVARDAGE"]),
    )


def centroid_plane(products: InnerProducts, centroids: Tensor) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Project the samples of one task on the first two principal axes of its centroids (Eq. 9).

    With M the centroids minus their mean and M Mᵀ = U Λ Uᵀ, the axes are the rows of Λ^(-1/2) Uᵀ M: inner products
    are all that is needed.

    Args:
        products: Inner products of the samples.
        centroids: (1, K, N) as weights over the samples.

    Returns:
        (N, 2) coordinates, and the share of the spread between the centroids that each axis carries. An axis without
        any spread has coordinates 0.
    """
    centred = centroids - centroids.mean(dim=1, keepdim=True)
    similarity = products(centred)[0]  # (K, N) ⟨x_n, m_k − m⟩
    values, vectors = torch.linalg.eigh(similarity @ centred[0].mT)
    first = _facing(vectors[:, -2:].flip(1))  # (K, 2)
    spread = values[-2:].flip(0)
    floor = values[-1].clamp_min(torch.finfo(values.dtype).tiny) * 1e-12
    scale = torch.where(spread > floor, spread.clamp_min(floor).rsqrt(), 0.0)
    share = spread.clamp_min(0) / values.clamp_min(0).sum().clamp_min(floor)
    return (similarity.mT @ first * scale).numpy(), (float(share[0]), float(share[1]))


def _turned(points: NDArray[np.float64], like: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotate or reflect points (N, 2), whose directions mean nothing, to lie as much as possible like others."""
    u, _, v = np.linalg.svd(points.T @ like)
    turned: NDArray[np.float64] = points @ u @ v
    return turned


def _facing(vectors: Tensor) -> Tensor:
    """Turn every column so that its largest entry is positive: signs of eigenvectors are arbitrary."""
    largest = vectors.abs().argmax(dim=0, keepdim=True)
    return vectors * vectors.gather(0, largest).sign()
