"""Methods that work on images: their base class, their networks, and batch normalisation by a part of a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.backbones.load import EXTRAS, load_backbone, own_facts, transform_of
from fsbench.backbones.networks import Extractor
from fsbench.data.catalog import DATASETS
from fsbench.data.pixels import normalised
from fsbench.data.transforms import EvalTransform
from fsbench.errors import FsbenchError
from fsbench.features.scatter import BaseStatistics
from fsbench.methods.base import Context, Method
from fsbench.tasks.batch import TaskBatch

Solver = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class ImageNetwork:
    """A network for methods on images: how it wants them, and what its weights file holds beside the backbone."""

    backbone: Extractor  # in eval mode, on the CPU. Never changed: methods work on copies.
    transform: EvalTransform
    # tensors of the weights file that do not belong to the backbone
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    # what `fsbench train` wrote into the header of the weights file
    facts: Mapping[str, Any] = field(default_factory=dict)
    _copies: dict[torch.device, ImageNetwork] = field(default_factory=dict, init=False)

    @property
    def name(self) -> str:
        """The weights, as records name them: `conv4-maml.safetensors@0a1b2c3d`, or `random seed 0`."""
        info = self.backbone.info
        return f"{info.weights}@{info.sha256[:8]}" if info.sha256 else info.weights.replace("none, seed", "random seed")

    def on(self, device: torch.device) -> ImageNetwork:
        """The same on a device, to which it is copied once."""
        if next(self.backbone.parameters()).device == device:
            return self
        if device not in self._copies:
            self._copies[device] = replace(self, backbone=copy.deepcopy(self.backbone).to(device))
        return self._copies[device]

    def images(self, rows: Tensor) -> Tensor:
        """Pixel rows (N, E) of a task as the network wants them, (N, 3, S, S)."""
        side = self.transform.crop
        return normalised(rows.view(len(rows), side, side, 3), self.transform)

    @cached_property
    def saved_bytes(self) -> int:
        """Bytes per image that a forward pass keeps for its gradient."""
        saved: dict[int, Tensor] = {}

        def note(tensor: Tensor) -> Tensor:
            saved[tensor.untyped_storage()._cdata] = tensor
            return tensor

        network, side = counted_copy(self.backbone.network), self.transform.crop
        first = next(network.parameters())
        own = {parameter.untyped_storage()._cdata for parameter in network.parameters()}
        with torch.inference_mode(False), torch.enable_grad():
            images = first.new_zeros(2, 3, side, side)
            with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
                network(images)
        return sum(one.numel() * one.element_size() for place, one in saved.items() if place not in own) // 2


def load_network(
    weights: Path | int, dataset: str, *, backbone: str = "", transform: EvalTransform | None = None
) -> ImageNetwork:
    """Read a network for a data set from its weights file, or draw it from a seed.

    The backbone is by default the one that the file states, and the transform that of its family.
    """
    facts: dict[str, Any] = {}
    extras: dict[str, Tensor] = {}
    if isinstance(weights, int):
        loaded = load_backbone(backbone, random_seed=weights)
    else:
        checkpoint = read_checkpoint(weights)
        facts = own_facts(checkpoint)
        if not backbone and "backbone" not in facts:
            raise FsbenchError(f"{weights} was not written by fsbench train.", "Train one with fsbench train --recipe.")
        loaded = load_backbone(backbone or str(facts["backbone"]), weights)
        others = (name for name in checkpoint.tensors if name.startswith(EXTRAS))
        extras = {name.removeprefix(EXTRAS): checkpoint.tensors[name].float() for name in others}
    transform = transform or transform_of(loaded.info, dataset, benchmark=dataset in DATASETS)
    return ImageNetwork(loaded, transform, extras, facts)


class CountedNorm(nn.BatchNorm2d):
    """Batch normalisation by the statistics of the first `counted` images of a batch; None counts all.

    Written out: statistics of a part are nothing that `F.batch_norm` knows. There are no running statistics, so an
    image's features depend on itself and on the counted images alone.
    """

    counted: int | None = None

    def forward(self, maps: Tensor) -> Tensor:
        """Normalise maps (N, C, h, w)."""
        variance, mean = torch.var_mean(maps[: self.counted], dim=(0, 2, 3), correction=0)  # (C,)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (maps - mean[:, None, None]) * scale[:, None, None] + self.bias[:, None, None]


def counted_copy(network: nn.Module) -> nn.Module:
    """A copy of a network whose batch normalisation counts a part of the batch; names of tensors stay the same."""
    return count_images(copy.deepcopy(network))


def count_images(network: nn.Module) -> nn.Module:
    """Replace batch normalisation within a network by `CountedNorm` with the same tensors."""
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = CountedNorm  # with the same tensors
    return network


def set_counted(network: nn.Module, images: int | None) -> None:
    """Let batch normalisation count the first `images` of every batch; None counts all."""
    for module in network.modules():
        if isinstance(module, CountedNorm):
            module.counted = images


class ImageMethod(Method):
    """Base class of methods on images: rows are pixels, S · S · 3 bytes each, with the channels last.

    By default tasks are solved one after the other, by `solver`; a method may classify all of a batch at once instead.
    """

    network: ImageNetwork | None = field(default=None, repr=False, compare=False, kw_only=True)

    @classmethod
    def configure(cls, context: Context, **options: Any) -> Self:
        """The defaults for the context, overridden by the options, with the network if these need one."""
        made = super().configure(context, **options)
        return replace(made, network=context.network) if cls.info.network_for(options) else made

    def embed(self, features: Tensor, base: BaseStatistics | None) -> Tensor:
        """Pixel rows as they are; features are refused."""
        if self.network is None:
            message = f"{self.info.title} works on images, and there are only features here."
            raise FsbenchError(message, "Run it on a feature file whose images are here, with fsbench compare.")
        return features

    def params(self) -> dict[str, Any]:
        """The parameters as plain data, with the name of the weights."""
        return super().params() | ({"weights": self.network.name} if self.network else {})

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Class probabilities of the queries, (B, Q, K): one task after the other, each from the same start."""
        assert self.network is not None
        with torch.inference_mode(False), torch.enable_grad():
            device = tasks.rows.device
            solve = self.solver(self.network.on(device), tasks.ways, device)
            pairs = zip(tasks.rows, tasks.support_labels, strict=True)
            # Copies: what was made in inference mode cannot take part in a gradient.
            return torch.stack([solve(self.network.images(rows.clone()), labels.clone()) for rows, labels in pairs])

    def solver(self, network: ImageNetwork, ways: int, device: torch.device) -> Solver:
        """What solves a task: from images (N, 3, S, S), support first, and labels (S,) to probabilities (Q, K)."""
        raise NotImplementedError
