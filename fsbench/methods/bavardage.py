"""BAVARDAGE: adaptive dimension reduction and variational inference.

Hu, Pateux, Gripon: "Adaptive Dimension Reduction and Variational Inference for Transductive Few-Shot
Classification", 2022. Equation numbers are the article's; 6 and later are in its appendix.

The dimension reduction needs no projection here. Centroids in the reduced space are the projections of the centroids
m'_k of Eq. 8, because both use the same weights (γ = β_o). The subspace of Eq. 9 contains every difference
m'_k − m'_j, so for each sample

    ‖u_n − m_k‖² = ‖x'_n − m'_k‖² − r_n,    r_n: squared distance of x'_n from the affine span of the centroids,

and r_n, the same for every class, cancels when Eq. 5 is normalised. What PLDA adds is the sphering of Eq. 7.

Two variants are not the article's; `docs/methods.md` derives them. `transport` knows that the classes are equally
frequent among the queries, and maximises the same lower bound over assignments with Σ_q o_qk = Q/K: the E step becomes
o_qk ∝ ρ_qk e^(v_k), with the v_k that give every class its size. `weighted` tempers the evidence of the queries: one
counts λ of a labelled image in the centroids.
"""

from __future__ import annotations

import functools
import math
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from fsbench.errors import FsbenchError
from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import (
    Context,
    Count,
    Method,
    MethodInfo,
    NonNegative,
    Positive,
    Share,
    Variants,
    prepared,
    require_base,
)
from fsbench.methods.centroids import Clusters, InnerProducts, products_of
from fsbench.methods.soft_kmeans import over_classes, preset_of, soft_kmeans, temperature_of
from fsbench.methods.transport import EqualSizes
from fsbench.tasks.batch import TaskBatch, gram, product

ARTICLE_UNITS = {"t_vb": "tau", "s_max": "sigma"}  # options in the article's units, and the parameters they set
SAMPLER = "sampler"  # the word for the α that the tasks are drawn with
RIDGE = 1e-6  # the released program adds it to its matrix
# The variant `weighted`, chosen on val classes: see docs/methods.md.
WEIGHTED: dict[str, Any] = {
    "query_weight": "auto", "start": "product", "size_terms": 4.0, "prior_mean": "task", "beta": 7.0,
}  # fmt: skip
TAU = {"free": 0.5, "equal": 0.3, "auto": 0.5}  # by class sizes
TRUST = {"free": 0.4, "equal": 0.8}  # λ of 15 queries per class
CALIBRATION = {"free": (2.8, 2.0), "equal": (1.7, 1.2), "auto": (2.8, 2.0)}  # below five shots, and from five on
START_TAU = 0.1  # τ of the nearest class mean in the start `product`
_OUTSIDE = 1e-12  # squared length along a direction, relative to the longest, below which no sample has a part of it


