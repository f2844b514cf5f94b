"""Class centroids of a task whose support is certain and whose queries are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from fsbench.methods._gram import InnerProducts


class Clusters:
    """Centroids m_k = (Σ_support x_n + Σ_queries o_nk x_n) / w_k, known by inner products alone.

    The support counts once and for its own class only; what it contributes is computed once.

    Args:
        products: Inner products of the samples, support first.
        support: (B, K, S) one-hot labels.
    """

    def __init__(self, products: InnerProducts, support: Tensor) -> None:
        known, asked = slice(None, support.shape[2]), slice(support.shape[2], None)
        self.products, self.support = products, support
        self.shots = support.sum(dim=2, keepdim=True)  # (B, K, 1)
        self._start = products.of(known, asked)(support)  # (B, K, Q) ⟨x_q, Σ_support x_n⟩
        among_support = products.of(known, known)(support)  # (B, K, S)
        self._squared_start = (among_support * support).sum(dim=2, keepdim=True)  # (B, K, 1)
        self._among_queries = products.of(asked, asked)

    def unassigned(self) -> Tensor:
        """Assignments (B, K, Q) of nothing to anything: centroids are then the means of the support."""
        return torch.zeros_like(self._start)

    def count(self, assigned: Tensor) -> Tensor:
        """N_k (B, K, 1), from the assignments of the queries (B, K, Q)."""
        return self.shots + assigned.sum(dim=2, keepdim=True)

    def centroids(self, assigned: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """What centroids have to do with queries, for assignments o (B, K, Q) and weights w (B, K, 1).

        Returns:
            ⟨x_q, m_k⟩ (B, K, Q), and ‖m_k‖² (B, K, 1).
        """
        total = self._start + self._among_queries(assigned)  # ⟨x_q, w_k m_k⟩
        squared = self._squared_start + (assigned * (self._start + total)).sum(dim=2, keepdim=True)  # ‖w_k m_k‖²
        return total / weight, squared / weight.square()
