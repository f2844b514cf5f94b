"""Any network of timm as a backbone, with weights from a file or fresh from a seed; nothing is downloaded."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import timm
import torch
from timm.data.config import resolve_model_data_config

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.backbones.fill import fill
from fsbench.backbones.info import BackboneInfo, DataConfig, Extractor
from fsbench.errors import FsbenchError
from fsbench.files import sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

PREFIX = "timm/"


def fresh(model: str, seed: int | None, options: Mapping[str, Any]) -> Any:
    """Builds a network with random weights; the global random numbers stay as they were."""
    if seed is not None and not 0 <= seed < 2**63:
        raise FsbenchError(f"A random seed is a whole number from 0 to 2^63 - 1, found {seed}.")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed or 0)
        return timm.create_model(model, **options)


def timm_backbone(name: str, weights: str | Path | None, seed: int | None) -> Extractor:
    """Builds `timm/<name>` without its classifier; weights must fit it exactly, their classifier aside."""
    model = name.removeprefix(PREFIX)
    if not timm.is_model(model):  # names that lead to the network, such as hf-hub:…, are not models
        near = difflib.get_close_matches(model, timm.list_models(), n=5, cutoff=0.5)
        raise FsbenchError(
            f"timm has no model {model!r}.",
            f"Nearest: {', '.join(near)}." if near else "See timm.list_models() for its names.",
        )
    try:
        network = fresh(model, seed, {"num_classes": 0})
    except FsbenchError:
        raise
    except Exception as error:  # each of its thousand models has its own ways to refuse
        raise FsbenchError(f"timm cannot build {model!r}: {error}") from error
    digest, metadata = "", {}
    if weights is not None:
        checkpoint = read_checkpoint(Path(weights))
        fill(network, _without_classifier(network, checkpoint.tensors), checkpoint.path, f"timm's {model}")
        digest, metadata = sha256_of(checkpoint.path), dict(checkpoint.metadata)
    config = resolve_model_data_config(network)
    info = BackboneInfo(
        name,
        name,
        _feature_dim(network),
        f"none, seed {seed}" if weights is None else Path(weights).name,
        digest,
        image_size=config["input_size"][-1],
        data_config=DataConfig(**{key: config[key] for key in DataConfig.__dataclass_fields__}),
        metadata=metadata,
    )
    return Extractor(network, info)


def _feature_dim(network: Any) -> int:
    """The output length without a classifier; what timm calls num_features can be that of a layer before."""
    names = ("feature_dim", "head_hidden_size", "num_features")
    return next(int(size) for name in names if (size := getattr(network, name, None)))


def _without_classifier(network: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    named = getattr(network, "pretrained_cfg", {}).get("classifier") or ()
    heads = tuple(f"{head}." for head in ([named] if isinstance(named, str) else named))
    wanted = network.state_dict()
    return {key: value for key, value in tensors.items() if key in wanted or not key.startswith(heads)}
