"""Pre-processing of features: pure functions, and the named chains of the field.

======= ============================================================================== ==========================
name    steps                                                                          level
======= ============================================================================== ==========================
UN      none                                                                           row
L2N     unit norm                                                                      row
CL2N    subtract the mean of the base features, unit norm                              row
PT      square root, unit norm, subtract the mean of the support from the support      task
        and of the queries from the queries, unit norm
PLC     signed square root, unit norm, subtract the mean of the task, unit norm        task
======= ============================================================================== ==========================

Row-level chains are applied once to a whole split; task-level ones to the rows of each task, (…, N, D) with the
support first. The first half of the task-level chains concerns rows alone: methods do it once per split too, as a
sample is drawn in many tasks.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fsbench.errors import FsbenchError, unknown_name

ROW_CHAINS = ("UN", "L2N", "CL2N")


_SMALL, _LARGE = 2.0**-10, 2.0**50  # between them squares of float32 keep their digits, and so do square roots


def extreme_scale(x: Tensor, dims: tuple[int, ...] = (-1,)) -> Tensor:
    """The largest magnitude along the dimensions, kept, where its square could overflow or vanish; 1 elsewhere.

    Features of any scale are divided by it before norms are taken. Those of a usual scale are not changed in any bit.
    """
    most = x.abs().amax(dim=dims, keepdim=True)
    return torch.where((most > _LARGE) | ((most < _SMALL) & (most > 0)), most, 1.0)


def unit_norm(x: Tensor) -> Tensor:
    """Scale rows to unit Euclidean length; a zero row stays zero."""
    return functional.normalize(x, dim=-1, eps=1e-12)


def power(x: Tensor) -> Tensor:
    """Signed square root: sign(x) · (|x| + 10⁻⁶)^½, as in PT-MAP; a zero counts as positive."""
    return torch.where(x < 0, -1.0, 1.0) * (x.abs() + 1e-6) ** 0.5


def apply_rows(chain: str, x: Tensor, base_mean: Tensor | None = None) -> Tensor:
    """Apply a row-level chain to features (…, D)."""
    if chain == "UN":
        return x
    if chain == "L2N":
        return unit_norm(x / extreme_scale(x))
    if chain == "CL2N":
        if base_mean is None:
            raise FsbenchError("CL2N needs the mean of the base features.", "Pass base=… (features of base classes).")
        centred = x - base_mean
        return unit_norm(centred / extreme_scale(centred))
    raise unknown_name("row-level pre-processing", chain, ROW_CHAINS)


def power_rows(x: Tensor) -> Tensor:
    """The first half of PT and PLC, which concerns rows alone: signed square root, unit norm."""
    return unit_norm(power(x / extreme_scale(x)))


def centre_parts(x: Tensor, support: int) -> Tensor:
    """The second half of PT, on tasks (…, N, D): support and queries each minus their own mean, unit norm."""
    parts = x.split([support, x.shape[-2] - support], dim=-2)
    return unit_norm(torch.cat([part - part.mean(dim=-2, keepdim=True) for part in parts], dim=-2))


def centre_task(x: Tensor) -> Tensor:
    """The second half of PLC, on tasks (…, N, D): all rows minus their mean, unit norm."""
    return unit_norm(x - x.mean(dim=-2, keepdim=True))
