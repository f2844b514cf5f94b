"""A linear classifier with one weight vector per class, whose logits are distances.

l_k = T (z·w_k − ½‖w_k‖² − ½‖z‖²) = −T/2 ‖z − w_k‖². The last term is the same for every class, so it is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fsbench.methods._adam import Adam

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def probabilities(rows: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Softmax of the logits, (B, K, N), of samples (B, N, D) under weights (B, K, D)."""
    half_squares = torch.linalg.vector_norm(weights, dim=2, keepdim=True).square_().div_(2)  # (B, K, 1)
    logits = torch.bmm(weights, rows.mT).sub_(half_squares).mul_(temperature)  # (B, K, N)
    return torch.softmax(logits, dim=1)


def descend(
    rows: Tensor,
    weights: Tensor,
    slope: Callable[[Tensor], Tensor],
    *,
    temperature: float,
    rate: float,
    steps: int,
) -> Tensor:
    """Weights after Adam has gone down a loss of the probabilities.

    The gradient is ∂L/∂w_k = T Σ_n s_nk (z_n − w_k) with the slopes s = ∂L/∂l.

    Args:
        rows: The samples that the loss sees, (B, N, D).
        weights: Where to start, (B, K, D).
        slope: ∂L/∂l, (B, K, N), of the probabilities (B, K, N).
        temperature: T.
        rate: Learning rate.
        steps: Number of steps.
    """
    weights = weights.clone()
    gradient = torch.empty_like(weights)
    adam = Adam(weights, rate)
    for _ in range(steps):
        pull = slope(probabilities(rows, weights, temperature)).mul_(temperature)  # (B, K, N)
        torch.bmm(pull, rows, out=gradient)  # (B, K, D)
        gradient.addcmul_(weights, pull.sum(dim=2, keepdim=True), value=-1)
        adam.step(gradient)
    return weights
