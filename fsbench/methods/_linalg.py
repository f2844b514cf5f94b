"""Linear algebra on batches of small matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def inverse_square_root(matrix: Tensor) -> Tensor:
    """The symmetric M^(-1/2) of a positive definite matrix (D, D)."""
    values, vectors = torch.linalg.eigh(matrix)
    root: Tensor = (vectors * values.clamp_min(values.max() * 1e-14).rsqrt()) @ vectors.mT
    return root


def cholesky(matrix: Tensor, precision: torch.dtype) -> Tensor:
    """Cholesky factor of a positive semi-definite matrix (B, n, n), lifted by a small multiple of its trace.

    The lift makes singular matrices (duplicate samples, coincident centroids) factorise, and an all-zero one too.

    Args:
        matrix: (B, n, n).
        precision: The dtype its entries were computed in; the lift is just above their rounding errors.
    """
    size = matrix.shape[-1]
    mean = matrix.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[:, None, None]
    lift = 10 * torch.finfo(precision).eps * mean + torch.finfo(matrix.dtype).tiny ** 0.5
    identity = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    factor: Tensor = torch.linalg.cholesky_ex(matrix + lift * identity)[0]
    return factor


def clamp_within_span(gram: Tensor, whitened: Tensor, limit: float) -> Tensor:
    """Gram matrix (B, N, N) of the task's samples, sphered with scalings that are clamped inside their own span.

    With G = X Xᵀ = L Lᵀ and A = X S_w⁻¹ Xᵀ, the eigenvalues of L⁻¹ A L⁻ᵀ are the squared scalings of the directions of
    the span; with their minimum with `limit`², G' = L min(L⁻¹ A L⁻ᵀ, limit²) Lᵀ.

    Args:
        gram: G, (B, N, N).
        whitened: A, (B, N, N).
        limit: Largest scaling.
    """
    factor = cholesky(gram.double(), gram.dtype)  # L
    half = torch.linalg.solve_triangular(factor, whitened.double(), upper=False)  # L⁻¹ A
    squared = torch.linalg.solve_triangular(factor, half.mT, upper=False)  # L⁻¹ A L⁻ᵀ
    values, vectors = torch.linalg.eigh(squared)
    sphered = (factor @ vectors) * values.clamp(0.0, limit**2).sqrt()[:, None, :]  # (B, N, N)
    clamped: Tensor = (sphered @ sphered.mT).to(gram.dtype)
    return clamped
