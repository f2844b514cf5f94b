"""Models of timm as backbones: their names, where their weights are found, and how published files fit them."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import timm
import torch
from huggingface_hub import constants
from timm.data.config import resolve_model_data_config

from fsbench.backbones.base import BackboneInfo, DataConfig, Extractor
from fsbench.backbones.checkpoints import fill, read_checkpoint
from fsbench.backbones.families import TIMM
from fsbench.backbones.find_weights import candidates, find_weights
from fsbench.errors import FsbenchError
from fsbench.io.files import sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

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
    refuse_unknown_timm(name)
    model = name.removeprefix(TIMM)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed or 0)
            network: Any = timm.create_model(model, num_classes=0)
    except Exception as error:  # each of its thousand models has its own ways to refuse
        raise FsbenchError(f"timm cannot build {model!r}: {error}") from error
    digest, metadata = "", {}
    if weights is not None:
        checkpoint = read_checkpoint(Path(weights))
        converted = _converted(network, model, checkpoint.tensors)
        fill(network, _without_head(network, converted), checkpoint.path, f"timm's {model}")
        digest, metadata = sha256_of(checkpoint.path), dict(checkpoint.metadata)
    config = resolve_model_data_config(network)
    dimension = next(int(size) for attribute in _SIZES if (size := getattr(network, attribute, None)))
    outputs = getattr(network, "pretrained_cfg", {}).get("num_classes")
    kind = "projection" if "clip" in model and outputs != 1000 else "classifier"  # ImageNet's classes
    info = BackboneInfo(
        name=name,
        family=name,
        feature_dim=dimension,
        weights=f"none, seed {seed}" if weights is None else _weights_name(Path(weights), name),
        sha256=digest,
        image_size=config["input_size"][-1],
        data_config=DataConfig(**{key: config[key] for key in DataConfig.__dataclass_fields__}),
        metadata=metadata,
        note=f"{dimension} features, taken before the {kind} to {outputs}, which is left out" if outputs else "",
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


def _without_head(network: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    named = getattr(network, "pretrained_cfg", {}).get("classifier") or ()
    heads = tuple(f"{head}." for head in ([named] if isinstance(named, str) else named))
    wanted = network.state_dict()
    return {key: value for key, value in tensors.items() if key in wanted or not key.startswith(heads)}


def find_timm_weights(root: Path, dataset: str, name: str, *, pretrained: bool = False) -> Path:
    """The weights file of `timm/<name>`: under `root`, else in the caches of Hugging Face and torch hub.

    Under `root` it is `<dataset>/timm/<name>.*`, or `timm/<name>.*` for all data sets. With `pretrained` only the
    published file counts, which timm downloads if it is in no cache.
    """
    refuse_unknown_timm(name)
    if not pretrained and (own := candidates(root, dataset, name) or candidates(root, "", name)):
        return own[0] if len(own) == 1 else find_weights(root, own[0].relative_to(root).parts[0], name)
    places = _cache_places(name)
    if (file := next((found for place in places for found in _cached(place)), None)) is not None:
        return file
    if not pretrained:
        looked = "".join(f"\n  {place}" for place in (root / dataset / f"{name}.*", root / f"{name}.*", *places))
        raise FsbenchError(
            f"No weights for {name}. Looked for:{looked}",
            "Let timm download the published ones with --pretrained, give a file with --weights FILE, or try things "
            "out without trained weights: --random-weights 0",
        )
    return _download(name, places)


def _cache_places(name: str) -> list[Path]:
    """Where published weights lie once they were downloaded: a repository of Hugging Face, or a file of torch hub."""
    config = timm.get_pretrained_cfg(name.removeprefix(TIMM))
    places = []
    if config is not None and config.hf_hub_id:
        repository = config.hf_hub_id.partition("@")[0].replace("/", "--")
        places.append(Path(constants.HF_HUB_CACHE) / f"models--{repository}")
    if config is not None and config.url:
        places.append(Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(str(config.url)).path).name)
    return places


def _cached(place: Path) -> list[Path]:
    """The weights file at such a place, if it is there; of several revisions, that of `main`."""
    if place.is_file():
        return [place]
    snapshots = sorted(folder for folder in (place / "snapshots").glob("*") if folder.is_dir())
    main = place / "refs" / "main"
    if main.is_file():
        snapshots = [folder for folder in snapshots if folder.name == main.read_text().strip()]
    files = [next((folder / name for name in _HUB_FILES if (folder / name).is_file()), None) for folder in snapshots]
    present = [file for file in files if file is not None]
    if len(present) > 1:
        revisions = ", ".join(file.parent.name for file in present)
        raise FsbenchError(f"{place} has several revisions: {revisions}.", "Choose one with --weights FILE.")
    return present


def _download(name: str, places: list[Path]) -> Path:
    model = name.removeprefix(TIMM)
    if not places:
        raise FsbenchError(f"timm publishes no weights of {model}.", "Give a file with --weights FILE.")
    try:
        timm.create_model(model, pretrained=True, num_classes=0)  # leaves them in the cache
        return next(found for place in places for found in _cached(place))
    except Exception as error:  # of any of the libraries that it downloads with
        cause: BaseException = error
        while (behind := cause.__cause__ or cause.__context__) is not None:
            cause = behind
        reason = next(iter(str(cause).strip().splitlines()), "") or type(cause).__name__
        raise FsbenchError(
            f"timm could not download the weights of {model}: {reason}",
            "Connect to the network, or download the file elsewhere and give it with --weights FILE: "
            f"{_address(model)}",
        ) from error


def _address(model: str) -> str:
    config: Any = timm.get_pretrained_cfg(model)
    return f"https://huggingface.co/{config.hf_hub_id}" if config.hf_hub_id else str(config.url)


def _weights_name(path: Path, backbone: str) -> str:
    """The name of a weights file; in a cache of Hugging Face, where all are called the same, repository and revision.

    The repository is left out where it is called like the backbone.
    """
    found = re.search(r"/models--([^/]+)/snapshots/([^/]+)/[^/]+$", path.as_posix())
    if found is None:
        return path.name
    repository = found[1].replace("--", "/")
    return f"{'' if repository == backbone else f'{repository} '}revision {found[2][:8]}"
