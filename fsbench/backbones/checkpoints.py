"""Checkpoint files of the field: reading any container without executing it, recognising and filling the network."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import timm
import torch
from torch import Tensor

from fsbench.backbones.families import BACKBONES, FAMILIES, S2M2_NAMES, Family, has_line
from fsbench.errors import FsbenchError
from fsbench.io.torch_files import damaged, is_legacy, is_safetensors, plain_pickle, read_safetensors, read_torch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import nn


CONTAINERS = ("state_dict", "state", "model", "embedding", "params", "model_sd")
WRAPPERS = ("feature.", "emb_func.", "encoder.")
_SAVE_STATE = "Save the network's state_dict alone."
FOREIGN_STARTS = {
    b"version https://git-lfs": ("a Git LFS pointer, not the file itself", "Fetch it with `git lfs pull`."),
    b"\x1f\x8b": ("a gzip archive", "Unpack it first."),
    b"BZh": ("a bzip2 archive", "Unpack it first."),
    b"\xfd7zXZ": ("an xz archive", "Unpack it first."),
    b"7z\xbc\xaf": ("a 7z archive", "Unpack it first."),
    b"Rar!": ("a RAR archive", "Unpack it first."),
    b"\x89HDF": ("an HDF5 file: features perhaps, not weights", "Give the weights of the backbone."),
    b"\x93NUMPY": ("a NumPy array: features perhaps, not weights", "Give the weights of the backbone."),
}


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint under their own names.

    Attributes:
        tensors: By name, without `module.` and without the wrapper; heads included.
        wrapper: What stood before the names of the backbone: "feature.", "emb_func.", "encoder." or "".
        metadata: The free text of a safetensors header.
    """

    path: Path
    tensors: Mapping[str, Tensor]
    wrapper: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the tensors of a safetensors file or of a torch file, new or old, in any known container."""
    if path.is_dir():
        raise FsbenchError(f"{path} is a folder; expected a checkpoint file.", "Name the file inside it.")
    metadata: Mapping[str, str] = {}
    try:
        with path.open("rb") as file:
            start = file.read(512)
        if not start:
            raise FsbenchError(f"{path} is empty.", "Download or copy it again.")
        if start.startswith(b"PK\x03\x04") or is_legacy(start):
            tensors = _unwrap(path, read_torch(path))
        elif is_safetensors(start):
            tensors, metadata = read_safetensors(path)
        elif start[:1] == b"\x80":
            raise plain_pickle(path)
        elif start[8:9] == b"{":  # a header of a length that cannot be true
            raise damaged(path, "not a valid safetensors file (its header is longer than any file)")
        else:
            raise _foreign(path, start)
        _check_tensors(path, tensors)
    except FileNotFoundError:
        raise FsbenchError(f"There is no file {path}.", "Check the path of the weights.") from None
    except OSError as error:
        raise FsbenchError(f"{path} cannot be read: {error.strerror or error}.") from error
    stripped, wrapper = _strip_wrappers(tensors)
    return Checkpoint(path, stripped, wrapper, metadata)


def _unwrap(path: Path, content: object) -> dict[str, Tensor]:
    """Find the state dict: at the top, or under one of the names that containers give it."""
    if isinstance(content, Tensor):
        message = f"{path} holds one tensor of shape {tuple(content.shape)}, not the weights of a network."
        raise FsbenchError(message, "It may be a file of features.")
    if not isinstance(content, Mapping):
        raise FsbenchError(f"{path} holds a {type(content).__name__}, expected a dictionary of tensors.", _SAVE_STATE)
    inner = (content.get(name) for name in CONTAINERS)
    for candidate in (*inner, content):
        entries = candidate.items() if isinstance(candidate, Mapping) else ()
        tensors = {str(key): value for key, value in entries if isinstance(value, Tensor)}
        if tensors:
            return tensors
    listed, places = ", ".join(repr(key) for key in list(content)[:8]), ", ".join(CONTAINERS)
    message = f"{path} holds no weights: no tensors at the top nor under {places}; found {listed}."
    raise FsbenchError(message, _SAVE_STATE)


def _check_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not plain numbers, or that claim more than the file holds by overlapping."""
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_complex() or tensor.is_meta:
            raise FsbenchError(f"{path}: {name} is not a plain tensor of real numbers.", "Save it dense.")
    claimed = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if claimed > path.stat().st_size:
        raise damaged(path, f"its tensors would take {claimed} bytes, the file has {path.stat().st_size}")


