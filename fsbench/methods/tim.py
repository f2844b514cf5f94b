"""Transductive information maximisation, by gradient descent and by alternating directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fsbench.features.preprocess import apply_rows
from fsbench.methods.base import Context, MethodInfo, Parameters, require_amount, require_count, require_weight
from fsbench.methods.catalog import INFOS
from fsbench.methods.centroids import mean_weights, products_of
from fsbench.methods.heads import InformationHead, Objective

if TYPE_CHECKING:
    from fsbench.features.scatter import BaseStatistics
    from fsbench.tasks.batch import TaskBatch


@dataclass(frozen=True)
class TimGradient(InformationHead):
    """TIM-GD: mutual information between queries and labels, maximised by gradient descent. Transductive.

    The loss is a·CE − b·H(Y) + c·H(Y|X) on unit-norm features, with logits −T/2 d² to one weight vector per class,
    started from the class means. H(Y) draws the predicted proportions of the classes towards uniform ones, ten times
    less on unbalanced tasks, as in Veilleux et al., NeurIPS 2021.
    """

    cross_entropy: float = 1.0  # a; CE is that of the support
    marginal: float = 1.0  # b; H(Y) is the entropy of the mean prediction
    conditional: float = 1.0  # c; H(Y|X) is the mean entropy of the predictions
    temperature: float = 15.0
    rate: float = 1e-4
    steps: int = 1000

    info: ClassVar[MethodInfo] = INFOS["tim-gd"]

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """The weight of H(Y): 10 on balanced tasks, where the original's (0.1, 1, 0.1) is the same path, else 1."""
        return {"marginal": 10.0 if context.balanced else 1.0}

    def objective(self) -> Objective:
        """The loss with Shannon's entropies."""
        return Objective(self.cross_entropy, self.marginal, self.conditional)


@dataclass(frozen=True)
class TimAlternating(Parameters):
    """TIM-ADM: the mutual information of TIM, maximised by alternating directions. Transductive.

    Auxiliary assignments of the queries, which are sharper and more even over the classes than the predictions, and
    the weights are updated in turn, both in closed form. It draws the predicted proportions of the classes towards
    uniform ones, in every setting alike. With fewer queries than classes the iteration may not settle: it magnifies
    rounding errors. The loss and the logits are those of TIM-GD, with λ for a.
    """

    cross_entropy: float = 0.1
    marginal: float = 1.0
    conditional: float = 0.1
    temperature: float = 15.0
    steps: int = 150

    info: ClassVar[MethodInfo] = INFOS["tim-adm"]

    def __post_init__(self) -> None:
        require_weight(marginal=self.marginal, conditional=self.conditional)
        require_amount(cross_entropy=self.cross_entropy, temperature=self.temperature)
        require_count(steps=self.steps)

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """L2N rows."""
        return apply_rows("L2N", features)

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of the logits under the weights after the last iteration, (B, Q, K).

        The weight vectors stay combinations of the samples, so all is done on their coefficients (B, K, N).
        """
        products = products_of(tasks)
        labels = tasks.one_hot()  # (B, K, S)
        shots, queries = labels.shape[2], tasks.shape[1] - labels.shape[2]
        support_share = self.cross_entropy / (1 + self.conditional)
        share = torch.cat([labels.new_full((shots,), support_share), labels.new_full((queries,), shots / queries)])
        weights = mean_weights(tasks)
        for _ in range(self.steps):
            log_p = self._log_probabilities(products(weights), weights)  # (B, K, N)
            p = log_p.exp()
            target = torch.cat([labels, self._assign(log_p[:, :, shots:])], dim=2)  # (B, K, N)
            # w_k ← Σ_n share_n (target_nk z_n + p_nk (w_k − z_n)) / Σ_n share_n target_nk
            kept = (p * share).sum(dim=2, keepdim=True)  # (B, K, 1)
            weights = ((target - p) * share + kept * weights) / (target * share).sum(dim=2, keepdim=True)
        return self._log_probabilities(products(weights), weights)[:, :, shots:].exp().mT

    def _log_probabilities(self, similarity: Tensor, weights: Tensor) -> Tensor:
        """Logarithm of the predictions, (B, K, N), from the inner products z·w (B, K, N)."""
        squared = (similarity * weights).sum(dim=2, keepdim=True)  # (B, K, 1) ‖w_k‖²
        return torch.log_softmax(self.temperature * (similarity - squared / 2), dim=1)

    def _assign(self, log_p: Tensor) -> Tensor:
        """q_nk ∝ p_nk^(1+c) / (Σ_n p_nk^(1+c))^β with β = b / (1 + b), over the classes: (B, K, Q)."""
        sharp = (1 + self.conditional) * log_p
        mass = torch.logsumexp(sharp, dim=2, keepdim=True)  # (B, K, 1)
        return torch.softmax(sharp - self.marginal / (1 + self.marginal) * mass, dim=1)
