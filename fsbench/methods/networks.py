"""Networks for methods that work on images."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.backbones.families import family_of
from fsbench.backbones.load import load_backbone
from fsbench.data.catalog import dataset_names
from fsbench.data.published_transforms import timm_transform, transform_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from fsbench.backbones.base import BackboneInfo, Extractor
    from fsbench.data.transforms import EvalTransform

_HEAD = "classifier."


@dataclass(frozen=True, eq=False)
class ImageNetwork:
    """A network for methods on images: how it wants them, and what its weights file holds beside the backbone.

    Attributes:
        backbone: In eval mode, on the CPU.
        transform: From an image to what the backbone takes.
        extras: Tensors `classifier.*` of the weights file, without that prefix.
        facts: The header entry `fsbench` of the weights file.
    """

    backbone: Extractor
    transform: EvalTransform
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The weights, as parameters of methods name them: `conv4-maml.safetensors@0a1b2c3d`, or `random seed 0`."""
        info = self.backbone.info
        return f"{info.weights}@{info.sha256[:8]}" if info.sha256 else info.weights.replace("none, seed", "random seed")


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
    facts = json.loads(checkpoint.metadata.get("fsbench", "{}"))
    loaded = load_backbone(backbone or str(facts.get("backbone", "")), path)
    extras = {name.removeprefix(_HEAD): one for name, one in checkpoint.tensors.items() if name.startswith(_HEAD)}
    return ImageNetwork(loaded, transform or usual_transform(loaded.info, dataset), extras, facts)


def usual_transform(info: BackboneInfo, dataset: str) -> EvalTransform:
    """The transform that belongs to a backbone on a data set."""
    if info.data_config is not None:
        return timm_transform(vars(info.data_config))
    across = dataset in dataset_names() and info.trained_on in dataset_names()
    return transform_for(
        family_of(info.family).transform, info.trained_on if across else dataset, None, info.image_size
    )
