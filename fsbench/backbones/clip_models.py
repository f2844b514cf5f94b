"""Models of open_clip as backbones, with the text prototypes that their other tower makes of class names."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fsbench.backbones.networks import BackboneInfo, Extractor
from fsbench.data.transforms import timm_transform
from fsbench.errors import FsbenchError, UsageError
from fsbench.io.files import sha256_of

OPEN_CLIP = "open_clip/"  # what the name of such a backbone starts with
_AT_ONCE = 256  # prompts


class ClipTowers(nn.Module):
    """Both towers of a model: images to features, and names of classes to text prototypes."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__()
        self.model, self.tokenizer = model, tokenizer

    def forward(self, images: Tensor) -> Tensor:
        """Map normalised images to features (B, D) in the space that both towers share."""
        features: Tensor = self.model.encode_image(images)
        return features

    @torch.no_grad()
    def prototypes(self, names: Sequence[str], templates: Sequence[str]) -> NDArray[np.float32]:
        """(C, D) the mean of the unit embeddings of all prompts of a class, scaled to the mean length of these."""
        rows = []
        for template in templates:
            prompts = [template.replace("{}", name.replace("_", " ")) for name in names]
            parts = [prompts[first : first + _AT_ONCE] for first in range(0, len(prompts), _AT_ONCE)]
            device = next(self.model.parameters()).device
            rows.append(torch.cat([self.model.encode_text(self.tokenizer(part).to(device)).float() for part in parts]))
        stacked = torch.stack(rows)  # (templates, C, D)
        direction = nn.functional.normalize(nn.functional.normalize(stacked, dim=2).mean(dim=0), dim=1)
        prototypes: NDArray[np.float32] = (direction * stacked.norm(dim=2).mean(dim=0)[:, None]).cpu().numpy()
        return prototypes


def clip_backbone(name: str, weights: str | Path | None, seed: int | None, *, pretrained: bool = False) -> Extractor:
    """Build `open_clip/NAME`, with a checkpoint, random weights, or the published ones of `open_clip/NAME.TAG`."""
    try:
        library: Any = importlib.import_module("open_clip")
    except ImportError as error:
        raise FsbenchError(f"{name} needs the package open_clip.", "Install it: pip install fsbench[text]") from error
    model_name, _, tag = name.removeprefix(OPEN_CLIP).partition(".")
    if model_name not in library.list_models():
        raise FsbenchError(f"open_clip has no model {model_name!r}.", "See open_clip.list_models() for its names.")
    if pretrained:
        tag = tag or next(iter(library.list_pretrained_tags_by_model(model_name)), "")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed or 0)
        model = library.create_model(model_name, pretrained=str(weights) if weights else tag if pretrained else None)
    visual = model.visual
    size = visual.image_size if isinstance(visual.image_size, int) else visual.image_size[0]
    config = {"input_size": (3, size, size), "crop_pct": 1.0, "interpolation": "bicubic"}
    config |= {"mean": visual.image_mean, "std": visual.image_std}
    info = BackboneInfo(
        name=name,
        family=name,
        feature_dim=int(visual.output_dim),
        weights=Path(weights).name if weights else f"open_clip {tag}" if pretrained else f"none, seed {seed}",
        sha256=sha256_of(Path(weights)) if weights else "",
        image_size=size,
        transform=timm_transform(config),
    )
    return Extractor(ClipTowers(model, library.get_tokenizer(model_name)), info)


def text_prototypes(backbone: Extractor, names: Sequence[str], templates: Sequence[str]) -> NDArray[np.float32]:
    """The text prototypes of classes, or an error if the backbone knows no text."""
    if not isinstance(backbone.network, ClipTowers):
        raise UsageError("text", f"{backbone.info.name} knows no text", f"Use --backbone {OPEN_CLIP}NAME.")
    if any("{}" not in template for template in templates):
        raise UsageError("text", "a template has {} where the name of a class goes", 'Example: "a photo of a {}."')
    return backbone.network.prototypes(names, templates)
