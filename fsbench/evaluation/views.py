"""One task seen three ways: its features, the space of its centroids, and that space after PLDA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fsbench.errors import FsbenchError
from fsbench.evaluation.tsne import tsne
from fsbench.tasks.batch import TaskBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fsbench.evaluation.watch import WatchedTask
    from fsbench.methods._gram import InnerProducts


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
    tasks, method = task.tasks, task.method
    precise = TaskBatch(tasks.rows.double(), tasks.support_labels, tasks.ways)
    plain, sphered = method.spaces(precise)
    right = {name: task.right(step) for name, step in task.last_steps.items()}
    soft, final = (
        torch.from_numpy(task.assignments[task.last_steps[name]]).mT[None] for name in ("Soft-KMEANS", "BAVARDAGE")
    )  # (1, K, N) each
    features = precise.rows.chunk(2, dim=2)[0][0]  # (N, D), CL2N
    on_means, means_share = centroid_plane(plain, soft / soft.sum(dim=2, keepdim=True))
    on_plda, plda_share = centroid_plane(sphered, final / (method.beta + final.sum(dim=2, keepdim=True)))  # Eq. 8
    alike = (on_plda * (on_means - on_means.mean(axis=0))).sum(axis=0)
    on_plda = on_plda * np.where(alike < 0, -1.0, 1.0)  # so that classes stay in place from view to view
    sphering = "PLDA: sphered" if method.stage == "plda" else "VB: not sphered"
    return (
        View("t-SNE of the CL2N features", _turned(tsne(features.numpy()), on_means), (), "NCM", right["NCM"]),
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
