"""Optimal transport of samples to classes of known sizes: the limit of Sinkhorn's iteration, by Newton steps."""

from __future__ import annotations

import torch
from torch import Tensor


def equal_sizes(logits: Tensor, potentials: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Assign Q samples to K classes of equal size c = Q/K, which need not be a whole number: Sinkhorn's limit.

    The plan P with columns Σ_k P_kq = 1 and rows Σ_q P_kq = c is P = softmax_k(l + v) for a vector v, unique up to a
    constant: the minimum of the convex function

        f(v) = Σ_q log Σ_k exp(l_kq + v_k) − c Σ_k v_k,    ∇f = Σ_q P_q − c,    ∇²f = diag(Σ_q P_q) − P Pᵀ.

    Sinkhorn's iteration descends it slowly, in hundreds of rounds when assignments are nearly hard. Newton's direction
    Δ needs a K×K system and a handful of rounds. The third derivative along Δ is at most ρ = max Δ − min Δ times the
    second, so a step of length log(1 + ρ)/ρ never overshoots, from any start.

    Args:
        logits: l, (B, K, Q).
        potentials: v to start from, (B, K, 1); zeros, or those of a similar problem.
        steps: Newton steps. 4 converge from the potentials of a similar problem, 10 from zeros if logits are below 20.

    Returns:
        The plan P, (B, K, Q), and its potentials (B, K, 1). The shares of a sample add up to 1 exactly, the sizes are
        equal as far as the steps have converged.
    """
    _, K, Q = logits.shape
    for _ in range(steps):
        potentials = potentials + _newton_step(torch.softmax(logits + potentials, dim=1), Q / K)
    return torch.softmax(logits + potentials, dim=1), potentials


def given_sizes(logits: Tensor, sizes: Tensor, present: Tensor, steps: int) -> Tensor:
    """The same for classes of given sizes (B, K, 1), some of them empty, and for the samples that are present.

    Args:
        logits: l, (B, K, Q).
        sizes: Their sum is the number of samples that are present.
        present: (B, 1, Q), 1 or 0.
        steps: Newton steps, from where one round of Sinkhorn's iteration ends.

    Returns:
        The plan P, (B, K, Q), for all samples.
    """
    absent = torch.where(present > 0, 0.0, -torch.inf)  # (B, 1, Q)
    mass = torch.logsumexp(torch.log_softmax(logits, dim=1) + absent, dim=2, keepdim=True)  # (B, K, 1)
    start = sizes.clamp_min(1e-12).log() - torch.where(mass.isfinite(), mass, 0.0)
    potentials = torch.where(sizes > 0, start, -1e4)
    for _ in range(steps):
        potentials = potentials + _newton_step(torch.softmax(logits + potentials, dim=1) * present, sizes[:, :, 0])
    return torch.softmax(logits + potentials, dim=1)


def _newton_step(plan: Tensor, wanted: Tensor | float) -> Tensor:
    """A step of the potentials, (B, K, 1), from the plan (B, K, Q) that they give towards the sizes wanted, (B, K)."""
    _, K, Q = plan.shape
    lift = 10 * torch.finfo(plan.dtype).eps * Q  # above the rounding errors of ∇²f, so that it factorises
    sizes = plan.sum(dim=2)  # (B, K)
    # ∇²f is singular along the constant vectors, to which ∇f is orthogonal: Q/K² lifts them alone.
    curvature = torch.diag_embed(sizes + lift) - plan @ plan.mT + Q / K**2  # (B, K, K)
    factor = torch.linalg.cholesky_ex(curvature)[0]
    direction = torch.cholesky_solve((wanted - sizes)[:, :, None], factor)  # (B, K, 1) Δ
    extent = direction.amax(dim=1, keepdim=True) - direction.amin(dim=1, keepdim=True)  # (B, 1, 1) ρ
    length = extent.log1p() / extent.clamp_min(torch.finfo(extent.dtype).tiny)
    return length * direction


class EqualSizes:
    """Assignments to classes of equal size for one problem after another, each starting from the potentials before."""

    softened = ((1 / 16, 5), (1 / 8, 3), (1 / 4, 3), (1 / 2, 3), (1, 6))  # shares of the first logits, Newton steps

    def __init__(self, next_steps: int = 10) -> None:
        self.next_steps = next_steps
        self.potentials: Tensor | None = None

    def __call__(self, logits: Tensor) -> Tensor:
        """The plan (B, K, Q) of logits (B, K, Q).

        Where the first assignments are nearly hard, the path to them is short by way of softer ones: the potentials of
        half the logits, twice, are near those of the logits.
        """
        if self.potentials is not None:
            plan, self.potentials = equal_sizes(logits, self.potentials, self.next_steps)
            return plan
        potentials = torch.zeros_like(logits[:, :, :1])
        for share, steps in self.softened:
            plan, potentials = equal_sizes(share * logits, 2 * potentials, steps)
        self.potentials = potentials
        return plan
