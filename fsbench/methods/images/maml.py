"""MAML: a network that learns a task by a few steps of gradient descent on its support."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fsbench.errors import FsbenchError
from fsbench.methods.base import Context, Count, MethodInfo, Positive, Variants
from fsbench.methods.images.networks import ImageMethod, ImageNetwork, Solver, counted_copy, set_counted


class Classifier(nn.Module):
    """A backbone with `CountedNorm`, and a linear head that starts at zero, equal for every order of the classes."""

    def __init__(self, backbone: nn.Module, features: int, ways: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(features, ways, device=next(backbone.parameters()).device)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, K) of images (N, 3, S, S)."""
        logits: Tensor = self.head(self.backbone(images))
        return logits


@dataclass(frozen=True)
class InnerLoop:
    """How a network learns a task."""

    steps: int  # of gradient descent on the mean cross-entropy of the support
    rate: float  # of each step
    # whether batch normalisation of the queries counts the queries; else it counts the support, and the answer to a
    # query does not depend on the others
    transductive: bool = False
    second_order: bool = False  # whether the result can be differentiated through the steps; only training needs it

    def logits(
        self, model: Classifier, params: Mapping[str, Tensor], support: Tensor, labels: Tensor, queries: Tensor
    ) -> Tensor:
        """Logits (Q, K) of the queries of one task after the steps, which change all parameters from their start."""
        params = dict(params)
        set_counted(model, None)
        for _ in range(self.steps):
            loss = functional.cross_entropy(functional_call(model, params, (support,)), labels)
            slopes = torch.autograd.grad(loss, [*params.values()], create_graph=self.second_order)
            pairs = zip(params.items(), slopes, strict=True)
            params = {name: value - self.rate * slope for (name, value), slope in pairs}
        if self.transductive:
            logits: Tensor = functional_call(model, params, (queries,))
            return logits
        set_counted(model, len(support))
        logits = functional_call(model, params, (torch.cat([support, queries]),))
        return logits[len(support) :]


class Maml(ImageMethod):
    """A network that was trained to learn tasks, and learns each by steps of gradient descent on its support.

    θ ← θ − rate · ∇CE(support), a few times, from the trained θ; then the queries are classified. Batch normalisation
    counts the support of the task, for the support as for the queries, so that a query's answer does not depend on
    the other queries. In `maml:transductive` the queries are normalised by themselves, as most published numbers
    are: on unbalanced tasks that centres them on the frequent classes.

    Departs from Finn et al.: the head starts at zero for every task instead of being learned, so that tasks may have
    any number of classes, in any order. Steps have the rate 0.1 that such a head wants, not 0.01, unless the network
    was trained with another one.
    """

    variant: Literal["inductive", "transductive"] = "inductive"
    steps: Count = 10
    rate: Positive = 0.1

    info = MethodInfo(
        "maml", "MAML", 'Finn et al., "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", ICML 2017',
        url="https://arxiv.org/abs/1703.03400", order=50, transductive=False,
        transductive_by={"variant": {"transductive": True}}, prior="none",
        variants=Variants("variant", ("inductive", "transductive"), in_all=("transductive",)), network="conv4-maml",
        network_by={"transductive": "conv4-maml-transductive"}, published={"MAML": {"variant": ("transductive",)}},
        cost="network",
    )  # fmt: skip

    @classmethod
    def defaults(cls, context: Context) -> dict[str, Any]:
        """The inner loop that the network was trained with; twice its steps, as Finn et al. test."""
        inner = context.network.facts.get("inner") if context.network else None
        if not isinstance(inner, dict) or not isinstance(inner.get("steps"), int):
            return {}
        return {"steps": 2 * inner["steps"]} | ({"rate": inner["rate"]} if "rate" in inner else {})

    def solver(self, network: ImageNetwork, ways: int, device: torch.device) -> Solver:
        """Steps from the trained parameters, and the softmax of the logits after them."""
        if network.extras:
            raise FsbenchError(f"{network.name} is not a network of MAML.", "Train one: fsbench train --recipe maml")
        model = Classifier(counted_copy(network.backbone.network), network.backbone.info.feature_dim, ways)
        model = model.to(device)
        params = {name: value.detach().requires_grad_() for name, value in model.named_parameters()}
        inner = InnerLoop(self.steps, self.rate, self.variant == "transductive")

        def solve(images: Tensor, labels: Tensor) -> Tensor:
            support, queries = images.split([len(labels), len(images) - len(labels)])
            return inner.logits(model, params, support, labels, queries).detach().softmax(dim=1)

        return solve

    def memory_per_task(self, samples: int) -> int:
        """Bytes that a task of N samples takes: one step is differentiated at a time."""
        return samples * self.network.saved_bytes if self.network else 0