class Bavardage(Method):
    """Variational Bayes on sphered features, started from Soft-KMEANS (Algorithm 1)."""

    # `article`: one sphering from S_w of Eq. 6 for all tasks, α_k counts the support. `released`: as the authors'
    # program: a class-weighted scatter, scalings clamped inside the span of each task, α_k without the support.
    # `transport`: as `article`, with classes of equal size in every E step. `weighted`: as `article`, with values of
    # `WEIGHTED`, and equal sizes where they are known or likely; `configure` sets them.
    variant: Literal["article", "released", "transport", "weighted"] = "article"
    # `plda`: everything. `vb`: without sphering, every direction scaled by σ alone (the second row of the article's
    # ablation).
    stage: Literal["plda", "vb"] = "plda"
    t_km: Positive = 50.0  # temperature of Soft-KMEANS
    # precision of the sphered features, T_vb in units of images per base class; `learned` estimates it in every M step
    tau: Positive | Literal["learned"] = 0.3
    sigma: Annotated[float, Field(gt=0)] = 20.0  # largest scaling, s_max in units of 1/√(images per base class)
    mixing: Literal["learned", "uniform"] = "learned"  # whether mixing weights are `learned` (Eq. 3) or `uniform`.
    # α_o of the Dirichlet prior. The option `sampler` sets it to the α that the tasks are drawn with.
    prior_alpha: Positive = 2.0
    beta: NonNegative = 10.0  # β_o, also γ of Eq. 8.
    steps: Count = 5  # iterations of variational Bayes
    km_steps: Count = 5  # iterations of Soft-KMEANS
    # The following are not the article's, their defaults are.
    # λ, what a query counts in the centroids, a labelled image 1. `auto`: min(1, 0.4 √(15 K / Q) ω^e); equal sizes: 0.8
    query_weight: Share | Literal["auto"] = 1.0
    # `product`: Soft-KMEANS times the nearest class mean of the sphered support
    start: Literal["soft-kmeans", "product"] = "soft-kmeans"
    # c: with more than c + 1 classes, what favours large ones counts less, by ω = min(1, c/(K−1)), and what is not
    # labelled too: β_o and `auto` λ by ω^e; e is ½ with one shot, equal sizes, or around the base mean, else more
    size_terms: Annotated[float, Field(gt=0)] = math.inf
    # m_o: the `base` mean, 0; or the mean of the queries, as far as the `task` lies off the base mean
    prior_mean: Literal["base", "task"] = "base"
    # class sizes among the queries: `free`, `equal`, or `auto`, which are equal ones in tasks that look like it
    sizes: Literal["free", "equal", "auto"] = "free"

    later = (*Method.later, "query_weight", "start", "size_terms", "prior_mean", "sizes")
    info = MethodInfo(
        "bavardage", "BAVARDAGE", 'Hu, Pateux, Gripon, "Adaptive Dimension Reduction and Variational Inference…", 2022',
        url="https://arxiv.org/abs/2209.08527", order=220, prior="free",
        needs_base=True,
        prior_by={"mixing": {"uniform": "uniform"}, "variant": {"transport": "uniform"}, "sizes": {"equal": "uniform"}},
        variants=Variants("variant", ("article", "released", "transport", "weighted"),
                          in_all=("released", "transport", "weighted")),
        grid={"t_km": (10.0, 50.0), "tau": (0.1, 0.2, 0.3, 0.5, 1.0), "sigma": (10.0, 15.0, 20.0, 30.0, 50.0)},
        published={"BAVARDAGE": {"stage": ("plda",), "variant": ("article", "released")},
                   "Soft-KMEANS+VB": {"stage": ("vb",), "variant": ("article", "released")}},
        starts_from="soft-kmeans", version=5,  # 4: `weighted` had e = ½ always; equal sizes were not where nearly hard
    )  # fmt: skip

    @classmethod
    def configure(cls, context: Context, **options: Any) -> Self:
        """Resolve defaults and units: τ = T_vb / n̄ and σ = s_max √n̄, with n̄ images per base class."""
        article_units = {name: options.pop(name) for name in ARTICLE_UNITS if name in options}
        if any(ARTICLE_UNITS[name] in options for name in article_units):
            raise FsbenchError(
                "T_vb and s_max are in the article's units, τ and σ are scale-free: a value was given in both.",
                "Use either t_vb and s_max, or tau and sigma.",
            )
        for name, value in article_units.items():
            images = require_base(context.base, cls.info.title).images_per_class
            options[ARTICLE_UNITS[name]] = value / images if name == "t_vb" else value * images**0.5
        if options.get("prior_alpha") == SAMPLER:
            if context.alpha is None:
                raise FsbenchError("How these tasks were drawn is not known.", "Give prior_alpha as a number.")
            options["prior_alpha"] = context.alpha
        if options.get("variant") == "weighted":
            known = "equal" if context.balanced else "free" if context.alpha else "auto"
            sizes = known if options.get("sizes") not in TAU else options["sizes"]
            chosen = {"sizes": sizes, "tau": TAU[sizes], "calibration": CALIBRATION[sizes][context.shots >= 5]}
            options = {**WEIGHTED, **chosen, **options}
        return super().configure(context, **options)

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """The scale-free defaults, or the preset that the context asks for."""
        mixing = "uniform" if context.balanced else "learned"
        chosen: dict[str, Any] = {"t_km": temperature_of(context), "mixing": mixing}
        if preset := preset_of(context):
            images = require_base(context.base, cls.info.title).images_per_class
            chosen.update(tau=preset.t_vb / images, sigma=preset.s_max * images**0.5)
        return chosen

    def embed(self, features: Tensor, base: BaseStatistics | None) -> dict[str, Tensor]:
        """CL2N rows (M, D), and the same sphered."""
        statistics = require_base(base, self.info.title)
        x = prepared("CL2N", features, base, self.info.title)
        return {"plain": x, "sphered": x @ self._sphering(statistics).to(x)}

    def _sphering(self, base: BaseStatistics) -> Tensor:
        """(D, D) matrix that row vectors are multiplied with."""
        if self.stage == "vb":
            return self.sigma * torch.eye(len(base.mean), dtype=torch.float64)
        if self.variant == "released":
            return released_sphering(base)
        return sphering(base.eigenvalues, base.eigenvectors, self.sigma)

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Algorithm 1 for every task of the batch: assignments of the queries after the last step, (B, Q, K).

        Departs from Algorithm 1: the assignments of the support stay one-hot, as in the released program.
        """
        plain, sphered = (Clusters(products, tasks.one_hot()) for products in self._products(tasks))
        assigned = self._solved(plain, sphered, self.variant == "transport" or self.sizes == "equal")
        if self.sizes == "auto":
            assigned = torch.where(look_equal(assigned), self._solved(plain, sphered, equal=True), assigned)
        return assigned.mT

    def _solved(self, plain: Clusters, sphered: Clusters, equal: bool) -> Tensor:
        """Assignments o (B, K, Q) after Soft-KMEANS and the steps of VB, with classes of equal size or not."""
        normalised = EqualSizes() if equal else over_classes
        assigned = soft_kmeans(plain, self.t_km, self.km_steps, normalised)
        share = off_centre(sphered, assigned) if self.prior_mean == "task" else None
        if self.start == "product":
            normalised = EqualSizes() if equal else over_classes  # the potentials so far are in the assignments
            assigned = normalised(_with_nearest_mean(sphered, assigned))
        flat, large = self._trust_in_rest(sphered, assigned, None if equal else share), self._trust_in_sizes(assigned)
        (ways, queries), prior = assigned.shape[1:], self.beta * flat  # β_o
        # λ: the trust in queries falls with the root of their number, per class up to c + 1 classes
        weight = flat * (TRUST["equal" if equal else "free"] * math.sqrt(15 * ways / queries))
        weight = weight.clamp_max(1.0) if self.query_weight == "auto" else torch.full_like(flat, self.query_weight)
        for _ in range(self.steps):
            assigned = normalised(self._logits(sphered, assigned, weight, prior, large, share))
        return assigned

    def _products(self, tasks: TaskBatch) -> tuple[InnerProducts, InnerProducts]:
        """Inner products of CL2N samples, and of the same sphered."""
        if self.variant != "released" or self.stage == "vb":
            return products_of(tasks, "plain"), products_of(tasks, "sphered")
        _, samples, dimension = tasks.shape
        if samples > dimension:
            x = tasks.space("plain")
            return products_of(tasks, "plain"), clamp_within_space(x, tasks.space("sphered"), self.sigma)
        plain = tasks.gram("plain")  # (B, N, N)
        sphered = clamp_within_span(plain, tasks.gram("sphered"), self.sigma)
        return InnerProducts(plain), InnerProducts(sphered)

    def _logits(
        self, clusters: Clusters, assigned: Tensor, weight: Tensor, prior: Tensor, large: Tensor, share: Tensor | None
    ) -> Tensor:
        """The M step, Eq. 3 with query weight λ and β_o, and the E step before it is normalised, (B, K, Q).

        m_o is 0, or the share (B, 1, 1) of the mean of the queries. The E step is Eq. 5 without the terms that are the
        same for every class, and those that favour large classes have the weight ω (B, 1, 1).
        """
        dimension, weighted = assigned.shape[1] - 1, weight * assigned  # d = K − 1, and λ o
        beta = prior + clusters.count(weighted)  # (B, K, 1)
        if share is not None:
            weighted = weighted + prior * share / assigned.shape[2]  # with β_o m_o
        similarity, squared = clusters.centroids(weighted, beta)  # ⟨x'_q, m'_k⟩ and ‖m'_k‖²
        samples = clusters.support.shape[2] + weight * assigned.shape[2]
        precision = _learned_precision(clusters, weighted, beta, samples) if isinstance(self.tau, str) else self.tau
        sizes = self._log_mixing(clusters, clusters.count(assigned)) - dimension / (2 * beta)
        return large * sizes + precision * (similarity - squared / 2)

    def _trust_in_rest(self, clusters: Clusters, assigned: Tensor, share: Tensor | None) -> Tensor:
        """ω^e (B, 1, 1), e = ½ + share (S/(S+1) − ½) n, with n = 1 / Σ_k o_qk², the number of classes of a query."""
        (ways, support), flat = clusters.support.shape[1:], assigned.new_full((1, 1, 1), self._flat(assigned.shape[1]))
        spread = assigned.square().sum(dim=1, keepdim=True).reciprocal().mean(dim=2, keepdim=True)
        return flat ** (0.5 + (support / (support + ways) - 0.5) * (0.0 if share is None else share) * spread)

    def _flat(self, ways: int) -> float:
        """ω of a task whose classes are all there: 1 up to c + 1 classes, then c / (K − 1)."""
        return min(1.0, self.size_terms / max(1, ways - 1))

    def _trust_in_sizes(self, assigned: Tensor) -> Tensor:
        """ω, (B, 1, 1), from the assignments (B, K, Q) of the start.

        Where class shares p are further from equal than the prior expects, KL(p ‖ 1/K) / E KL(π ‖ 1/K) > 1, classes
        are likely to be absent, and sizes tell more: ω grows by the excess, up to 2. With more than c queries per class
        it grows less, as the queries show themselves which classes are there.
        """
        if math.isinf(self.size_terms):
            return assigned.new_ones(1, 1, 1)
        ways, queries = assigned.shape[1:]
        values = self.prior_alpha + 1, ways * self.prior_alpha + 1
        one, every = (torch.digamma(assigned.new_full((1, 1, 1), value)) for value in values)
        excess = (divergence_from_equal(assigned) / (one - every + math.log(ways)) - 1).clamp_min(0.0)
        few = min(1.0, self.size_terms * ways / queries)
        return torch.clamp_max(self._flat(ways) + few * excess, 2.0)

    def _log_mixing(self, clusters: Clusters, count: Tensor) -> Tensor:
        """E[log π_k] = ψ(α_k) − ψ(Σ_j α_j) of Eq. 5 with α_k = α_o + N_k of Eq. 3, (B, K, 1)."""
        if self.mixing == "uniform":
            # Departs from Eq. 3: nothing is estimated, as behind the published balanced numbers.
            return torch.zeros_like(count)
        alpha = self.prior_alpha + count
        if self.variant == "released":
            alpha = alpha - clusters.shots  # Departs from Eq. 3: the support is not counted.
        return torch.digamma(alpha) - torch.digamma(alpha.sum(dim=1, keepdim=True))


def sphering(values: Tensor, vectors: Tensor, sigma: float) -> Tensor:
    """Eq. 7: (D, D) scalings λ^(-1/2), at most σ, of eigenvectors in columns; the largest eigenvalue comes first."""
    floor = (values[0] * 1e-12).clamp_min(1e-16)  # so that a direction without scatter stays finite
    # Departs from the T = S R printed before Eq. 7: with eigenvectors in the columns of R it is S Rᵀ that decorrelates.
    return vectors * values.clamp_min(floor).rsqrt().clamp_max(sigma)


def off_centre(clusters: Clusters, assigned: Tensor) -> Tensor:
    """How far a task lies off the base mean, 0 to 1 (B, 1, 1), from assignments (B, K, Q): a James–Stein factor.

    If centroids were spread around the base mean, 0, without preference, the squared length of the sum of all samples
    would be the sum of those of the classes, on average. What exceeds it is the task's own mean.
    """
    everything = Clusters(clusters.products, clusters.support.sum(dim=1, keepdim=True))  # as one class
    one = torch.ones_like(assigned[:, :1])
    _, of_classes = clusters.centroids(assigned, torch.ones_like(clusters.shots))  # (B, K, 1) ‖Σ_n o_nk x_n‖²
    _, of_all = everything.centroids(one, one[:, :, :1])  # (B, 1, 1) ‖Σ_n x_n‖²
    spread = of_classes.sum(dim=1, keepdim=True) / of_all.clamp_min(torch.finfo(of_all.dtype).tiny)
    return (1 - spread).clamp_min(0.0)


def _with_nearest_mean(clusters: Clusters, assigned: Tensor) -> Tensor:
    """Logits of the product of assignments (B, K, Q) and those of the nearest class mean of the support."""
    similarity, squared = clusters.means()
    return assigned.clamp_min(torch.finfo(assigned.dtype).tiny).log() + START_TAU * (similarity - squared / 2)


def look_equal(assigned: Tensor) -> Tensor:
    """Whether assignments (B, K, Q) are compatible with classes of equal size, (B, 1, 1).

    They are if G = 2 Q KL(p ‖ 1/K), of the class shares p, is below its expectation for such classes, K − 1.
    """
    _, ways, queries = assigned.shape
    return 2 * queries * divergence_from_equal(assigned) < ways - 1


def divergence_from_equal(assigned: Tensor) -> Tensor:
    """KL(p ‖ 1/K) of the class shares p of assignments (B, K, Q), (B, 1, 1)."""
    shares = assigned.mean(dim=2, keepdim=True)  # (B, K, 1)
    return torch.xlogy(shares, assigned.shape[1] * shares).sum(dim=1, keepdim=True)


def _learned_precision(clusters: Clusters, assigned: Tensor, beta: Tensor, samples: Tensor) -> Tensor:
    """τ = d N / Σ_nk o_nk ‖u_n − m_k‖², per task (B, 1, 1): the precision the article keeps fixed.

    Here the distances within the reduced space itself are needed, so the samples are projected: with c_j = m'_j −
    m'_0, j = 1..K-1, and their Gram matrix C = ℓ ℓᵀ, u_n = ℓ⁻¹ (⟨x'_n, c_j⟩)_j. N counts queries with their weight.
    """
    assigned = torch.cat([clusters.support, assigned], dim=2)  # (B, K, N)
    centroids = assigned / beta  # as weights over the samples
    similarity = clusters.products(centroids)  # (B, K, N) ⟨x'_n, m'_k⟩
    dimension = similarity.shape[1] - 1
    h = similarity[:, 1:] - similarity[:, :1]  # (B, K-1, N) ⟨x'_n, c_j⟩
    differences = centroids[:, 1:] - centroids[:, :1]  # (B, K-1, N)
    factor = cholesky(h @ differences.mT, h.dtype)  # (B, K-1, K-1) ℓ
    u: Tensor = torch.linalg.solve_triangular(factor, h, upper=False)  # (B, K-1, N)
    m = centroids @ u.mT  # (B, K, K-1)
    distance = u.square().sum(dim=1, keepdim=True) - 2 * m @ u + m.square().sum(dim=2, keepdim=True)  # (B, K, N)
    spread = (assigned * distance).sum(dim=(1, 2), keepdim=True)  # (B, 1, 1)
    return dimension * samples * spread.clamp_min(torch.finfo(spread.dtype).eps * samples).reciprocal()


@functools.lru_cache(maxsize=4)  # `embed` is called for many parts of a split
def released_sphering(base: BaseStatistics) -> Tensor:
    """The symmetric M^(-1/2) of the released program's matrix M (D, D); its clamp follows per task.

    Departs from Eq. 6: class-weighted, with a ridge.
    """
    with torch.inference_mode(False):  # whoever uses it next may differentiate
        ridge = RIDGE * torch.eye(len(base.mean), dtype=torch.float64)
        values, vectors = torch.linalg.eigh((base.class_weighted + ridge) / base.images_per_class)
        root: Tensor = (vectors * values.clamp_min(values.max() * 1e-14).rsqrt()) @ vectors.mT
    return root


def cholesky(matrix: Tensor, precision: torch.dtype) -> Tensor:
    """Cholesky factor of a positive semi-definite matrix (B, n, n), lifted by a small multiple of its trace.

    The lift makes singular matrices (duplicate samples, coincident centroids) factorise, and an all-zero one too. It is
    just above the rounding errors of the entries, which were computed in the given precision.
    """
    mean = matrix.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[:, None, None]
    lift = 10 * torch.finfo(precision).eps * mean + torch.finfo(matrix.dtype).tiny ** 0.5
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    factor: Tensor = torch.linalg.cholesky_ex(matrix + lift * identity)[0]
    return factor


def clamp_within_span(plain: Tensor, whitened: Tensor, limit: float) -> Tensor:
    """Gram matrix (B, N, N) of the task's samples, sphered with scalings that are clamped inside their own span.

    With G = X Xᵀ = L Lᵀ (`plain`) and A = X S_w⁻¹ Xᵀ (`whitened`), the eigenvalues of L⁻¹ A L⁻ᵀ are the squared
    scalings of the directions of the span; with their minimum with `limit`², G' = L min(L⁻¹ A L⁻ᵀ, limit²) Lᵀ.
    """
    exact = _with_float64(plain.device)
    factor = cholesky(plain.to(exact).double(), plain.dtype)  # L
    half = torch.linalg.solve_triangular(factor, whitened.to(exact).double(), upper=False)  # L⁻¹ A
    squared = torch.linalg.solve_triangular(factor, half.mT, upper=False)  # L⁻¹ A L⁻ᵀ
    clamped = (clamp_eigenvalues if exact.type == "cpu" else clamp_by_products)(factor, squared, limit**2)
    return clamped.to(plain.dtype).to(plain.device)


def clamp_within_space(plain: Tensor, whitened: Tensor, limit: float) -> InnerProducts:
    """The same for more samples X than features (B, N, D), by matrices (D, D); `whitened` is X S_w^(-½).

    With Xᵀ X = V Λ Vᵀ, where V has the directions of the span alone, Vᵀ S_w^(-½) = Λ⁻¹ Vᵀ Xᵀ X S_w^(-½), and
    G' = X V min(Vᵀ S_w⁻¹ V, limit²) Vᵀ Xᵀ.
    """
    exact = _with_float64(plain.device)
    x, y = (rows.to(exact).double() for rows in (plain, whitened))
    values, vectors = torch.linalg.eigh(gram(x.mT))
    within = values > _OUTSIDE * values[:, -1:]  # (B, D)
    directions = vectors * within[:, None, :]  # V
    scalings = product(directions.mT, product(x.mT, y)) / torch.where(within, values, 1.0)[:, :, None]  # Vᵀ S_w^(-½)
    clamp = clamp_eigenvalues if exact.type == "cpu" else clamp_by_products
    clamped = clamp(directions, gram(scalings), limit**2)  # (B, D, D)
    return InnerProducts(plain @ clamped.to(plain.dtype).to(plain.device), plain.mT)


def _with_float64(device: torch.device) -> torch.device:
    return torch.device("cpu") if device.type == "mps" else device


def clamp_eigenvalues(factor: Tensor, matrix: Tensor, limit: float) -> Tensor:
    """L min(M, c) Lᵀ, of a matrix L and a positive semi-definite M (B, n, n), with the minimum on M's eigenvalues."""
    values, vectors = torch.linalg.eigh(matrix)
    return gram(product(factor, vectors) * values.clamp(0.0, limit).sqrt()[:, None, :])


