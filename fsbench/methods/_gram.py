"""Inner products of the samples of a task: all that centroid methods need of the features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class InnerProducts:
    """Products with samples X (B, N, D), as one matrix X Xᵀ or as two that are applied one after the other.

    Points given as weights over the samples, W (B, K, N), stand for the vectors W X.

    Attributes:
        first: (B, N, N) the Gram matrix, or (B, N, D) the features.
        second: None, or (B, D, N) the features.
    """

    first: Tensor
    second: Tensor | None = None

    def __call__(self, weights: Tensor) -> Tensor:
        """The inner products of points W (B, K, N) with all samples, W X Xᵀ (B, K, N)."""
        points = weights @ self.first
        return points if self.second is None else points @ self.second

    def of(self, rows: slice, columns: slice) -> InnerProducts:
        """Products of points over some samples with others."""
        if self.second is None:
            return InnerProducts(self.first[:, rows, columns])
        return InnerProducts(self.first[:, rows], self.second[:, :, columns])


def inner_products(x: Tensor) -> InnerProducts:
    """Prepare products with X (B, N, D): through the Gram matrix while it is the smaller one, else the features."""
    _, N, D = x.shape
    return InnerProducts(gram(x)) if N <= D else InnerProducts(x, x.mT)


@torch.library.custom_op("fsbench::gram", mutates_args=())
def gram(x: Tensor) -> Tensor:
    """X Xᵀ (B, N, N); on the CPU NumPy's product notices the symmetry and does half the work."""
    if x.device.type != "cpu":
        return x @ x.mT
    array = x.numpy()
    return torch.from_numpy(np.matmul(array, array.transpose(0, 2, 1)))


@gram.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], x.shape[1])
