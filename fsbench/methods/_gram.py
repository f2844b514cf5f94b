"""Inner products of the samples of a task: all that centroid methods need of the features."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    InnerProducts = Callable[[Tensor], Tensor]


def inner_products(x: Tensor) -> InnerProducts:
    """Prepare products with the samples X (B, N, D).

    Points given as weights over the samples, W (B, K, N), stand for the vectors W X. The result maps W to their
    inner products with all samples, W X Xᵀ (B, K, N), through the Gram matrix while it is the smaller one, else
    through the features.
    """
    _, N, D = x.shape
    if N <= D:
        return gram_products(x @ x.mT)  # (B, N, N)
    return lambda weights: (weights @ x) @ x.mT  # (B, K, N)


def gram_products(gram: Tensor) -> InnerProducts:
    """The same from a Gram matrix (B, N, N)."""
    return lambda weights: weights @ gram