_OPENING = (3.4445, -4.7750, 2.0315)  # Jordan et al., "Muon", 2024: small values grow fast, and end within 0.7 … 1.2
_CLOSING = (15 / 8, -10 / 8, 3 / 8)  # Newton–Schulz of fifth order: what is near 1 gets there
_STEPS = (*(_OPENING,) * 14, *(_CLOSING,) * 4)


def clamp_by_products(factor: Tensor, matrix: Tensor, limit: float) -> Tensor:
    """The same by matrix products alone, which suits GPUs, where eigenvalues of many small matrices are slow.

    min(M, c) = ½ (M + c I − |M − c I|), |X| = X sign(X), and sign(X) is the limit of odd polynomials in X / ‖X‖.
    """
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    shifted = matrix - limit * identity
    bound = shifted.abs().sum(dim=2).amax(dim=1)[:, None, None]  # ‖X‖∞, at least the largest eigenvalue
    sign = shifted / bound.clamp_min(torch.finfo(matrix.dtype).tiny)
    for linear, cubic, quintic in _STEPS:
        square = sign @ sign
        sign = (linear * identity + cubic * square + quintic * square @ square) @ sign
    minimum: Tensor = (matrix + limit * identity - shifted @ sign) / 2
    return factor @ minimum @ factor.mT
