"""Linear algebra on batches of small matrices, and assignments to classes of equal size."""

from __future__ import annotations

import torch
from torch import Tensor


def inverse_square_root(matrix: Tensor) -> Tensor:
    """The symmetric M^(-1/2) of a positive definite matrix (D, D)."""
    values, vectors = torch.linalg.eigh(matrix)
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


def clamp_within_span(gram: Tensor, whitened: Tensor, limit: float) -> Tensor:
    """Gram matrix (B, N, N) of the task's samples, sphered with scalings that are clamped inside their own span.

    With G = X Xᵀ = L Lᵀ (`gram`) and A = X S_w⁻¹ Xᵀ (`whitened`), the eigenvalues of L⁻¹ A L⁻ᵀ are the squared
    scalings of the directions of the span; with their minimum with `limit`², G' = L min(L⁻¹ A L⁻ᵀ, limit²) Lᵀ.
    """
    exact = torch.device("cpu") if gram.device.type == "mps" else gram.device  # MPS has no float64
    factor = cholesky(gram.to(exact).double(), gram.dtype)  # L
    half = torch.linalg.solve_triangular(factor, whitened.to(exact).double(), upper=False)  # L⁻¹ A
    squared = torch.linalg.solve_triangular(factor, half.mT, upper=False)  # L⁻¹ A L⁻ᵀ
    spectral_minimum = minimum_by_eigenvalues if exact.type == "cpu" else minimum_by_products
    clamped: Tensor = factor @ spectral_minimum(squared, limit**2) @ factor.mT
    return clamped.to(gram.dtype).to(gram.device)


def minimum_by_eigenvalues(matrix: Tensor, limit: float) -> Tensor:
    """The minimum of a positive semi-definite matrix (B, n, n) and a number, taken on the eigenvalues."""
    values, vectors = torch.linalg.eigh(matrix)
    minimum: Tensor = (vectors * values.clamp(0.0, limit)[:, None, :]) @ vectors.mT
    return minimum


_OPENING = (3.4445, -4.7750, 2.0315)  # Jordan et al., "Muon", 2024: small values grow fast, and end within 0.7 … 1.2
_CLOSING = (15 / 8, -10 / 8, 3 / 8)  # Newton–Schulz of fifth order: what is near 1 gets there
_STEPS = (*(_OPENING,) * 14, *(_CLOSING,) * 4)


def minimum_by_products(matrix: Tensor, limit: float) -> Tensor:
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
    return (matrix + limit * identity - shifted @ sign) / 2


def equal_sizes(logits: Tensor, potentials: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Assign Q samples to K classes of equal size c = Q/K, which need not be a whole number: Sinkhorn's limit.

    The plan P with columns Σ_k P_kq = 1 and rows Σ_q P_kq = c is P = softmax_k(l + v) for a vector v, unique up to a
    constant: the minimum of the convex function

        f(v) = Σ_q log Σ_k exp(l_kq + v_k) − c Σ_k v_k,    ∇f = Σ_q P_q − c,    ∇²f = diag(Σ_q P_q) − P Pᵀ.

    Sinkhorn's iteration descends it slowly, in hundreds of rounds when assignments are nearly hard. Newton's direction
    Δ needs a K×K system and a handful of rounds. The third derivative along Δ is at most ρ = max Δ − min Δ times the
    second, so a step of length log(1 + ρ)/ρ never overshoots, from any start.

    Args:
        logits: l, (B, K, Q).
        potentials: v to start from, (B, K, 1); zeros, or those of a similar problem.
        steps: Newton steps. About 10 converge from zeros, 4 from the potentials of a similar problem.

    Returns:
        The plan P, (B, K, Q), and its potentials (B, K, 1). The shares of a sample add up to 1 exactly, the sizes are
        equal as far as the steps have converged.
    """
    _, K, Q = logits.shape
    for _ in range(steps):
        potentials = potentials + _newton_step(torch.softmax(logits + potentials, dim=1), Q / K)
    return torch.softmax(logits + potentials, dim=1), potentials


def given_sizes(logits: Tensor, sizes: Tensor, present: Tensor, steps: int) -> Tensor:
    """The same for classes of given sizes (B, K, 1), some of them empty, and for the samples that are present.

    Args:
        logits: l, (B, K, Q).
        sizes: Their sum is the number of samples that are present.
        present: (B, 1, Q), 1 or 0.
        steps: Newton steps, from where one round of Sinkhorn's iteration ends.

    Returns:
        The plan P, (B, K, Q), for all samples.
    """
    absent = torch.where(present > 0, 0.0, -torch.inf)  # (B, 1, Q)
    mass = torch.logsumexp(torch.log_softmax(logits, dim=1) + absent, dim=2, keepdim=True)  # (B, K, 1)
    start = sizes.clamp_min(1e-12).log() - torch.where(mass.isfinite(), mass, 0.0)
    potentials = torch.where(sizes > 0, start, -1e4)
    for _ in range(steps):
        potentials = potentials + _newton_step(torch.softmax(logits + potentials, dim=1) * present, sizes[:, :, 0])
    return torch.softmax(logits + potentials, dim=1)


def _newton_step(plan: Tensor, wanted: Tensor | float) -> Tensor:
    """A step of the potentials, (B, K, 1), from the plan (B, K, Q) that they give towards the sizes wanted, (B, K)."""
    _, K, Q = plan.shape
    lift = 10 * torch.finfo(plan.dtype).eps * Q  # above the rounding errors of ∇²f, so that it factorises
    sizes = plan.sum(dim=2)  # (B, K)
    # ∇²f is singular along the constant vectors, to which ∇f is orthogonal: Q/K² lifts them alone.
    curvature = torch.diag_embed(sizes + lift) - plan @ plan.mT + Q / K**2  # (B, K, K)
    factor = torch.linalg.cholesky_ex(curvature)[0]
    direction = torch.cholesky_solve((wanted - sizes)[:, :, None], factor)  # (B, K, 1) Δ
    extent = direction.amax(dim=1, keepdim=True) - direction.amin(dim=1, keepdim=True)  # (B, 1, 1) ρ
    length = extent.log1p() / extent.clamp_min(torch.finfo(extent.dtype).tiny)
    return length * direction


class EqualSizes:
    """Assignments to classes of equal size for one problem after another, each starting from the potentials before."""

    def __init__(self, first_steps: int = 16, next_steps: int = 10) -> None:
        self.steps, self.next_steps = first_steps, next_steps
        self.potentials: Tensor | None = None

    def __call__(self, logits: Tensor) -> Tensor:
        """The plan (B, K, Q) of logits (B, K, Q)."""
        start = torch.zeros_like(logits[:, :, :1]) if self.potentials is None else self.potentials
        plan, self.potentials = equal_sizes(logits, start, self.steps)
        self.steps = self.next_steps
        return plan
