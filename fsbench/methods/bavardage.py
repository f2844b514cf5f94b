"""BAVARDAGE: adaptive dimension reduction and variational inference.

Hu, Pateux, Gripon: "Adaptive Dimension Reduction and Variational Inference for Transductive Few-Shot
Classification", 2022. Equation numbers are the article's; 6 and later are in its appendix.

The dimension reduction needs no projection here. Centroids in the reduced space are the projections of the centroids
m'_k of Eq. 8, because both use the same weights (γ = β_o). The subspace of Eq. 9 contains every difference
m'_k − m'_j, so for each sample

    ‖u_n − m_k‖² = ‖x'_n − m'_k‖² − r_n,    r_n: squared distance of x'_n from the affine span of the centroids,

and r_n, the same for every class, cancels when Eq. 5 is normalised. What PLDA adds is the sphering of Eq. 7.

The variant `transport` is not the article's. It knows that the classes are equally frequent among the queries, and
maximises the same lower bound over assignments with Σ_q o_qk = Q/K: the E step becomes o_qk ∝ ρ_qk e^(v_k), with the
v_k that give every class its size. `docs/methods.md` derives it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from fsbench.errors import FsbenchError
from fsbench.methods import presets
from fsbench.methods.base import (
    Context,
    MethodInfo,
    require_amount,
    require_base,
    require_count,
    require_weight,
)
from fsbench.methods.catalog import INFOS
from fsbench.methods.centroids import CentredRows, Clusters, InnerProducts, products_of
from fsbench.methods.linalg import cholesky, clamp_within_span, inverse_square_root
from fsbench.methods.soft_kmeans import last, over_classes, soft_kmeans
from fsbench.methods.transport import EqualSizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsbench.features.scatter import BaseStatistics
    from fsbench.tasks.batch import TaskBatch

SAMPLER = "sampler"  # the word for the α that the tasks are drawn with
RIDGE = 1e-6  # the released program adds it to its matrix
T = TypeVar("T")
# The released program's sphering, an eigen-decomposition: `embed` is called for many parts of a split.
_released: WeakKeyDictionary[BaseStatistics, Tensor] = WeakKeyDictionary()


class Spaces(NamedTuple, Generic[T]):
    """A thing in each of the two spaces that BAVARDAGE works in."""

    plain: T  # of CL2N features, where Soft-KMEANS finds the first assignments
    sphered: T  # of the same features after the sphering of Eq. 7, where variational Bayes goes on


class Posterior(NamedTuple):
    """What the M step finds for every class; its centroid m_k is known by inner products alone."""

    log_mixing: Tensor  # (B, K, 1) E[log π_k]
    beta: Tensor  # (B, K, 1) β_k
    similarity: Tensor  # (B, K, Q) ⟨x'_q, m'_k⟩
    squared: Tensor  # (B, K, 1) ‖m'_k‖²
    precision: Tensor | float  # τ


def unpack(rows: Tensor) -> Spaces[Tensor]:
    """The rows of both spaces, (…, D) each, from embedded ones (…, 2 D)."""
    return Spaces(*rows.chunk(2, dim=-1))


@dataclass(frozen=True)
class Bavardage(CentredRows):
    """Variational Bayes on sphered features, started from Soft-KMEANS (Algorithm 1).

    Attributes:
        variant: `article`: one sphering from S_w of Eq. 6 for all tasks, α_k counts the support. `released`: as the
            authors' program: a class-weighted scatter, scalings clamped inside the span of each task, α_k without
            the support. `transport`: as `article`, with classes of equal size in every E step.
        stage: `plda`: everything. `vb`: without sphering, every direction scaled by σ alone (the second row of the
            article's ablation).
        t_km: Temperature of Soft-KMEANS.
        tau: Precision of the sphered features, T_vb in units of images per base class; `learned` estimates it in
            every M step.
        sigma: Largest scaling, s_max in units of 1/√(images per base class).
        mixing: Whether mixing weights are `learned` (Eq. 3) or `uniform`.
        prior_alpha: α_o of the Dirichlet prior. The option `sampler` sets it to the α that the tasks are drawn with.
        beta: β_o, also γ of Eq. 8.
        steps: Iterations of variational Bayes.
        km_steps: Iterations of Soft-KMEANS.
    """

    variant: Literal["article", "released", "transport"] = "article"
    stage: Literal["plda", "vb"] = "plda"
    t_km: float = 50.0
    tau: float | Literal["learned"] = presets.TAU
    sigma: float = presets.SIGMA
    mixing: Literal["learned", "uniform"] = "learned"
    prior_alpha: float = 2.0
    beta: float = 10.0
    steps: int = 5
    km_steps: int = 5

    info: ClassVar[MethodInfo] = INFOS["bavardage"]

    def __post_init__(self) -> None:
        words = {
            "variant": ("article", "released", "transport"),
            "stage": ("plda", "vb"),
            "mixing": ("learned", "uniform"),
        }
        for name, known in words.items():
            if getattr(self, name) not in known:
                raise FsbenchError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}.")
        require_amount(t_km=self.t_km, prior_alpha=self.prior_alpha)
        require_weight(beta=self.beta)
        require_count(steps=self.steps, km_steps=self.km_steps)
        if self.tau != "learned":
            require_amount(tau=self.tau)
        if self.sigma != math.inf or self.stage == "vb":  # without a clamp there is still the scatter, but not in `vb`
            require_amount(sigma=self.sigma)

    @classmethod
    def configure(cls, context: Context, **options: Any) -> Self:
        """Resolve defaults and units: τ = T_vb / n̄ and σ = s_max √n̄, with n̄ images per base class."""
        article_units = {name: options.pop(name) for name in presets.ARTICLE_UNITS if name in options}
        if any(presets.ARTICLE_UNITS[name] in options for name in article_units):
            raise FsbenchError(
                "T_vb and s_max are in the article's units, τ and σ are scale-free: a value was given in both.",
                "Use either t_vb and s_max, or tau and sigma.",
            )
        require_amount(**{name: value for name, value in article_units.items() if value != math.inf})
        if options.get("prior_alpha") == SAMPLER:
            if context.alpha is None:
                raise FsbenchError("How these tasks were drawn is not known.", "Give prior_alpha as a number.")
            options["prior_alpha"] = context.alpha
        images = require_base(context.base, cls.info.title).images_per_class
        if "t_vb" in article_units:
            options["tau"] = article_units["t_vb"] / images
        if "s_max" in article_units:
            options["sigma"] = article_units["s_max"] * images**0.5
        return super().configure(context, **options)

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """The scale-free defaults, or the preset that the context asks for."""
        chosen: dict[str, Any] = {
            "t_km": presets.temperature_of(context),
            "mixing": "uniform" if context.balanced else "learned",
        }
        if preset := presets.preset_of(context):
            images = require_base(context.base, cls.info.title).images_per_class
            chosen.update(tau=preset.t_vb / images, sigma=preset.s_max * images**0.5)
        return chosen

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """CL2N rows and the same sphered, side by side (M, 2 D): tasks are gathered from one table."""
        statistics = require_base(base, self.info.title)
        x = super().embed(features, base)
        return torch.cat([x, x @ self._sphering(statistics).to(x)], dim=-1)

    def _sphering(self, base: BaseStatistics) -> Tensor:
        """(D, D) matrix that row vectors are multiplied with."""
        identity = torch.eye(len(base.mean), dtype=torch.float64)
        if self.stage == "vb":
            return self.sigma * identity
        if self.variant == "released":
            # Departs from Eq. 6: class-weighted, with a ridge. The clamp follows per task, in `classify`.
            if base not in _released:
                with torch.inference_mode(False):  # whoever uses it next may differentiate
                    matrix = (base.class_weighted + RIDGE * identity) / base.images_per_class
                    _released[base] = inverse_square_root(matrix)
            return _released[base]
        floor = (base.eigenvalues[0] * 1e-12).clamp_min(1e-16)  # so that a direction without scatter stays finite
        scaling = base.eigenvalues.clamp_min(floor).rsqrt()  # Eq. 7
        # Departs from the T = S R printed before Eq. 7: with eigenvectors in the columns of R it is S Rᵀ that
        # decorrelates.
        return base.eigenvectors * scaling.clamp_max(self.sigma)

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Assignments of the queries after the last step, (B, Q, K)."""
        return last(self.assignments(tasks)).mT

    def assignments(self, tasks: TaskBatch) -> Iterator[Tensor]:
        """Algorithm 1 for every task of the batch: o (B, K, Q) after every step of Soft-KMEANS, then of VB.

        Departs from Algorithm 1: the assignments of the support stay one-hot, as in the released program.
        """
        products, support = self.products(tasks), tasks.one_hot()
        plain, sphered = Clusters(products.plain, support), Clusters(products.sphered, support)
        normalised = EqualSizes() if self.variant == "transport" else over_classes
        for assigned in soft_kmeans(plain, self.t_km, self.km_steps, normalised):
            yield assigned
        for _ in range(self.steps):
            assigned = normalised(self._e_step_logits(self._m_step(sphered, assigned)))
            yield assigned

    def products(self, tasks: TaskBatch) -> Spaces[InnerProducts]:
        """Inner products of the samples of tasks in each space."""
        if self.variant != "released" or self.stage == "vb":
            return Spaces(products_of(tasks, 0, 2), products_of(tasks, 1, 2))
        plain = tasks.gram(0, 2)  # (B, N, N)
        return Spaces(InnerProducts(plain), InnerProducts(clamp_within_span(plain, tasks.gram(1, 2), self.sigma)))

    def _m_step(self, clusters: Clusters, assigned: Tensor) -> Posterior:
        """Eq. 3 with m_o = 0, from the assignments (B, K, Q) of the queries."""
        count = clusters.count(assigned)  # (B, K, 1) N_k
        beta = self.beta + count
        precision = _learned_precision(clusters, assigned, beta) if isinstance(self.tau, str) else self.tau
        return Posterior(self._log_mixing(clusters, count), beta, *clusters.centroids(assigned, beta), precision)

    def _e_step_logits(self, posterior: Posterior) -> Tensor:
        """Eq. 5 without the terms that are the same for every class, (B, K, Q): the E step before it is normalised."""
        log_mixing, beta, similarity, squared, precision = posterior
        dimension = similarity.shape[1] - 1  # d = K − 1
        return log_mixing - dimension / (2 * beta) + precision * (similarity - squared / 2)

    def _log_mixing(self, clusters: Clusters, count: Tensor) -> Tensor:
        """E[log π_k] = ψ(α_k) − ψ(Σ_j α_j) of Eq. 5 with α_k = α_o + N_k of Eq. 3, (B, K, 1)."""
        if self.mixing == "uniform":
            # Departs from Eq. 3: nothing is estimated, as behind the published balanced numbers.
            return torch.zeros_like(count)
        alpha = self.prior_alpha + count
        if self.variant == "released":
            alpha = alpha - clusters.shots  # Departs from Eq. 3: the support is not counted.
        return torch.digamma(alpha) - torch.digamma(alpha.sum(dim=1, keepdim=True))


def _learned_precision(clusters: Clusters, assigned: Tensor, beta: Tensor) -> Tensor:
    """τ = d N / Σ_nk o_nk ‖u_n − m_k‖², per task (B, 1, 1): the precision the article keeps fixed.

    Here the distances within the reduced space itself are needed, so the samples are projected: with c_j = m'_j −
    m'_0, j = 1..K-1, and their Gram matrix C = ℓ ℓᵀ, u_n = ℓ⁻¹ (⟨x'_n, c_j⟩)_j.
    """
    assigned = torch.cat([clusters.support, assigned], dim=2)  # (B, K, N)
    centroids = assigned / beta  # as weights over the samples
    similarity = clusters.products(centroids)  # (B, K, N) ⟨x'_n, m'_k⟩
    dimension, samples = similarity.shape[1] - 1, similarity.shape[2]
    h = similarity[:, 1:] - similarity[:, :1]  # (B, K-1, N) ⟨x'_n, c_j⟩
    differences = centroids[:, 1:] - centroids[:, :1]  # (B, K-1, N)
    factor = cholesky(h @ differences.mT, h.dtype)  # (B, K-1, K-1) ℓ
    u: Tensor = torch.linalg.solve_triangular(factor, h, upper=False)  # (B, K-1, N)
    m = centroids @ u.mT  # (B, K, K-1)
    distance = u.square().sum(dim=1, keepdim=True) - 2 * m @ u + m.square().sum(dim=2, keepdim=True)  # (B, K, N)
    spread = (assigned * distance).sum(dim=(1, 2), keepdim=True)  # (B, 1, 1)
    return dimension * samples / spread.clamp_min(torch.finfo(spread.dtype).eps * samples)