def _strip_wrappers(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """The tensors under the backbone's own names, without `module.`, and the prefix of the wrapper or ""."""
    names = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
    for wrapper in WRAPPERS:
        inner = {name.removeprefix(wrapper): names[name] for name in names if name.startswith(wrapper)}
        if inner:
            return {name.removeprefix("module."): tensor for name, tensor in inner.items()}, wrapper
    return names, ""


def _foreign(path: Path, start: bytes) -> FsbenchError:
    """The error for a file that is not a checkpoint, saying what it is."""
    if start.lstrip().lower().startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        message = f"{path} is a web page, saved in place of the file by a download that failed."
        return FsbenchError(message, "Open the address in a browser and download it there.")
    for magic, (what, hint) in FOREIGN_STARTS.items():
        if start.startswith(magic):
            return FsbenchError(f"{path} is {what}.", hint)
    if tarfile.is_tarfile(path):
        return _tar_archive(path)
    message = f"{path} is not a checkpoint: expected a torch or safetensors file, found one that starts with"
    return FsbenchError(f"{message} {start[:12]!r}.", "If the download came in parts, join them with `cat` first.")


def _tar_archive(path: Path) -> FsbenchError:
    try:
        with tarfile.open(path) as archive:
            members = [member.name for member in archive if member.isfile()]
    except (tarfile.TarError, EOFError):
        return damaged(path, "it is a tar archive whose contents cannot be listed")
    listed = ", ".join(members[:5]) or "nothing"
    more = f" and {len(members) - 5} more" if len(members) > 5 else ""
    message = f"{path} is a tar archive that contains {listed}{more}; expected one checkpoint."
    return FsbenchError(message, f"Unpack it with `tar -xf {path.name}` and give the checkpoint inside.")


HEADS = re.compile(r"(fc|linear|classifier|rotationLinear|linear_rot|rotate)\..+")


@dataclass(frozen=True)
class Recognised:
    """A checkpoint whose network is known.

    Attributes:
        architecture: Widths, depth and other options of the network, read from the tensors.
        tensors: The weights of the backbone under the names of this package, without heads.
    """

    family: Family
    architecture: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def recognise(checkpoint: Checkpoint, declared: str | None = None) -> Recognised:
    """Decide from names and shapes which network a checkpoint belongs to, and how wide and deep it is.

    `declared` is the family that fsbench wrote into its own file: its key names do not tell all families apart.
    """
    own = {name: tensor for name, tensor in checkpoint.tensors.items() if not HEADS.fullmatch(name)}
    lines = _describe(checkpoint)
    family, layout = next(
        ((row, layout) for row in FAMILIES.values() for layout in row.layouts if layout.matches(lines)), (None, None)
    )
    if family is None or layout is None:
        raise _unknown(checkpoint, own, lines)
    tensors = {layout.rename(name): tensor for name, tensor in own.items()}
    if len(tensors) < len(own):
        raise FsbenchError(f"{checkpoint.path} looks like {family.title} but names some parts twice.")
    if declared is not None:
        stated = FAMILIES.get(declared)
        if stated is None or stated.model != family.model:
            found = f"the tensors are of {family.title} ({family.name})"
            message = f"{checkpoint.path}: the header says {declared!r}, but {found}."
            raise FsbenchError(message, "The file was altered; use another one.")
        family = stated
    return Recognised(family, _architecture(family, tensors), tensors)


def _describe(checkpoint: Checkpoint) -> str:
    """One line per tensor, as `Layout` reads them."""
    lines = [f"wrapper {checkpoint.wrapper}"] if checkpoint.wrapper else []
    for name, tensor in checkpoint.tensors.items():
        head = "head " if HEADS.fullmatch(name) else ""
        lines.append(f"{head}{name} {'×'.join(map(str, tensor.shape))}")
    return "\n".join(lines)


def _unknown(checkpoint: Checkpoint, own: Mapping[str, Tensor], lines: str) -> FsbenchError:
    if has_line(lines, S2M2_NAMES):
        return FsbenchError(
            f"{checkpoint.path} is a wide ResNet of S2M2 or of LibFewShot, and does not say which: they share "
            "their key names, but S2M2 averages the last maps and LibFewShot takes their maximum.",
            "Use S2M2's file with its head (linear.*), or LibFewShot's file of the whole method (emb_func.*).",
        )
    return FsbenchError(
        f"{checkpoint.path} is not the checkpoint of a known {', '.join(BACKBONES[:-1])} or {BACKBONES[-1]}; "
        f"it has {len(own)} tensors: {', '.join(list(own)[:6])}, …. {_nearest(own)}",
        "For any other network give its timm name: --backbone timm/<name>.",
    )


def _nearest(own: Mapping[str, Tensor]) -> str:
    """How many tensor names of the nearest family a checkpoint has."""
    found = []
    for family in FAMILIES.values():
        with torch.device("meta"):
            network: Any = timm.create_model(family.model, **family.shape.standard, **family.options)
        wanted = {name for name in network.state_dict() if not name.endswith("num_batches_tracked")}
        names = max(len(wanted & {layout.rename(name) for name in own}) for layout in family.layouts)
        found.append((names, len(wanted), family.title))
    names, wanted_names, title = max(found, key=lambda row: row[0])
    return f"Nearest is {title}, with {names} of {wanted_names} names." if names else "No family has such names."


def _architecture(family: Family, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The widths, from the first convolution of every part or the next tensor if that is missing, and the depth."""
    standard, widths, depth = family.shape.standard, [], {}
    for part, usual in zip(family.shape.parts, standard["widths"], strict=True):
        first = (tensors.get(f"{part}{name}.weight") for name in ("conv1", "conv2", "bn2", "conv", "bn"))
        widths.append(next((tensor.shape[0] for tensor in first if tensor is not None and tensor.ndim), usual))
    if "blocks" in standard:
        blocks = {match[1] for name in tensors if (match := re.match(r"layer1\.(\d+)\.", name))}
        depth["blocks"] = len(blocks) or standard["blocks"]
    return {"widths": tuple(widths), **depth, **family.options}


def fill(network: nn.Module, tensors: Mapping[str, Tensor], path: Path, title: str) -> None:
    """Put tensors into a network, which may have been built on the meta device.

    Raises:
        FsbenchError: Tensors are missing, superfluous, of another shape, or not finite numbers. It says that the file
            `path` looks like `title` only if most tensors fit.
    """
    expected = network.state_dict()
    # Counters are not in files older than torch 0.4.1, and have no effect on features.
    counters = {name: torch.zeros((), dtype=torch.long) for name in expected if name.endswith("num_batches_tracked")}
    tensors = {**counters, **tensors}
    faults = {
        "missing": [name for name in expected if name not in tensors],
        "unexpected": [name for name in tensors if name not in expected],
        "of another shape": [
            f"{name} {tuple(tensors[name].shape)}, expected {tuple(wanted.shape)}"
            for name, wanted in expected.items()
            if name in tensors and tensors[name].shape != wanted.shape
        ],
    }
    report = [f"{len(names)} {kind}: {_listed(names)}" for kind, names in faults.items() if names]
    if report:
        shapes = {name: wanted.shape for name, wanted in expected.items() if name not in counters}
        fitting = sum(name in tensors and tensors[name].shape == shape for name, shape in shapes.items())
        verdict = f"looks like {title} but does not fit it" if 2 * fitting > len(shapes) else f"is not {title}"
        message = f"{path} {verdict}: {fitting} of {len(shapes)} tensors fit.\n" + "\n".join(report)
        raise FsbenchError(message, "Use the file as it was published, or the backbone it was trained with.")
    state = {
        name: tensors[name].detach().to(wanted.dtype).clone(memory_format=torch.contiguous_format)
        for name, wanted in expected.items()
    }
    broken = [name for name, tensor in state.items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        message = f"{path} holds weights that are not finite numbers: {_listed(broken)}."
        raise FsbenchError(message, "The training diverged or the file is damaged; use another one.")
    network.load_state_dict(state, strict=True, assign=True)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
