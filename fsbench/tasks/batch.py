"""Tasks as tensors, and the axis letters of the whole package.

==  =======================================================
B   tasks in a batch
N   samples of a task, support first: N = S + Q
S   support samples of a task
Q   queries of a task
K   classes of a task (ways)
D   features
==  =======================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TaskBatch:
    """A batch of tasks of equal size, as a method sees it."""

    rows: Tensor  # (B, N, D) embedded features, support first
    support_labels: Tensor  # (B, S) labels in 0..K-1; every class has at least one support sample
    ways: int  # K

    @property
    def support_size(self) -> int:
        """S, the number of support samples of a task."""
        return self.support_labels.shape[1]

    def one_hot(self) -> Tensor:
        """(B, K, S) one-hot labels of the support, in the dtype of the rows."""
        classes = torch.arange(self.ways, device=self.rows.device)
        return (self.support_labels[:, None, :] == classes[None, :, None]).to(self.rows.dtype)
