"""Linear algebra on batches of small matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from fsbench.tasks.batch import gram, product


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


def clamp_within_span(plain: Tensor, whitened: Tensor, limit: float) -> Tensor:
    """Gram matrix (B, N, N) of the task's samples, sphered with scalings that are clamped inside their own span.

    With G = X Xᵀ = L Lᵀ (`plain`) and A = X S_w⁻¹ Xᵀ (`whitened`), the eigenvalues of L⁻¹ A L⁻ᵀ are the squared
    scalings of the directions of the span; with their minimum with `limit`², G' = L min(L⁻¹ A L⁻ᵀ, limit²) Lᵀ.
    """
    exact = torch.device("cpu") if plain.device.type == "mps" else plain.device  # MPS has no float64
    factor = cholesky(plain.to(exact).double(), plain.dtype)  # L
    half = torch.linalg.solve_triangular(factor, whitened.to(exact).double(), upper=False)  # L⁻¹ A
    squared = torch.linalg.solve_triangular(factor, half.mT, upper=False)  # L⁻¹ A L⁻ᵀ
    clamped = (clamp_eigenvalues if exact.type == "cpu" else clamp_by_products)(factor, squared, limit**2)
    return clamped.to(plain.dtype).to(plain.device)


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
