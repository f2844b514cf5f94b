"""Networks for methods that work on images, and batch normalisation by a chosen part of a batch."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.backbones.load import EXTRAS, load_backbone, own_facts, transform_of
from fsbench.data.catalog import dataset_names
from fsbench.data.pixels import normalised
from fsbench.errors import FsbenchError
from fsbench.methods.base import OnImages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from fsbench.backbones.base import Extractor
    from fsbench.data.transforms import EvalTransform
    from fsbench.tasks.batch import TaskBatch

    Solver = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class ImageNetwork:
    """A network for methods on images: how it wants them, and what its weights file holds beside the backbone.

    Attributes:
        backbone: In eval mode, on the CPU. Never changed: methods work on copies.
        extras: Tensors of the weights file that do not belong to the backbone.
        facts: What `fsbench train` wrote into the header of the weights file.
    """

    backbone: Extractor
    transform: EvalTransform
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The weights, as records name them: `conv4-maml.safetensors@0a1b2c3d`, or `random seed 0`."""
        info = self.backbone.info
        return f"{info.weights}@{info.sha256[:8]}" if info.sha256 else info.weights.replace("none, seed", "random seed")

    def images(self, rows: Tensor) -> Tensor:
        """Pixel rows (N, E) of a task as the network wants them, (N, 3, S, S)."""
        side = self.transform.crop
        return normalised(rows.view(len(rows), side, side, 3), self.transform)

    @cached_property
    def saved_bytes(self) -> int:
        """Bytes per image that a forward pass keeps for its gradient."""
        seen: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            seen[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
            return tensor

        network, side = counted_copy(self.backbone.network), self.transform.crop
        own = {parameter.data_ptr() for parameter in network.parameters()}
        with torch.inference_mode(False), torch.enable_grad():
            images = torch.zeros(2, 3, side, side)
            with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
                network(images)
        return sum(size for place, size in seen.items() if place not in own) // 2


def load_network(
    path: Path, dataset: str, *, backbone: str = "", transform: EvalTransform | None = None
) -> ImageNetwork:
    """Read a network from its weights file.

    Args:
        path: The weights.
        dataset: Whose images it is for.
        backbone: Name of the backbone; by default the one that the file states.
        transform: How it gets its images, if not as usual for its family.
    """
    checkpoint = read_checkpoint(path)
    facts = own_facts(checkpoint)
    if not backbone and "backbone" not in facts:
        raise FsbenchError(f"{path} was not written by fsbench train.", "Train one with fsbench train --recipe.")
    loaded = load_backbone(backbone or str(facts["backbone"]), path)
    extras = {
        name.removeprefix(EXTRAS): tensor.float()
        for name, tensor in checkpoint.tensors.items()
        if name.startswith(EXTRAS)
    }
    transform = transform or transform_of(loaded.info, dataset, benchmark=dataset in dataset_names())
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
        for name, child in list(module.named_children()):
            if type(child) is nn.BatchNorm2d:
                counted = CountedNorm(child.num_features, child.eps)
                counted.load_state_dict(child.state_dict())
                setattr(module, name, counted.to(child.weight))
    return network


def set_counted(network: nn.Module, images: int | None) -> None:
    """Let batch normalisation count the first `images` of every batch; None counts all."""
    for module in network.modules():
        if isinstance(module, CountedNorm):
            module.counted = images


class ImageMethod(OnImages):
    """Mixin for methods that work on images, task after task."""

    def classify(self, tasks: TaskBatch) -> Tensor:
        """Class probabilities of the queries, (B, Q, K): one task after the other, each from the same start."""
        assert self.network is not None
        with torch.inference_mode(False), torch.enable_grad():
            solve = self.solver(self.network, tasks.ways, tasks.rows.device)
            pairs = zip(tasks.rows, tasks.support_labels, strict=True)
            # Copies: what was made in inference mode cannot take part in a gradient.
            return torch.stack([solve(self.network.images(rows.clone()), labels.clone()) for rows, labels in pairs])

    def solver(self, network: ImageNetwork, ways: int, device: torch.device) -> Solver:
        """What solves a task: from images (N, 3, S, S), support first, and labels (S,) to probabilities (Q, K)."""
        raise NotImplementedError
