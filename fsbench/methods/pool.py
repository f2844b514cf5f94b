"""Base statistics without base classes: from a large task itself, whose images replace them.

The mean is that of all images of the task. The within-class scatter follows from soft assignments, in two rounds: those
of Soft-KMEANS, then those of `bavardage:weighted` with the scatter of the first round. A third changes nothing.
"""

from __future__ import annotations

from typing import Final, Literal

import torch
from torch import Tensor

from fsbench.errors import FsbenchError
from fsbench.features.preprocess import apply_rows
from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import Context, Method
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.soft_kmeans import SoftKMeans
from fsbench.tasks.batch import TaskBatch, by_name

POOL: Final = "pool"  # the word for it, in place of a file of base classes
Statistics = BaseStatistics | Literal["pool"] | None
ENOUGH = 100  # images, from which the scatter of a pool is worth it: see docs/methods.md


def check_pool(images: int) -> None:
    """Refuse a pool that is too small."""
    if images < ENOUGH:
        raise FsbenchError(
            f"A pool of {images} images is too small to replace base classes: from about {ENOUGH} on it is worth it.",
            f"Use at least {ENOUGH - images} more --queries, base classes of another feature file with --base FILE, or "
            "a method that needs none, such as lda:ridge.",
        )


def pool_statistics(rows: Tensor, support_labels: Tensor, ways: int) -> BaseStatistics:
    """Statistics that stand in for those of base classes, from one large task.

    Args:
        rows: (N, D) raw features, support first.
        support_labels: (S,) labels in 0..K-1; every class has at least one support sample.
        ways: K.
    """
    check_pool(len(rows))
    labels = support_labels[None]
    mean = rows.double().mean(dim=0) if rows.device.type != "mps" else rows.mean(dim=0)
    plain = apply_rows("CL2N", rows, mean.to(rows))
    first = SoftKMeans().classify(TaskBatch(plain[None], labels, ways))[0]  # (Q, K)
    weighted = Bavardage.configure(Context(balanced=False), variant="weighted", sizes="free")
    spaces = weighted.embed(rows, _statistics(mean, plain, support_labels, first))
    batch = TaskBatch({name: space[None] for name, space in spaces.items()}, labels, ways)
    return _statistics(mean, plain, support_labels, weighted.classify(batch)[0])


def _statistics(mean: Tensor, plain: Tensor, support_labels: Tensor, assigned: Tensor) -> BaseStatistics:
    """S_w = (Σ_n x_n x_nᵀ − Σ_k N_k m_k m_kᵀ) / N, of CL2N rows (N, D) and assignments of the queries (Q, K).

    The released program's matrix weights classes, which makes no difference worth a matrix per class: it is n̄ S_w here.
    """
    mean, x, queries = (part.cpu().double() for part in (mean, plain, assigned))
    known = torch.nn.functional.one_hot(support_labels.cpu(), queries.shape[1]).double()
    shares = torch.cat([known, queries])  # (N, K)
    counts = shares.sum(dim=0)  # N_k
    totals = shares.mT @ x / counts.sqrt()[:, None]  # (K, D) √N_k m_k
    scatter = (x.mT @ x - totals.mT @ totals) / len(x)
    values, vectors = torch.linalg.eigh(scatter)
    sizes = tuple(shares.argmax(dim=1).bincount(minlength=shares.shape[1]).tolist())
    return BaseStatistics(
        mean, scatter, scatter * len(x) / len(counts), values.flip(0).clamp_min(0.0), vectors.flip(1), sizes
    )


def on_pool(method: Method, tasks: TaskBatch) -> TaskBatch:
    """Tasks of raw features in the spaces of a method, each with the statistics of its own pool."""
    each = [
        by_name(method.embed(rows, pool_statistics(rows, labels, tasks.ways)))
        for rows, labels in zip(tasks.rows, tasks.support_labels, strict=True)
    ]
    return tasks.with_rows({name: torch.stack([one[name] for one in each]) for name in each[0]})
