"""The one door to a backbone: by name, with weights from a file or fresh from a seed."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import timm
import torch

from fsbench.backbones import resnet12, resnet18, wideresnet
from fsbench.backbones.checkpoints import Checkpoint, read_checkpoint
from fsbench.backbones.fill import fill
from fsbench.backbones.info import BackboneInfo, Extractor
from fsbench.backbones.layouts import SAME_TENSORS, Recognised, recognise
from fsbench.backbones.timm_models import PREFIX, fresh, timm_backbone
from fsbench.errors import FsbenchError, unknown_name
from fsbench.files import sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping

BACKBONES = ("rn12", "rn18", "wrn")


def load_backbone(
    name: str,
    weights: str | Path | None = None,
    *,
    random_seed: int | None = None,
    width: float | None = None,
) -> Extractor:
    """Builds a backbone in eval mode.

    Args:
        name: "rn12", "rn18", "wrn" or "timm/<name>". The variant, its width and its depth are read from the
            weights.
        weights: A checkpoint. Nothing is ever downloaded.
        random_seed: Instead of weights: fresh ones, the same for the same seed.
        width: For fresh weights alone: the base width of rn12 and rn18 (64), the widening factor of wrn (10).
    """
    refuse_unknown(name)
    if (weights is None) == (random_seed is None):
        raise FsbenchError(
            f"Backbone {name!r} needs either a weights file or a random seed, found "
            f"{'neither' if weights is None else 'both'}.",
            "Give --weights FILE, or a seed for fresh weights.",
        )
    if width is not None and (weights is not None or name.startswith(PREFIX)):
        raise FsbenchError(
            "A width belongs to fresh weights of rn12, rn18 or wrn; otherwise it is given by the network.",
            "Leave it out.",
        )
    if name.startswith(PREFIX):
        extractor = timm_backbone(name, weights, random_seed)
    elif weights is not None:
        extractor = _from_file(name, Path(weights))
    else:
        extractor = _from_seed(name, random_seed, width)
    return extractor.eval()


def refuse_unknown(name: str) -> None:
    """Refuse a name that is no backbone, with the nearest one."""
    if name not in BACKBONES and not name.startswith(PREFIX):
        raise unknown_name("backbone", name, [*BACKBONES, "timm/<name>"])


def _from_file(name: str, path: Path) -> Extractor:
    checkpoint = read_checkpoint(path)
    facts = _own_facts(checkpoint)
    found = _as_declared(recognise(checkpoint), facts, path)
    if found.backbone != name:
        raise FsbenchError(
            f"Expected weights for {name}, found {found.title} ({found.family}) in {path}.",
            f"Use --backbone {found.backbone}, or another file.",
        )
    with torch.device("meta"):  # no memory until the tensors are known to fit
        network: Any = timm.create_model(found.model, **found.options)
    fill(network, found.tensors, path, f"{found.title} ({found.family})")
    declared = re.fullmatch(r"[1-9][0-9]{0,4}", str(facts.get("image_size", "")))
    usual = 224 if found.model == "fsbench_rn18_7x7" else None
    info = BackboneInfo(
        name,
        found.family,
        network.feature_dim,
        path.name,
        sha256_of(path),
        found.options,
        int(declared[0]) if declared else usual,
        metadata=checkpoint.metadata,
    )
    return Extractor(network, info)


def _own_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """What fsbench itself wrote into the header of a safetensors file; nothing for other files."""
    try:
        facts = json.loads(checkpoint.metadata.get("fsbench", "{}"))
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise FsbenchError(f"{checkpoint.path}: the header entry 'fsbench' is not a JSON object.")
    return facts


def _as_declared(found: Recognised, facts: Mapping[str, Any], path: Path) -> Recognised:
    """Takes the family that fsbench wrote down, for its own key names do not tell all families apart."""
    family = str(facts.get("family", found.family))
    if not any({family, found.family} <= same for same in SAME_TENSORS):
        raise FsbenchError(
            f"{path}: the header says {family!r}, but the tensors are of {found.title} ({found.family}).",
            "The file was altered; use another one.",
        )
    options = {**found.options, "max_pool": True} if family == "wrn-libfewshot" else found.options
    return replace(found, family=family, options=options)


def _from_seed(name: str, seed: int | None, width: float | None) -> Extractor:
    family, model, usual = {
        "rn12": ("rn12-easy", "fsbench_rn12", resnet12.STANDARD_WIDTHS),
        "rn18": ("rn18-simpleshot", "fsbench_rn18", resnet18.STANDARD_WIDTHS),
        "wrn": ("wrn-simpleshot", "fsbench_wrn", wideresnet.STANDARD_WIDTHS),
    }[name]
    options: dict[str, Any] = {"widths": usual if width is None else _widths_of(name, width)}
    if name == "wrn":
        options["blocks"] = wideresnet.STANDARD_BLOCKS
    network = fresh(model, seed, options)
    info = BackboneInfo(name, family, network.feature_dim, f"none, seed {seed}", architecture=options)
    return Extractor(network, info)


def _widths_of(name: str, width: float) -> tuple[int, ...]:
    smallest, whole = (1 / 16, True) if name == "wrn" else (1, float(width).is_integer())
    if not smallest <= width < math.inf or not whole:
        kind = "positive number" if name == "wrn" else "positive whole number"
        raise FsbenchError(f"The width of {name} must be a {kind}, found {width}.")
    if name == "wrn":
        return wideresnet.widths_of(width)
    return resnet12.widths_of(int(width)) if name == "rn12" else resnet18.widths_of(int(width))
