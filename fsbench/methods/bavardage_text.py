"""BAVARDAGE with text prototypes, for classes without labelled images or with few; derived in docs/text.md."""

from __future__ import annotations

import torch
from torch import Tensor

from fsbench.methods.base import Count, Method, MethodInfo, Positive
from fsbench.methods.bavardage import cholesky
from fsbench.methods.zero_shot import text_logits, text_of
from fsbench.tasks.batch import TaskBatch


class BavardageText(Method):
    """BAVARDAGE's variational Bayes with a prior mean for every class, from its text; not the article's.

    Zero-shot probabilities are the prior of the assignments, and the images of the task itself give the covariance.
    The mixing weights count as far as classes look absent, so that the number of those present need not be known.
    """

    beta: Positive = 1.0  # β_o, images that the prior mean stands for
    tau: Positive = 0.1  # precision of the sphered features
    concentration: Positive = 0.1  # α_o of the mixing weights
    ridge: Positive = 3.0  # of the covariance, in units of tr(S_w) / N
    steps: Count = 8

    preprocessing = "L2N"
    info = MethodInfo(
        "bavardage-text", "BAVARDAGE with text", "fsbench, after Hu, Pateux, Gripon, 2022",
        url="https://arxiv.org/abs/2209.08527", order=380, prior="free", text="needed", zero_shot=True,
        grid={"beta": (0.5, 1.0, 2.0, 4.0), "tau": (0.05, 0.1, 0.2, 0.4), "ridge": (1.0, 3.0, 10.0)},
        starts_from="zero-shot",
    )  # fmt: skip

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Assignments of the queries after the last step, (B, Q, K)."""
        labels, prior = tasks.one_hot().mT, torch.log_softmax(text_logits(tasks), dim=2)  # (B, S, K), (B, Q, K)
        z = prior.exp()
        sphered, expected = self._sphered(tasks, torch.cat([labels, z], dim=1))
        query, shots = sphered[:, tasks.support_size :], labels.sum(dim=1)[:, :, None]  # (B, Q, D), (B, K, 1)
        known = self.beta * expected + labels.mT @ sphered[:, : tasks.support_size]
        for _ in range(self.steps):
            count = shots + z.sum(dim=1)[:, :, None]  # (B, K, 1) N_k
            mean = (known + z.mT @ query) / (self.beta + count)  # Eq. 3 with m_o, (B, K, D)
            near = query @ mean.mT - mean.square().sum(dim=2)[:, None] / 2
            z = torch.softmax(prior + self.tau * near + self._log_mixing(count).mT, dim=2)  # Eq. 5
        return z

    def _sphered(self, tasks: TaskBatch, shares: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (B, N, D) and prior means (B, K, D), sphered by S_w of zero-shot assignments (B, N, K).

        Departs from Eq. 7: a ridge that falls with the number of images keeps directions without scatter small. Prior
        means are c + a (t_k − t̄), with the c and a of least squares.
        """
        rows, text = tasks.rows, text_of(tasks)
        N, D = rows.shape[1:]
        totals = shares.mT @ rows * shares.sum(dim=1)[:, :, None].clamp_min(torch.finfo(rows.dtype).tiny).rsqrt()
        scatter = (rows.mT @ rows - totals.mT @ totals) / N  # (B, D, D) S_w
        spread = scatter.diagonal(dim1=1, dim2=2).sum(dim=1)[:, None, None] / N
        identity = torch.eye(D, dtype=rows.dtype, device=rows.device)
        factor = cholesky(scatter + self.ridge * spread * identity, rows.dtype)
        offsets = text - text.mean(dim=1, keepdim=True)  # (B, K, D)
        of_rows = shares @ offsets  # (B, N, D)
        centre, centre_of_text = rows.mean(dim=1, keepdim=True), of_rows.mean(dim=1, keepdim=True)
        steepness = of_rows - centre_of_text
        squares = steepness.square().sum(dim=(1, 2), keepdim=True).clamp_min(1e-6)
        scale = (steepness * (rows - centre)).sum(dim=(1, 2), keepdim=True) / squares  # (B, 1, 1) a
        expected = centre + scale * (offsets - centre_of_text)
        both = torch.linalg.solve_triangular(factor, torch.cat([rows, expected], dim=1).mT, upper=False).mT
        return both[:, :N], both[:, N:]

    def _log_mixing(self, count: Tensor) -> Tensor:
        """The term w log(α_o + N_k), (B, K, 1); 1 − w is the share of classes present, by the entropy of their sizes.

        Departs from Eq. 5: the article's term favours large classes also where all are present.
        """
        sizes = count / count.sum(dim=1, keepdim=True)
        present: Tensor = torch.special.entr(sizes).sum(dim=1, keepdim=True).exp() / count.shape[1]
        return (1 - present) * (self.concentration + count).log()
