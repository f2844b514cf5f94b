"""Transductive information maximisation: TIM-GD, α-TIM and TIM-ADM."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fsbench.methods.base import Context, Count, Method, MethodInfo, NonNegative, Positive
from fsbench.methods.centroids import mean_weights, products_of
from fsbench.methods.heads import Objective, fitted_probabilities
from fsbench.tasks.batch import TaskBatch


class TimGradient(Method):
    """TIM-GD: mutual information between queries and labels, maximised by gradient descent. Transductive.

    The loss is a·CE − b·H(Y) + c·H(Y|X) on unit-norm features, with logits −T/2 d² to one weight vector per class,
    started from the class means. H(Y) draws the predicted proportions of the classes towards uniform ones, ten times
    less on unbalanced tasks, as in Veilleux et al., NeurIPS 2021.
    """

    cross_entropy: NonNegative = 1.0  # a; CE is that of the support
    marginal: NonNegative = 1.0  # b; H(Y) is the entropy of the mean prediction
    conditional: NonNegative = 1.0  # c; H(Y|X) is the mean entropy of the predictions
    temperature: Positive = 15.0
    rate: Positive = 1e-4
    steps: Count = 1000

    preprocessing = "L2N"
    info = MethodInfo(
        "tim-gd", "TIM-GD",
        'Boudiaf et al., "Transductive Information Maximization for Few-Shot Learning", NeurIPS 2020',
        url="https://arxiv.org/abs/2008.11297", order=140, prior="uniform",
        prior_by={"marginal": {0.0: "none"}},
        grid={"temperature": (5.0, 10.0, 15.0, 30.0, 60.0), "marginal": (0.1, 0.3, 1.0, 3.0, 10.0),
              "conditional": (0.1, 1.0)},
        published={"TIM": {}, "TIM-GD": {}}, cost="slow",
    )  # fmt: skip

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """The weight of H(Y): 10 on balanced tasks, where the original's (0.1, 1, 0.1) is the same path, else 1."""
        return {"marginal": 10.0 if context.balanced else 1.0}

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Softmax of the logits under the weights after the last step, (B, Q, K)."""
        return fitted_probabilities(
            tasks, self.objective(), temperature=self.temperature, rate=self.rate, steps=self.steps
        )

    def objective(self) -> Objective:
        """The loss with Shannon's entropies."""
        return Objective(self.cross_entropy, self.marginal, self.conditional)


class AlphaTim(TimGradient):
    """TIM-GD with entropies that tolerate unequal classes among the queries. Transductive.

    Tsallis' entropies of order α take the place of Shannon's in H(Y) and H(Y|X); the cross-entropy of the support
    stays. H(Y) is still largest for uniform proportions, but the higher the order, the less small classes are pushed
    up, so the proportions follow the data. The parameters are the same for balanced and unbalanced tasks.
    """

    order: Positive = 2.0

    info = MethodInfo(
        "alpha-tim", "α-TIM", 'Veilleux et al., "Realistic Evaluation of Transductive Few-Shot Learning", NeurIPS 2021',
        url="https://arxiv.org/abs/2204.11181", order=160, prior="free",
        prior_by={"order": {1.0: "uniform"}},
        grid={"order": (1.5, 2.0, 3.0, 5.0, 7.0), "temperature": (5.0, 10.0, 15.0, 30.0, 60.0), "marginal": (0.3, 1.0)},
        published={"alpha-TIM": {}}, cost="slow",
    )  # fmt: skip

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """The order: 2 for one shot, 7 from five shots on, 5 between, as in the released program."""
        return {"order": 2.0 if context.shots <= 1 else 5.0 if context.shots < 5 else 7.0}

    def objective(self) -> Objective:
        """The loss with Tsallis' entropies."""
        return Objective(self.cross_entropy, self.marginal, self.conditional, self.order)


class TimAlternating(Method):
    """TIM-ADM: the mutual information of TIM, maximised by alternating directions. Transductive.

    Auxiliary assignments of the queries, which are sharper and more even over the classes than the predictions, and
    the weights are updated in turn, both in closed form. It draws the predicted proportions of the classes towards
    uniform ones, in every setting alike. With fewer queries than classes the iteration may not settle: it magnifies
    rounding errors. The loss and the logits are those of TIM-GD, with λ for a.
    """

    cross_entropy: Positive = 0.1
    marginal: NonNegative = 1.0
    conditional: NonNegative = 0.1
    temperature: Positive = 15.0
    steps: Count = 150

    preprocessing = "L2N"
    info = MethodInfo(
        "tim-adm", "TIM-ADM",
        'Boudiaf et al., "Transductive Information Maximization for Few-Shot Learning", NeurIPS 2020',
        url="https://arxiv.org/abs/2008.11297", order=150, prior="uniform",
        prior_by={"marginal": {0.0: "none"}},
        grid={"temperature": (5.0, 10.0, 15.0, 30.0, 60.0), "marginal": (0.1, 0.3, 1.0, 3.0, 10.0),
              "conditional": (0.1, 1.0)},
        published={"TIM-ADM": {}},
    )  # fmt: skip

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
