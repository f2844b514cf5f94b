"""The chains PT and PLC in two halves: what concerns a row alone is done once per split, the rest in every task.

The power transform costs more than most methods that follow it, and a sample is drawn in many tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fsbench.features.preprocess import power, unit_norm
from fsbench.methods._prototypes import support_and_query

if TYPE_CHECKING:
    from torch import Tensor

    from fsbench.tasks.batch import TaskBatch


def power_rows(features: Tensor) -> Tensor:
    """The first half of PT and PLC, on raw features (M, D): signed square root, unit norm."""
    return unit_norm(power(features))


def centre_parts(tasks: TaskBatch) -> Tensor:
    """The second half of PT: subtract the means of support and queries from each, unit norm. (B, N, D)."""
    parts = support_and_query(tasks)
    return unit_norm(torch.cat([part - part.mean(dim=1, keepdim=True) for part in parts], dim=1))


def centre_task(tasks: TaskBatch) -> Tensor:
    """The second half of PLC: subtract the mean of the task, unit norm. (B, N, D)."""
    return unit_norm(tasks.rows - tasks.rows.mean(dim=1, keepdim=True))
