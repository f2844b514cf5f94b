"""Builds backbones: from a checkpoint, wherever it is found, or fresh from a seed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from fsbench.backbones.checkpoints import Checkpoint, fill, read_checkpoint, recognise
from fsbench.backbones.clip_models import OPEN_CLIP, clip_backbone
from fsbench.backbones.families import BACKBONES, FAMILIES, TIMM, Family, first_family
from fsbench.backbones.find_weights import find_weights
from fsbench.backbones.networks import NETWORKS, BackboneInfo, Extractor
from fsbench.backbones.timm_models import find_timm_weights, refuse_unknown_timm, timm_backbone
from fsbench.data.catalog import DATASETS, dataset_info
from fsbench.data.transforms import EvalTransform, transform_for
from fsbench.errors import FsbenchError, UsageError, unknown_name
from fsbench.io.files import sha256_of

EXTRAS = "classifier."  # before the names of tensors that a weights file holds beside the backbone


@dataclass(frozen=True)
class Weights:
    """A backbone by name, and where its weights come from."""

    backbone: str
    file: Path | None  # a checkpoint of the user's
    seed: int | None  # random weights of this seed instead
    root: Path  # folder that is searched for `<dataset>/<backbone>.*` if there is neither
    pretrained: bool = False  # the published weights of a timm model, which timm downloads

    def __post_init__(self) -> None:
        if self.pretrained and (self.file or self.seed is not None or not self.backbone.startswith((TIMM, OPEN_CLIP))):
            raise UsageError("pretrained", "downloads the published weights of timm/NAME, and takes no others")

    def load(self, dataset: str) -> Extractor:
        """The backbone for a data set."""
        file = self.file
        if self.backbone.startswith(OPEN_CLIP) and (file or self.seed is not None or self.pretrained):
            return clip_backbone(self.backbone, file, self.seed, pretrained=self.pretrained).eval()
        if self.file is None and self.seed is None and self.backbone.startswith(TIMM):
            file = find_timm_weights(self.root, dataset, self.backbone, pretrained=self.pretrained)
        elif self.file is None and self.seed is None:
            file = find_weights(self.root, dataset, self.backbone)
        return load_backbone(self.backbone, file, random_seed=self.seed)


def load_backbone(
    name: str, weights: str | Path | None = None, *, random_seed: int | None = None, width: float | None = None
) -> Extractor:
    """Build "rn12", "rn18", "wrn", "conv4" or "timm/<name>" in eval mode.

    The family, width and depth are read from the checkpoint `weights`. Instead, `random_seed` draws the weights, and
    `width` is the base width of rn12, rn18 and conv4 (64), or the widening factor of wrn (10).
    """
    refuse_unknown(name)
    if (weights is None) == (random_seed is None):
        found = "neither" if weights is None else "both"
        message = f"Backbone {name!r} needs either a weights file or a random seed, found {found}."
        raise FsbenchError(message, "Give --weights FILE, or a seed for random weights.")
    if width is not None and (weights is not None or name.startswith(TIMM)):
        message = f"A width belongs to random weights of {', '.join(BACKBONES)}; otherwise the network determines it."
        raise FsbenchError(message, "Leave it out.")
    family = first_family(name)
    if family is None:
        extractor = timm_backbone(name, weights, random_seed)
    elif weights is not None:
        extractor = _from_file(name, Path(weights))
    else:
        extractor = _from_seed(family, random_seed or 0, width)
    return extractor.eval()


def refuse_unknown(name: str) -> None:
    """Refuse a name that is not a backbone, and suggest the nearest one."""
    if name not in BACKBONES and not name.startswith((TIMM, OPEN_CLIP)):
        raise unknown_name("backbone", name, [*BACKBONES, "timm/<name>", f"{OPEN_CLIP}<name>"])
    if name.startswith(TIMM):
        refuse_unknown_timm(name)


def _from_file(name: str, path: Path) -> Extractor:
    checkpoint = read_checkpoint(path)
    facts = own_facts(checkpoint)
    recognised = recognise(checkpoint, str(facts["family"]) if "family" in facts else None)
    family = recognised.family
    if family.backbone != name:
        message = f"Expected weights for {name}, found {family.title} ({family.name}) in {path}."
        raise FsbenchError(message, f"Use --backbone {family.backbone}, or another file.")
    with torch.device("meta"):  # no memory until the tensors are known to fit
        network = NETWORKS[family.model](**recognised.architecture)
    fill(network, recognised.tensors, path, f"{family.title} ({family.name})")
    trained_on = str(facts.get("dataset", "")) if "epochs" in facts else ""
    benchmark = dataset_info(trained_on).splits["base"] if trained_on in DATASETS else ()
    info = BackboneInfo(
        name=name,
        family=family.name,
        feature_dim=network.feature_dim,
        weights=path.name,
        sha256=sha256_of(path),
        architecture=recognised.architecture,
        image_size=int(facts["image_size"]) if facts.get("image_size") else family.image_size,
        metadata=checkpoint.metadata,
        trained_by="fsbench" if "epochs" in facts else "",
        trained_on=trained_on,
        trained_classes=tuple(facts.get("classes", benchmark)),
    )
    return Extractor(network, info)


def transform_of(
    info: BackboneInfo, dataset: str, *, benchmark: bool, size: int | None = None, chosen: str | None = None
) -> EvalTransform:
    """The transform that belongs to a backbone on a data set, or the `chosen` one in its place.

    A network that `fsbench train` trained on one benchmark sees the images of another `benchmark` as it was trained.
    `size` is the side of own images, if they agree on one.
    """
    if info.transform is not None:
        if chosen:
            raise FsbenchError("A timm model has its own transform.", "Leave --transform out.")
        return info.transform
    name = info.trained_on if benchmark and info.trained_on in DATASETS else dataset
    recipe = chosen or FAMILIES[info.family].transform
    return transform_for(recipe, name, size, None if chosen else info.image_size)


def own_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """What fsbench itself wrote into the header of a safetensors file; nothing for other files."""
    try:
        return dict(json.loads(checkpoint.metadata.get("fsbench", "{}")))
    except (TypeError, ValueError) as error:
        raise FsbenchError(f"{checkpoint.path}: the header entry 'fsbench' is not a JSON object.") from error


def _from_seed(family: Family, seed: int, width: float | None) -> Extractor:
    """A network with random weights; the global random numbers stay as they were."""
    architecture = family.shape.standard
    if width is not None:
        architecture["widths"] = family.shape.widths_of(width) if 0 < width < math.inf else (0,)
        if min(architecture["widths"]) < 1:
            raise FsbenchError(f"A {family.backbone} of width {width} has no channels.", "Give a larger --width.")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = NETWORKS[family.model](**architecture)
    weights = f"none, seed {seed}"
    info = BackboneInfo(family.backbone, family.name, network.feature_dim, weights, architecture=architecture)
    return Extractor(network, info)


def halve(network: torch.nn.Module) -> None:
    """Round the weights of convolutions and linear layers to half precision; everything else stays as it is."""
    with torch.no_grad():
        for parameter in network.parameters():
            rounded = parameter.half()
            if parameter.ndim > 1 and bool(rounded.isfinite().all()):
                parameter.copy_(rounded)


def encode_backbone(
    backbone: Extractor, metadata: Mapping[str, Any], extras: Mapping[str, Tensor] | None = None
) -> bytes:
    """Encode the weights as safetensors under this package's key names, so that `load_backbone` reads them back.

    Weights that `halve` has rounded are stored as float16, without loss. The header entry `fsbench` is a JSON object
    with the backbone, its family, its widths and depth, its feature dimension, and the `metadata` that the caller
    adds: the data set, the image size, how it was trained. Tensors beside the backbone, `extras`, are named as those of
    classifiers are, which `load_backbone` leaves aside.
    """
    info = backbone.info
    facts = {"backbone": info.name, "family": info.family, "feature_dim": info.feature_dim, **info.architecture}
    state = backbone.network.state_dict() | {f"{EXTRAS}{name}": tensor for name, tensor in (extras or {}).items()}
    for name, tensor in state.items():
        fits = tensor.ndim > 1 and tensor.dtype == torch.float32 and torch.equal(tensor.half().float(), tensor)
        state[name] = (tensor.half() if fits else tensor).detach().cpu().contiguous()
    return save(state, metadata={"fsbench": json.dumps({**metadata, **facts}, sort_keys=True)})
