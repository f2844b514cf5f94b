"""One task as figures show it: BAVARDAGE followed step by step, and the samples projected on planes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from fsbench.errors import FsbenchError
from fsbench.evaluation.run import configure
from fsbench.tasks.batch import TaskBatch
from fsbench.tasks.sampling import sample_tasks

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fsbench.evaluation.source import Source
    from fsbench.methods.bavardage import Bavardage
    from fsbench.methods.centroids import InnerProducts
    from fsbench.tasks.protocol import TaskProtocol


@dataclass(frozen=True)
class WatchedTask:
    """A task, and the steps of BAVARDAGE on it.

    Attributes:
        title: Origin of the task, and parameters, in two lines.
        support_labels: (S,) labels in 0..K-1.
        query_labels: (Q,) labels in 0..K-1.
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
    """Draw one task by its number and follow BAVARDAGE through it, with its parameters as the user gave them."""
    method = cast("Bavardage", configure("bavardage", source, protocol, options)[0])
    drawn = sample_tasks(protocol, source.split.offsets, seed, np.array([number]))
    present = drawn.query_labels[0] >= 0
    rows = np.concatenate([drawn.support[0], drawn.query[0][present]])
    with torch.inference_mode():
        embedded = method.embed(torch.from_numpy(source.split.features[rows]), source.base)
        tasks = TaskBatch(embedded[None], torch.from_numpy(drawn.support_labels), protocol.ways)
        steps = torch.cat(list(method.assignments(tasks)))  # (T, K, Q)
        steps = torch.cat([tasks.one_hot().expand(len(steps), -1, -1), steps], dim=2)  # (T, K, N)
    setting = protocol.setting if protocol.balanced else f"{protocol.setting} (α = {protocol.alpha:g})"
    tau = method.tau if isinstance(method.tau, str) else f"{method.tau:.3g}"
    return WatchedTask(
        title=f"{source.title}, {source.split_name}, protocol {protocol.name}: task {number} of "
        f"seed {seed}, {protocol.ways}-way {protocol.shots}-shot, {setting}\n"
        f"BAVARDAGE ({method.variant}): T_km = {method.t_km:g}, τ = {tau}, σ = {method.sigma:.3g}, "
        f"{method.km_steps}+{method.steps} steps",
        class_names=tuple(source.split.class_names[c] for c in drawn.classes[0]),
        support_labels=drawn.support_labels[0],
        query_labels=drawn.query_labels[0][present],
        method=method,
        tasks=tasks,
        assignments=steps.mT.double().numpy(),
    )


@dataclass(frozen=True)
class View:
    """A task in a plane, and the method that works in the space around it.

    Attributes:
        points: (N, 2) samples, support first.
        spread: Whose spread the axes are chosen by: `samples` or `centroids`.
        shares: Per axis its share of that spread.
        right: (Q,) whether the method's answer is right.
    """

    title: str
    points: NDArray[np.float64]
    spread: str
    shares: tuple[float, float]
    method: str
    right: NDArray[np.bool_]


def three_views(task: WatchedTask) -> tuple[View, ...]:
    """The task on its principal axes, on the centroids of Soft-KMEANS, and on those of BAVARDAGE after PLDA."""
    if len(task.class_names) < 3:
        raise FsbenchError(
            f"The centroids of {len(task.class_names)} classes span a line, and this figure shows a plane.",
            "Use --ways 3 or more.",
        )
    method, rows = task.method, task.tasks.rows.double()
    products = method.products(task.tasks.with_rows(rows))
    soft, final = (
        torch.from_numpy(task.assignments[task.last_steps[name]]).mT[None] for name in ("Soft-KMEANS", "BAVARDAGE")
    )  # (1, K, N) each
    every = torch.eye(rows.shape[1], dtype=torch.float64)[None]  # (1, N, N) each sample its own centroid
    sphering = "The same, sphered by PLDA" if method.stage == "plda" else "The same after VB"
    planes = (
        ("PCA of the CL2N features", "samples", "NCM", centroid_plane(products.plain, every)),
        (
            "Plane of the centroids", "centroids", "Soft-KMEANS",
            centroid_plane(products.plain, soft / soft.sum(dim=2, keepdim=True)),
        ),
        (
            sphering, "centroids", "BAVARDAGE",
            centroid_plane(products.sphered, final / (method.beta + final.sum(dim=2, keepdim=True))),  # Eq. 8
        ),
    )  # fmt: skip
    middle = planes[1][3][0]
    return tuple(
        View(title, _facing_like(points, middle), spread, shares, name, task.right(task.last_steps[name]))
        for title, spread, name, (points, shares) in planes
    )


def centroid_plane(products: InnerProducts, centroids: Tensor) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Project the samples of one task on the first two principal axes of its centroids (Eq. 9).

    With M the centroids minus their mean and M Mᵀ = U Λ Uᵀ, the axes are the rows of Λ^(-1/2) Uᵀ M: inner products
    are all that is needed. The centroids (1, K, N) are weights over the samples.

    Returns:
        (N, 2) coordinates, and the share of the spread between the centroids that each axis carries. An axis without
        any spread has coordinates 0.
    """
    centred = centroids - centroids.mean(dim=1, keepdim=True)
    similarity = products(centred)[0]  # (K, N) ⟨x_n, m_k − m⟩
    values, vectors = torch.linalg.eigh(similarity @ centred[0].mT)
    first = vectors[:, -2:].flip(1)  # (K, 2)
    largest = first.abs().argmax(dim=0, keepdim=True)
    first = first * first.gather(0, largest).sign()  # signs of eigenvectors are arbitrary
    spread = values[-2:].flip(0)
    floor = values[-1].clamp_min(torch.finfo(values.dtype).tiny) * 1e-12
    scale = torch.where(spread > floor, spread.clamp_min(floor).rsqrt(), 0.0)
    share = spread.clamp_min(0) / values.clamp_min(0).sum().clamp_min(floor)
    return (similarity.mT @ first * scale).numpy(), (float(share[0]), float(share[1]))


def _facing_like(points: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Flip the axes of points (N, 2) so that classes stay in place from view to view."""
    alike = (points * (others - others.mean(axis=0))).sum(axis=0)
    return points * np.where(alike < 0, -1.0, 1.0)
