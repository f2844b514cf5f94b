"""LDA: nearest class mean in the sphered space."""

from __future__ import annotations

import functools
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import Method, MethodInfo, Variants, prepared, require_base
from fsbench.methods.bavardage import released_sphering, sphering
from fsbench.methods.centroids import class_means, support_and_query
from fsbench.tasks.batch import TaskBatch


class Lda(Method):
    """Nearest class mean by the Mahalanobis distance of a within-class scatter: linear discriminant analysis.

    Inductive. The scatter is that of the base classes, on CL2N features, as BAVARDAGE spheres with it; `ridge` needs no
    base classes: it takes the scatter of the support itself, on L2N features, with a ridge.
    """

    variant: Literal["base", "ridge"] = "base"
    # with base classes: S_w of Eq. 6 (`article`), or the class-weighted matrix of the `released` program of BAVARDAGE
    scatter: Literal["article", "released"] = "article"
    sigma: Annotated[float, Field(gt=0)] = 20.0  # largest scaling, as in BAVARDAGE

    info = MethodInfo(
        "lda", "LDA",
        'Fisher, "The use of multiple measurements in taxonomic problems", 1936; with a ridge: Wang et al., "A '
        'Hard-to-Beat Baseline for Training-free CLIP-based Adaptation", ICLR 2024',
        url="https://arxiv.org/abs/2402.04087", order=15, transductive=False, prior="none", needs_base=True,
        variants=Variants("variant", ("base", "ridge"), in_all=("ridge",), without_base=("ridge",)),
        grid={"sigma": (5.0, 7.0, 10.0, 12.0, 15.0, 20.0, 25.0, 30.0, 40.0, 60.0, 100.0, 200.0)},
    )  # fmt: skip

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """CL2N rows (M, D), sphered; L2N rows without base classes."""
        if self.variant == "ridge":
            return prepared("L2N", features, None, self.info.title)
        statistics, x = require_base(base, self.info.title), prepared("CL2N", features, base, self.info.title)
        if self.scatter == "released":
            return x @ clamped_released(statistics, self.sigma).to(x)
        return x @ sphering(statistics.eigenvalues, statistics.eigenvectors, self.sigma).to(x)

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax over the classes of −½ d², (B, Q, K)."""
        means, query = class_means(tasks), support_and_query(tasks)[1]
        precise = ridge_precision(tasks, means, alone=1.0) if self.variant == "ridge" else means  # P μ, (B, K, D)
        half = (means * precise).sum(dim=2)[:, None, :] / 2  # ½ μᵀ P μ; the rest of d² is the same for every class
        return torch.softmax(query @ precise.mT - half, dim=2)


@functools.lru_cache(maxsize=4)  # `embed` is called for many parts of a split
def clamped_released(base: BaseStatistics, sigma: float) -> Tensor:
    """(D, D) sphering by the released program's matrix, with scalings of at most σ in all of the space."""
    with torch.inference_mode(False):
        scalings, vectors = torch.linalg.eigh(released_sphering(base))
        clamped: Tensor = vectors * scalings.clamp(0.0, sigma)
    return clamped


def ridge_precision(tasks: TaskBatch, means: Tensor, *, alone: float) -> Tensor:
    """P μ (B, K, D) of the class means, with the precision matrix P of the support.

    With rows C (S, D) of the support, each minus the mean of its class, and t = tr(CᵀC) / (S − 1), the estimate of
    Kubokawa and Srivastava is P = D (CᵀC + t I)⁻¹ = (D / t) (I − Cᵀ (C Cᵀ + t I)⁻¹ C). Where no class has two images,
    C is 0, and P is `alone` times I: 0 as in Wang et al., or 1, which leaves the nearest class mean.
    """
    support = support_and_query(tasks)[0]
    centred = support - tasks.one_hot().mT @ means  # (B, S, D) C
    samples, dimension = support.shape[1:]
    few = samples <= dimension
    products = centred @ centred.mT if few else centred.mT @ centred  # (B, S, S) or (B, D, D)
    trace = products.diagonal(dim1=1, dim2=2).sum(dim=1)[:, None, None] / max(1, samples - 1)  # t
    known = trace > torch.finfo(support.dtype).eps
    lift = torch.where(known, trace, 1.0)
    identity = torch.eye(products.shape[1], dtype=products.dtype, device=products.device)
    factor = torch.linalg.cholesky_ex(products + lift * identity)[0]
    if few:
        inner = torch.cholesky_solve(centred @ means.mT, factor)  # (B, S, K)
        precise = (means - inner.mT @ centred) / lift
    else:
        precise = torch.cholesky_solve(means.mT, factor).mT
    return torch.where(known, dimension * precise, alone * means)
