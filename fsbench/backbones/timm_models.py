"""Models of timm as backbones: their names, where their weights are found, and how published files fit them."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import timm
import torch
from huggingface_hub import try_to_load_from_cache
from timm.data.config import resolve_model_data_config
from torch import Tensor

from fsbench.backbones.checkpoints import fill, read_checkpoint
from fsbench.backbones.families import TIMM
from fsbench.backbones.find_weights import candidates, find_weights
from fsbench.backbones.networks import BackboneInfo, Extractor
from fsbench.data.transforms import timm_transform
from fsbench.errors import FsbenchError
from fsbench.io.files import sha256_of

_HUB_FILES = ("model.safetensors", "pytorch_model.bin", "open_clip_model.safetensors", "open_clip_pytorch_model.bin")
_FILTERS = ("checkpoint_filter_fn", "pretrained_filter_fn", "_filter_fn", "_filter_torchvision_pretrained")
_SIZES = ("feature_dim", "head_hidden_size", "num_features")  # the last can be that of a layer before the output


def refuse_unknown_timm(name: str) -> None:
    """Refuse `timm/<name>` if timm has no such model, or no such weights of it, with the nearest names."""
    model = name.removeprefix(TIMM)
    if not timm.is_model(model):  # names that lead to the network, such as hf-hub:…, are not models
        near = difflib.get_close_matches(model, timm.list_models(), n=5, cutoff=0.5)
        hint = f"Nearest: {', '.join(near)}." if near else "See timm.list_models() for its names."
        raise FsbenchError(f"timm has no model {model!r}.", hint)
    architecture, _, tag = model.partition(".")
    known = [full.partition(".")[2] for full in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in known:
        hint = f"It has: {', '.join(known)}." if known else f"It has none; use timm/{architecture}."
        raise FsbenchError(f"timm has no weights {tag!r} of {architecture}.", hint)


def timm_backbone(name: str, weights: str | Path | None, seed: int | None) -> Extractor:
    """Build `timm/<name>` without its head; weights must fit it exactly, after timm's own conversion of the file."""
    model = name.removeprefix(TIMM)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed or 0)
            network: Any = timm.create_model(model, num_classes=0)
    except Exception as error:  # timm raises many exception types
        raise FsbenchError(f"timm cannot build {model!r}: {error}") from error
    digest, metadata, renamed = "", {}, ""
    if weights is not None:
        checkpoint = read_checkpoint(Path(weights))
        named, wanted = getattr(network, "pretrained_cfg", {}).get("classifier") or (), network.state_dict()
        heads = tuple(f"{head}." for head in ([named] if isinstance(named, str) else named))
        converted = _converted(network, model, checkpoint.tensors).items()
        tensors = {key: value for key, value in converted if key in wanted or not key.startswith(heads)}
        if not tensors.keys() & wanted.keys() and (in_order := _in_order(network, checkpoint.tensors)):
            tensors, renamed = in_order, f"{len(in_order)} tensors matched by order and shape, as the names are others"
        fill(network, tensors, checkpoint.path, f"timm's {model}")
        digest, metadata = sha256_of(checkpoint.path), dict(checkpoint.metadata)
    config = resolve_model_data_config(network)
    dimension = next(int(size) for attribute in _SIZES if (size := getattr(network, attribute, None)))
    outputs = getattr(network, "pretrained_cfg", {}).get("num_classes")
    kind = "projection" if "clip" in model and outputs != 1000 else "classifier"  # ImageNet's classes
    taken = f"{dimension} features, taken before the {kind} to {outputs}, which is left out"
    info = BackboneInfo(
        name=name,
        family=name,
        feature_dim=dimension,
        weights=f"none, seed {seed}" if weights is None else Path(weights).name,
        sha256=digest,
        image_size=config["input_size"][-1],
        transform=timm_transform(config),
        metadata=metadata,
        note="; ".join(filter(None, [taken if outputs else "", renamed])),
    )
    return Extractor(network, info)


