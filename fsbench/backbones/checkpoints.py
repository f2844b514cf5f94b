"""Checkpoint files of the field: reading any container without executing it, recognising and filling the network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fsbench.backbones.families import BACKBONES, FAMILIES, S2M2_NAMES, Family, has_line
from fsbench.errors import FsbenchError
from fsbench.io.files import require_regular
from fsbench.io.torch_files import is_legacy, is_safetensors, read_safetensors, read_torch

CONTAINERS = ("state_dict", "state", "model", "embedding", "params", "model_sd")
WRAPPERS = ("feature.", "emb_func.", "encoder.")


class Checkpoint(NamedTuple):
    """The tensors of a checkpoint under their own names."""

    path: Path
    tensors: Mapping[str, Tensor]  # by name, without `module.` and without the wrapper; heads included
    wrapper: str  # what stood before the names of the backbone: "feature.", "emb_func.", "encoder." or ""
    metadata: Mapping[str, str]  # the free text of a safetensors header


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the tensors of a safetensors file or of a torch file, new or old, in any known container."""
    metadata: Mapping[str, str] = {}
    require_regular(path)
    try:
        with path.open("rb") as file:
            start = file.read(64)
        if is_safetensors(start):
            tensors, metadata = read_safetensors(path)
        elif start.startswith(b"PK\x03\x04") or is_legacy(start):
            tensors = _unwrap(path, read_torch(path))
        else:
            message = f"{path} is not a checkpoint: expected a torch or safetensors file, found one that starts with"
            raise FsbenchError(f"{message} {start[:12]!r}.", "If it is an archive, unpack it; else download it again.")
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}."
        raise FsbenchError(message, "Check the path of the weights.") from error
    stripped, wrapper = _strip_wrappers(tensors)
    return Checkpoint(path, stripped, wrapper, metadata)


def _unwrap(path: Path, content: object) -> dict[str, Tensor]:
    """Find the state dict: at the top, or under one of the names that containers give it."""
    outer = content if isinstance(content, Mapping) else {}
    for candidate in (*(outer.get(name) for name in CONTAINERS), outer):
        entries = candidate.items() if isinstance(candidate, Mapping) else ()
        tensors = {str(key): value for key, value in entries if isinstance(value, Tensor)}
        if tensors:
            return tensors
    listed = ", ".join(repr(key) for key in list(outer)[:8])
    message = f"{path} holds no weights by name but a {type(content).__name__}{f' of {listed}' if listed else ''}."
    raise FsbenchError(message, "Save the network's state_dict alone.")


def _strip_wrappers(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """The tensors under the backbone's own names, without `module.`, and the prefix of the wrapper or ""."""
    names = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
    for wrapper in WRAPPERS:
        inner = {name.removeprefix(wrapper): names[name] for name in names if name.startswith(wrapper)}
        if inner:
            return {name.removeprefix("module."): tensor for name, tensor in inner.items()}, wrapper
    return names, ""


HEADS = re.compile(r"(fc|linear|classifier|rotationLinear|linear_rot|rotate)\..+")


class Recognised(NamedTuple):
    """A checkpoint whose network is known."""

    family: Family
    architecture: Mapping[str, Any]  # widths, depth and other options of the network, read from the tensors
    tensors: Mapping[str, Tensor]  # the weights of the backbone under the names of this package, without heads


def recognise(checkpoint: Checkpoint, declared: str | None = None) -> Recognised:
    """Decide from names and shapes which network a checkpoint belongs to, and how wide and deep it is.

    `declared` is the family that fsbench wrote into its own file: its key names do not tell all families apart.
    """
    own = {name: tensor for name, tensor in checkpoint.tensors.items() if not HEADS.fullmatch(name)}
    lines = _describe(checkpoint)
    matches = [(row, keys) for row in FAMILIES.values() for keys in row.keys if keys.matches(lines)]
    if not matches:
        raise _unknown(checkpoint, own, lines)
    family, keys = matches[0]
    tensors = {keys.rename(name): tensor for name, tensor in own.items()}
    if declared is not None and (stated := FAMILIES.get(declared)) is not None and stated.model == family.model:
        family = stated
    return Recognised(family, _architecture(family, tensors), tensors)


def _describe(checkpoint: Checkpoint) -> str:
    """One line per tensor, as `KeyNames` reads them."""
    lines = [f"wrapper {checkpoint.wrapper}"] if checkpoint.wrapper else []
    for name, tensor in checkpoint.tensors.items():
        head = "head " if HEADS.fullmatch(name) else ""
        lines.append(f"{head}{name} {'×'.join(map(str, tensor.shape))}")
    return "\n".join(lines)


def _unknown(checkpoint: Checkpoint, own: Mapping[str, Tensor], lines: str) -> FsbenchError:
    if has_line(lines, S2M2_NAMES):
        which = "S2M2 averages the last maps and LibFewShot takes their maximum, under the same names"
        hint = "Use S2M2's file with its head (linear.*), or LibFewShot's file of the whole method (emb_func.*)."
        return FsbenchError(f"{checkpoint.path} does not say which wide ResNet it is: {which}.", hint)
    message = f"{checkpoint.path} is not the checkpoint of a known {' or '.join(BACKBONES)}"
    names = f"it has {len(own)} tensors: {', '.join(list(own)[:6])}, …"
    return FsbenchError(f"{message}; {names}.", "For any other network give its timm name: --backbone timm/<name>.")


def _architecture(family: Family, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The widths, from the first convolution of every part, and the depth."""
    standard, widths, depth = family.shape.standard, [], {}
    for part, usual in zip(family.shape.parts, standard["widths"], strict=True):
        first = tensors.get(f"{part}conv1.weight", tensors.get(f"{part}conv.weight"))
        widths.append(usual if first is None else len(first))
    if "blocks" in standard:
        blocks = {match[1] for name in tensors if (match := re.match(r"layer1\.(\d+)\.", name))}
        depth["blocks"] = len(blocks) or standard["blocks"]
    return {"widths": tuple(widths), **depth, **family.options}


def fill(network: nn.Module, tensors: Mapping[str, Tensor], path: Path, title: str) -> None:
    """Put the tensors of a file into a network, which may be on the meta device; they must fit and be finite."""
    expected = network.state_dict()
    # Counters are not in files older than torch 0.4.1, and have no effect on features.
    counters = {name: torch.zeros((), dtype=torch.long) for name in expected if name.endswith("num_batches_tracked")}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    optional = counters.keys() - tensors.keys()
    wanted = {name: tuple(tensor.shape) for name, tensor in expected.items() if name not in optional}
    if shapes != wanted:
        names = [name for name in {**wanted, **shapes} if wanted.get(name) != shapes.get(name)]
        listed = _listed(
            [f"{name} {shapes.get(name, 'missing')}, expected {wanted.get(name, 'none')}" for name in names]
        )
        fitting = sum(shapes.get(name) == shape for name, shape in wanted.items())
        message = f"{path} is not {title}: {fitting} of its {len(wanted)} tensors fit. {listed}."
        raise FsbenchError(message, "Use the file as it was published, or the backbone it was trained with.")
    tensors = {**counters, **tensors}
    state = {
        name: tensors[name].detach().to(tensor.dtype).clone(memory_format=torch.contiguous_format)
        for name, tensor in expected.items()
    }
    broken = [name for name, tensor in state.items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        message = f"{path} holds weights that are not finite numbers: {_listed(broken)}."
        raise FsbenchError(message, "The training diverged or the file is damaged; use another one.")
    network.load_state_dict(state, strict=True, assign=True)


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names[:5]) + ("; …" if len(names) > 5 else "")
