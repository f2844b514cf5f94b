"""Graphs of nearest neighbours, in memory that grows with the samples and not with their pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_AT_ONCE = 1 << 22  # similarities that are held at once, where rows outnumber their features


def nearest(
    rows: Tensor,
    points: Tensor,
    count: int,
    *,
    itself: bool = False,
    closeness: Callable[[Tensor, Tensor], Tensor] = lambda rows, points: rows @ points.mT,
) -> tuple[Tensor, Tensor]:
    """How close rows (B, N, D) are to their nearest points (B, M, D), closest first (B, N, k); and their numbers.

    Closeness is the inner product unless told otherwise. `itself` says that rows and points are the same, and that none
    is its own neighbour.
    """
    tasks, samples, dimension = rows.shape
    block = samples if samples <= dimension else max(1, _AT_ONCE // (tasks * points.shape[1]))
    # Both are allocated before the blocks, among which small tensors that stay would scatter the free memory.
    values = rows.new_empty(tasks, samples, min(count, points.shape[1] - itself))
    numbers = torch.empty_like(values, dtype=torch.int64)
    for first in range(0, samples, block):
        close = closeness(rows[:, first : first + block], points)  # (B, block, M)
        if itself:
            close.diagonal(first, dim1=1, dim2=2).fill_(-torch.inf)
        part = slice(first, first + block)
        values[:, part], numbers[:, part] = close.topk(values.shape[2], dim=2)
    return values, numbers


@dataclass(frozen=True)
class Graph:
    """Weighted edges from samples to others, of which `sums` adds up both directions."""

    weights: Tensor  # (B, N, k)
    ends: Tensor  # (B, N, k) numbers of the nodes that edges lead to

    def to(self, z: Tensor) -> Tensor:
        """W z: what the ends of its edges have, z (B, M, …), summed for every sample (B, N, …)."""
        flat, ends = z.flatten(0, 1), self._flat(z.shape[1])
        total = torch.zeros_like(z[:, :1]).repeat(1, ends.shape[1], 1)
        for weight, end in zip(self.weights.unbind(dim=2), ends.unbind(dim=2), strict=True):
            total += weight[:, :, None] * flat[end.flatten()].view(total.shape)
        return total

    def back(self, z: Tensor, nodes: int) -> Tensor:
        """Wᵀ z: what the samples whose edges lead to a node have, z (B, N, …), summed for every node (B, M, …)."""
        total = z.new_zeros(len(z) * nodes, z.shape[2])
        for weight, end in zip(self.weights.unbind(dim=2), self._flat(nodes).unbind(dim=2), strict=True):
            total.index_add_(0, end.flatten(), (weight[:, :, None] * z).flatten(0, 1))
        return total.view(len(z), nodes, -1)

    def _flat(self, nodes: int) -> Tensor:
        """The ends as rows of all tasks together."""
        return self.ends + nodes * torch.arange(len(self.ends), device=self.ends.device)[:, None, None]
