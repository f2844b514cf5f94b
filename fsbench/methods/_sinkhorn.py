"""Assignments with given class sizes: the limit of Sinkhorn's iteration, in the log domain.

For logits l (K, Q) the plan P with columns Σ_k P_kq = 1 and rows Σ_q P_kq = c is P = softmax_k(l + v) for a vector v,
unique up to a constant: the minimum of the convex function

    f(v) = Σ_q log Σ_k exp(l_kq + v_k) − c Σ_k v_k,    ∇f = Σ_q P_q − c,    ∇²f = diag(Σ_q P_q) − P Pᵀ.

Sinkhorn's iteration, v_k ← v_k + log c − log Σ_q P_kq, descends it slowly: hundreds of rounds when assignments are
nearly hard. Newton's direction Δ needs a K×K system and a handful of rounds. The third derivative along Δ is at most
ρ = max Δ − min Δ times the second, so a step of length log(1 + ρ)/ρ never overshoots, from any start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def equal_sizes(logits: Tensor, potentials: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Assign Q samples to K classes of equal size Q/K, which need not be a whole number.

    Args:
        logits: l, (B, K, Q).
        potentials: v to start from, (B, K, 1); zeros, or those of a similar problem.
        steps: Newton steps. About 10 converge from zeros, 4 from the potentials of a similar problem.

    Returns:
        The plan P, (B, K, Q), and its potentials (B, K, 1). The shares of a sample add up to 1 exactly, the sizes are
        equal as far as the steps have converged.
    """
    _, K, Q = logits.shape
    lift = 10 * torch.finfo(logits.dtype).eps * Q  # above the rounding errors of ∇²f, so that it factorises
    for _ in range(steps):
        plan = torch.softmax(logits + potentials, dim=1)
        sizes = plan.sum(dim=2)  # (B, K)
        # ∇²f is singular along the constant vectors, to which ∇f is orthogonal: Q/K² lifts them alone.
        curvature = torch.diag_embed(sizes + lift) - plan @ plan.mT + Q / K**2  # (B, K, K)
        factor = torch.linalg.cholesky_ex(curvature)[0]
        direction = torch.cholesky_solve((Q / K - sizes)[:, :, None], factor)  # (B, K, 1) Δ
        extent = direction.amax(dim=1, keepdim=True) - direction.amin(dim=1, keepdim=True)  # (B, 1, 1) ρ
        length = extent.log1p() / extent.clamp_min(torch.finfo(extent.dtype).tiny)
        potentials = potentials + length * direction
    return torch.softmax(logits + potentials, dim=1), potentials