def _converted(network: Any, model: str, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors under timm's names: the model's own module knows the files that its authors have published."""
    module = sys.modules[timm.model_entrypoint(model.partition(".")[0]).__module__]
    convert = next((getattr(module, name) for name in _FILTERS if hasattr(module, name)), None)
    if convert is None:
        return tensors
    # Files of other networks can make it fail in any way; then the tensors themselves tell what does not fit.
    with contextlib.suppress(Exception), torch.no_grad():
        with_network = len(inspect.signature(convert).parameters) > 1
        converted = convert(dict(tensors), network) if with_network else convert(dict(tensors))
        if all(isinstance(value, torch.Tensor) for value in converted.values()):
            return dict(converted)
    return tensors


def _in_order(network: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The tensors under the network's names, for a file that names its layers otherwise (`_conv_stem.weight`).

    Every tensor must have the shape and the last word (`weight`, `running_mean`) of its counterpart; what the file has
    beyond them is the weight and bias of a classifier. Otherwise None.
    """

    def kinds(state: Mapping[str, Tensor]) -> list[tuple[str, tuple[int, ...]]]:
        return [(name.rpartition(".")[2], tuple(tensor.shape)) for name, tensor in state.items()]

    wanted, stored = network.state_dict(), kinds(tensors)
    rest = [name for name, _ in stored[len(wanted) :]]
    if stored[: len(wanted)] != kinds(wanted) or rest not in ([], ["weight", "bias"]):
        return None
    return dict(zip(wanted, tensors.values(), strict=False))


def find_timm_weights(root: Path, dataset: str, name: str, *, pretrained: bool = False) -> Path:
    """The weights file of `timm/<name>`: under `root`, else in the caches of Hugging Face and torch hub.

    Under `root` it is `<dataset>/timm/<name>.*`, or `timm/<name>.*` for all data sets. With `pretrained` only the
    published file counts, which timm downloads if it is in no cache.
    """
    refuse_unknown_timm(name)
    if not pretrained and (own := candidates(root, dataset, name) or candidates(root, "", name)):
        return own[0] if len(own) == 1 else find_weights(root, own[0].relative_to(root).parts[0], name)
    file = _cached(name) or (_download(name) if pretrained else None)
    if file is None:
        places = f"{root / dataset / name}.*, {root / name}.* and the caches of Hugging Face and torch hub"
        hint = "Download the published ones with --pretrained, give --weights FILE, or try out --random-weights 0."
        raise FsbenchError(f"No weights for {name} in {places}.", hint)
    return file


def _cached(name: str) -> Path | None:
    """The published weights, if they were downloaded: a file of Hugging Face's cache or of torch hub."""
    config: Any = timm.get_pretrained_cfg(name.removeprefix(TIMM))
    if config is not None and config.hf_hub_id:
        repository, _, revision = config.hf_hub_id.partition("@")
        for file in [config.hf_hub_filename] if config.hf_hub_filename else _HUB_FILES:
            if isinstance(path := try_to_load_from_cache(repository, file, revision=revision or None), str):
                return Path(path)
    if config is not None and config.url:
        place = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(str(config.url)).path).name
        return place if place.is_file() else None
    return None


def _download(name: str) -> Path | None:
    model = name.removeprefix(TIMM)
    config: Any = timm.get_pretrained_cfg(model)
    if config is None or not (config.hf_hub_id or config.url):
        raise FsbenchError(f"timm publishes no weights of {model}.", "Give a file with --weights FILE.")
    try:
        timm.create_model(model, pretrained=True, num_classes=0)  # leaves them in the cache
    except Exception as error:  # of any of the libraries that it downloads with
        address = f"https://huggingface.co/{config.hf_hub_id}" if config.hf_hub_id else config.url
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        hint = f"Connect to the network, or download {address} elsewhere and give it with --weights FILE."
        raise FsbenchError(f"timm could not download the weights of {model}: {reason}", hint) from error
    return _cached(name)
