"""VERSA: a network that reads the classifier of a task off the features of its support."""

from __future__ import annotations

import copy
import math
from typing import Literal

import torch
from torch import Tensor, nn

from fsbench.errors import FsbenchError
from fsbench.methods.base import Count, MethodInfo, Variants
from fsbench.methods.centroids import class_means
from fsbench.methods.images.networks import ImageMethod, ImageNetwork, Solver, counted_copy
from fsbench.tasks.batch import TaskBatch

_NOISE = 0  # seed of the samples at test


class Amortised(nn.Module):
    """From the mean support feature of a class to a normal law of its weight vector and of its bias.

    Four networks that all classes share: mean and logarithm of the variance, of the weights and of the bias.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight_mean, self.weight_log_variance = _network(features, features), _network(features, features)
        self.bias_mean, self.bias_log_variance = _network(features, 1), _network(features, 1)

    def forward(self, support: Tensor, labels: Tensor, queries: Tensor, ways: int) -> tuple[Tensor, Tensor]:
        """Mean and variance (Q, K) of the logits of queries (Q, D), for support features (S, D) with labels (S,).

        With a normal law of every weight, a logit z·w + b is normal too: its mean is z·μ_w + μ_b and its variance
        z²·exp(s_w) + exp(s_b).
        """
        means = class_means(TaskBatch(support[None], labels[None], ways))[0]  # (K, D) ν
        mean = queries @ self.weight_mean(means).T + self.bias_mean(means).T
        spread = queries.square() @ self.weight_log_variance(means).exp().T + self.bias_log_variance(means).exp().T
        return mean, spread


def _network(features: int, outputs: int) -> nn.Sequential:
    hidden = (nn.Linear(features, features), nn.ELU(), nn.Linear(features, features), nn.ELU())
    return nn.Sequential(*hidden, nn.Linear(features, outputs))


def log_predictive(mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
    """Logarithms (Q, K) of the class probabilities, averaged over samples of the logits.

    `noise` is (L, 1, K) or (L, Q, K), standard normal.
    """
    logits = mean + variance.sqrt() * noise  # (L, Q, K)
    return logits.log_softmax(dim=2).logsumexp(dim=0) - math.log(len(noise))


class Versa(ImageMethod):
    """A network that gives the classifier of a task in one pass, with how sure it is of every weight.

    Batch normalisation has the statistics of the training, so that a query's answer does not depend on the other
    queries. In `versa:transductive` support and queries are each normalised by themselves, as the authors do.

    Departs from Gordon et al.: the samples of the logits are the same for all queries and tasks, so that the answer is
    the same in any batch and order; the backbone has no dropout.
    """

    variant: Literal["inductive", "transductive"] = "inductive"
    samples: Count = 10

    info = MethodInfo(
        "versa", "VERSA", 'Gordon et al., "Meta-Learning Probabilistic Inference for Prediction", ICLR 2019',
        url="https://arxiv.org/abs/1805.09921", order=60, transductive=False,
        transductive_by={"variant": {"transductive": True}}, prior="none",
        variants=Variants("variant", ("inductive", "transductive"), in_all=("transductive",)), network="conv4-versa",
        published={"Versa": {"variant": ("transductive",)}}, cost="slow",
    )  # fmt: skip

    def solver(self, network: ImageNetwork, ways: int, device: torch.device) -> Solver:
        """One pass over the images, then the classifier, and the mean of the softmax over the samples."""
        amortised, transductive = Amortised(network.backbone.info.feature_dim), self.variant == "transductive"
        if network.extras.keys() != amortised.state_dict().keys():
            raise FsbenchError(f"{network.name} is not a network of VERSA.", "Train one: fsbench train --recipe versa")
        amortised.load_state_dict(network.extras)
        amortised = amortised.to(device)
        backbone = (counted_copy if transductive else copy.deepcopy)(network.backbone.network).to(device)
        noise = torch.randn(self.samples, 1, ways, generator=torch.Generator().manual_seed(_NOISE)).to(device)

        @torch.no_grad()
        def solve(images: Tensor, labels: Tensor) -> Tensor:
            parts = images.split([len(labels), len(images) - len(labels)])
            support, queries = (
                [backbone(part) for part in parts] if transductive else backbone(images).split(list(map(len, parts)))
            )
            mean, variance = amortised(support, labels, queries, ways)
            return log_predictive(mean, variance, noise).exp()

        return solve
