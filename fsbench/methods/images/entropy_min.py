"""Entropy minimisation: a network that is fitted to the support and minimises the entropy of its query predictions."""

from __future__ import annotations

import copy
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import Context, Count, MethodInfo, NonNegative, Positive, Variants, prepared
from fsbench.methods.centroids import class_means
from fsbench.methods.heads import Objective, fitted_probabilities
from fsbench.methods.images.networks import ImageMethod, ImageNetwork, Solver
from fsbench.tasks.batch import TaskBatch

_HEAD: dict[str, Any] = {"steps": 1000, "rate": 1e-4}  # the schedule of TIM-GD, where the head moves alone


class EntropyMin(ImageMethod):
    """The whole network is fitted to the support, and minimises the entropy of its query predictions. Transductive.

    The loss is a·CE + c·H(Y|X), on unit-norm features and one weight vector per class, which starts at the class mean.
    The proportions of the classes play no role: nothing keeps a class from taking over its neighbours. Every task
    starts from the weights that made the features, all of which change; batch normalisation counts the images of the
    task, support and queries apart.

    As in Veilleux et al., whose numbers the article prints: logits −T/2 d², both terms in one step; a query's answer
    comes from the features before and the class weights after the last step.

    `entropy-min:head` moves the class weights alone, on features, by the schedule of TIM-GD, of which it is the case
    b = 0: with 25 steps of 5·10⁻⁵ a head alone hardly moves.
    """

    variant: Literal["joint", "head"] = "joint"
    cross_entropy: NonNegative = 1.0
    conditional: NonNegative = 1.0
    temperature: Positive = 15.0
    rate: Positive = 5e-5
    steps: Count = 25

    info = MethodInfo(
        "entropy-min", "Entropy-min", 'Dhillon et al., "A Baseline for Few-Shot Image Classification", ICLR 2020',
        url="https://arxiv.org/abs/1909.02729", order=70,
        variants=Variants("variant", ("joint", "head"), in_all=("head",)), network="features",
        network_by={"head": ""},
        grid={"temperature": (5.0, 10.0, 15.0, 30.0, 60.0),
              "conditional": (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 10.0)},
        published={"Entropy-min": {"variant": ("joint",)}}, cost="network", version=2,
    )  # fmt: skip

    @classmethod
    def configure(cls, context: Context, **options: Any) -> Self:
        """The defaults of the variant, overridden by the options."""
        usual = _HEAD if options.get("variant") == "head" else {}
        return super().configure(context, **{**usual, **options})

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """L2N rows for the head alone, else pixel rows as they are."""
        if self.variant != "head":
            return super().embed(features, base)
        return prepared("L2N", features, base, self.info.title)

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Class probabilities of the queries, (B, Q, K)."""
        if self.variant != "head":
            return super().classify(tasks)
        objective = Objective(self.cross_entropy, 0.0, self.conditional)  # the loss without H(Y)
        return fitted_probabilities(tasks, objective, temperature=self.temperature, rate=self.rate, steps=self.steps)

    def solver(self, network: ImageNetwork, ways: int, device: torch.device) -> Solver:
        """Adam from the trained weights, for every task anew."""

        def solve(images: Tensor, labels: Tensor) -> Tensor:
            adapted = copy.deepcopy(network.backbone.network).to(device).train()
            return self._logits(adapted, images, labels, ways).detach().softmax(dim=1)

        return solve

    def _logits(self, network: nn.Module, images: Tensor, labels: Tensor, ways: int) -> Tensor:
        """Logits (Q, K), without ½‖z‖², which is 1 for all, after steps that change the network and class weights."""
        parts = images.split([len(labels), len(images) - len(labels)])
        with torch.no_grad():
            first = functional.normalize(network(parts[0]), dim=1)
            weights = class_means(TaskBatch(first[None], labels[None], ways))[0].requires_grad_()  # (K, D)
        adam = torch.optim.Adam([*network.parameters(), weights], self.rate)

        def logits(z: Tensor) -> Tensor:
            return -self.temperature * (weights.square().sum(dim=1) / 2 - z @ weights.T)

        for _ in range(self.steps):
            support, queries = (functional.normalize(network(part), dim=1) for part in parts)
            log_p = logits(queries).log_softmax(dim=1)
            doubt = -(log_p.exp() * log_p).sum(dim=1).mean()  # H(Y|X)
            fit = functional.cross_entropy(logits(support), labels)
            adam.zero_grad()
            (self.cross_entropy * fit + self.conditional * doubt).backward()
            adam.step()
        return logits(queries)

    def memory_per_task(self, samples: int) -> int:
        """Bytes that a task of N samples takes: activations, and four times the weights for Adam."""
        if self.network is None:
            return 0
        weights = sum(tensor.numel() * tensor.element_size() for tensor in self.network.backbone.parameters())
        return samples * self.network.saved_bytes + 4 * weights
