"""Losses on class probabilities, as their slopes with respect to the logits.

With p the softmax of logits l and g = ∂L/∂p, the slope is ∂L/∂l_k = p_k (g_k − Σ_j p_j g_j). A constant added to g
changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fsbench.methods._checks import require_amount, require_weight

if TYPE_CHECKING:
    from torch import Tensor

TINY = 1e-12  # added to probabilities inside logarithms and powers


@dataclass(frozen=True)
class Objective:
    """The loss a·CE − b·H(Y) + c·H(Y|X): fit the support, spread the queries over the classes, decide for each.

    CE is the mean of −log(p_y + ε) over the support, H(Y) the entropy of the mean p̄ of p over the queries, H(Y|X)
    the mean of the entropies of p over the queries.

    Attributes:
        cross_entropy: a.
        marginal: b.
        conditional: c.
        order: Of the entropies: 1 is Shannon's, any other Tsallis', (1 − Σ_k p_k^order) / (order − 1).
    """

    cross_entropy: float
    marginal: float
    conditional: float
    order: float = 1.0

    def __post_init__(self) -> None:
        require_weight(cross_entropy=self.cross_entropy, marginal=self.marginal, conditional=self.conditional)
        require_amount(order=self.order)

    def slope(self, p: Tensor, labels: Tensor) -> Tensor:
        """∂L/∂l for probabilities (B, K, N), support first, and one-hot labels (B, K, S)."""
        support, queries = p.split([labels.shape[2], p.shape[2] - labels.shape[2]], dim=2)
        fitted = support_slope(support, labels).mul_(self.cross_entropy)
        return torch.cat([fitted, self._query_slope(queries)], dim=2)

    def _query_slope(self, p: Tensor) -> Tensor:
        """Slope of −b·H(Y) + c·H(Y|X) for (B, K, Q): g = order/Q · (b·rise(p̄) − c·rise(p))."""
        mean = p.mean(dim=2, keepdim=True)  # (B, K, 1) p̄
        each = rise(p + TINY, self.order).mul_(-self.conditional)
        g = each.add_(rise(mean + TINY, self.order), alpha=self.marginal)  # (B, K, Q)
        expected = (p * g).sum(dim=1, keepdim=True)  # (B, 1, Q)
        return g.sub_(expected).mul_(p).mul_(self.order / p.shape[2])


def support_slope(p: Tensor, labels: Tensor) -> Tensor:
    """Slope of the mean of −log(p_y + ε) for probabilities (B, K, S) and one-hot labels (B, K, S).

    It is (p − y) · p_y / (p_y + ε) / S: a sample that is lost, p_y ≪ ε, no longer pulls. 1 − p_y is computed as the
    sum of the other probabilities, which keeps its digits when p_y is almost 1.
    """
    right = (p * labels).sum(dim=1, keepdim=True)  # (B, 1, S) p_y
    wrong = p - p * labels  # (B, K, S)
    slope = wrong - labels * wrong.sum(dim=1, keepdim=True)
    return slope.mul_(right / (right + TINY)).div_(p.shape[2])


def rise(x: Tensor, order: float) -> Tensor:
    """x^(order − 1) / (order − 1), and log x at order 1: how p enters the derivative of minus the entropy.

    At an order near 1 it approaches log x plus a constant, which the slopes do not see.
    """
    return torch.log(x) if order == 1 else x.pow(order - 1).div_(order - 1)
