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

_ON_IMAGES = {"steps": 25, "rate": 5e-5}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "joint": {**_ON_IMAGES, "temperature": 15.0},
    "alternating": {**_ON_IMAGES, "temperature": 1.0},
    "head": {"steps": 1000, "rate": 1e-4, "temperature": 15.0},
}


class EntropyMin(ImageMethod):
    """The whole network is fitted to the support, and minimises the entropy of its query predictions. Transductive.

    The loss is a·CE + c·H(Y|X), on unit-norm features and one weight vector per class, which starts at the class mean.
    The proportions of the classes play no role: nothing keeps a class from taking over its neighbours. Every task
    starts from the weights that made the features, all of which change; batch normalisation counts the images of the
    task, support and queries apart.

    Two readings. `joint`, of Veilleux et al., whose numbers the article prints: logits −T/2 d², both terms in one
    step; a query's answer comes from the features before and the class weights after the last step. `alternating`, of
    Dhillon et al.: logits T z·w + b, with unit-norm class means; a step for the support, then one for the queries; the
    answers come in eval mode, with running statistics that went along. Departs from Dhillon et al.: features in place
    of the logits of the base classes, and images are not augmented.

    `entropy-min:head` moves the class weights alone, on features, by the schedule of TIM-GD, of which it is the case
    b = 0: with 25 steps of 5·10⁻⁵ a head alone hardly moves.
    """

    variant: Literal["joint", "alternating", "head"] = "joint"
    cross_entropy: NonNegative = 1.0
    conditional: NonNegative = 1.0
    temperature: Positive = 15.0
    rate: Positive = 5e-5
    steps: Count = 25

    info = MethodInfo(
        "entropy-min", "Entropy-min", 'Dhillon et al., "A Baseline for Few-Shot Image Classification", ICLR 2020',
        url="https://arxiv.org/abs/1909.02729", order=70,
        variants=Variants("variant", ("joint", "alternating", "head"), in_all=("head",)), network="features",
        network_by={"head": ""},
        grid={"temperature": (5.0, 10.0, 15.0, 30.0, 60.0),
              "conditional": (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 10.0)},
        published={"Entropy-min": {"variant": ("joint", "alternating")}}, cost="network", version=2,
    )  # fmt: skip

    @classmethod
    def configure(cls, context: Context, **options: Any) -> Self:
        """The defaults of the variant, overridden by the options."""
        usual = _DEFAULTS.get(str(options.get("variant", cls.variant)), {})
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
            fitted = _Fitted(self, copy.deepcopy(network.backbone.network).to(device), images, labels, ways)
            return (fitted.jointly() if self.variant == "joint" else fitted.in_turn()).detach().softmax(dim=1)

        return solve

    def memory_per_task(self, samples: int) -> int:
        """Bytes that a task of N samples takes: activations, and four times the weights for Adam."""
        if self.network is None:
            return 0
        weights = sum(tensor.numel() * tensor.element_size() for tensor in self.network.backbone.parameters())
        return samples * self.network.saved_bytes + 4 * weights


class _Fitted:
    """A copy of the network that is fitted to one task."""

    def __init__(self, method: EntropyMin, network: nn.Module, images: Tensor, labels: Tensor, ways: int) -> None:
        self.method, self.network, self.labels = method, network.train(), labels
        self.support, self.queries = images.split([len(labels), len(images) - len(labels)])
        with torch.no_grad():
            means = class_means(TaskBatch(self._features(self.support)[None], labels[None], ways))[0]  # (K, D)
        linear = method.variant == "alternating"
        self.weights = (functional.normalize(means, dim=1) if linear else means).requires_grad_()
        self.bias = torch.zeros(ways, device=images.device, requires_grad=linear)
        free = [*network.parameters(), self.weights, *([self.bias] if linear else [])]
        self.adam = torch.optim.Adam(free, method.rate)

    def jointly(self) -> Tensor:
        """Logits (Q, K) after steps for support and queries at once: features before, class weights after the last."""
        for _ in range(self.method.steps):
            support, queries = self._features(self.support), self._features(self.queries)
            self._step(self._fit(-self._distances(support)) + self._doubt(-self._distances(queries)))
        return -self._distances(queries)

    def in_turn(self) -> Tensor:
        """Logits (Q, K) after steps for the support and for the queries in turn, in eval mode."""
        for _ in range(self.method.steps):
            self._step(self._fit(self._products(self._features(self.support))))
            self._step(self._doubt(self._products(self._features(self.queries))))
        self.network.eval()
        return self._products(self._features(self.queries))

    def _features(self, images: Tensor) -> Tensor:
        return functional.normalize(self.network(images), dim=1)

    def _distances(self, features: Tensor) -> Tensor:
        """T/2 d² (N, K), without ½‖z‖², which is 1 for all."""
        return self.method.temperature * (self.weights.square().sum(dim=1) / 2 - features @ self.weights.T)

    def _products(self, features: Tensor) -> Tensor:
        return self.method.temperature * features @ self.weights.T + self.bias

    def _fit(self, logits: Tensor) -> Tensor:
        return self.method.cross_entropy * functional.cross_entropy(logits, self.labels)

    def _doubt(self, logits: Tensor) -> Tensor:
        chances = logits.log_softmax(dim=1)
        return -self.method.conditional * (chances.exp() * chances).sum(dim=1).mean()

    def _step(self, loss: Tensor) -> None:
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
