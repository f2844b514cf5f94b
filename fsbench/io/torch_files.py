"""Torch and safetensors files, read without executing anything in them: `weights_only=True` is the defence."""

from __future__ import annotations

import argparse
import io
import pickle
import re
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.serialization import safe_globals

from fsbench.errors import FsbenchError

_LEGACY_MAGIC = bytes.fromhex("8a0a6cfc9c46f9206aa85019")  # after the two bytes of the pickle protocol
# Types beyond torch's own in published checkpoints: the options of RFS, accuracies stored as numpy numbers.
_HARMLESS_TYPES: list[Any] = [
    argparse.Namespace, np.dtype, *(type(np.dtype(code)) for code in ("f2", "f4", "f8", "i4", "i8", "?")),
    *((np.float64(0).__reduce__()[0], f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
]  # fmt: skip


def is_legacy(start: bytes) -> bool:
    """Whether a file begins like a torch file of the kind written before torch 1.6."""
    return start[:1] == b"\x80" and start[2:14] == _LEGACY_MAGIC


def is_safetensors(start: bytes) -> bool:
    """Whether a file begins like safetensors: eight bytes for the length of a JSON header, the last four of them zero.

    Ask this before anything about pickles: the length may begin with the byte that pickles begin with.
    """
    return start[4:9] == b"\0\0\0\0{"


def read_torch(path: Path) -> object:
    """Read the tensors and plain values of a torch file, new or old."""
    with path.open("rb") as file:
        if not is_legacy(file.read(64)):
            _check_archive(path)
    try:
        return _load(path)
    except Exception as error:  # torch raises many exception types for damage
        if foreign := re.search(r"GLOBAL (\S+)", str(error)):
            message = f"{path} is a pickle that asks for {foreign[1]!r}, which weights do not need."
            hint = "If you trust the file, open it in the program that wrote it and save model.state_dict() alone."
            raise FsbenchError(f"{message} Nothing in it was executed.", hint) from error
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if isinstance(error, pickle.UnpicklingError):
            reason = "its index is not one of tensors"  # torch's own text advises to execute the file
        raise damaged(path, f"torch cannot read it ({reason})") from error


def read_storage(content: bytes) -> Tensor:
    """The numbers, (n,), of an old torch file that holds one storage, as pickled tensors have it inside."""
    stored: Any = _load(io.BytesIO(content))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on storages that have a type
        return torch.tensor([], dtype=stored.dtype).set_(stored.untyped())


def _load(source: Path | IO[bytes]) -> object:
    with safe_globals(_HARMLESS_TYPES), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on old pickle protocols, which load all the same
        return torch.load(source, map_location="cpu", weights_only=True)


def _check_archive(path: Path) -> None:
    """Compare a torch file, which is a zip archive, with its checksums: torch does not."""
    try:
        with zipfile.ZipFile(path) as archive:
            tensors, broken = any(name.endswith("/data.pkl") for name in archive.namelist()), archive.testzip()
    except Exception as error:  # zipfile raises many exception types for damage
        raise damaged(path, "its start is a torch checkpoint's, its list of contents is not readable") from error
    if broken is not None:
        raise damaged(path, f"the checksum of {broken} differs")
    if not tensors:
        raise FsbenchError(f"{path} is a zip archive that torch has not saved.", "Unpack it: the weights are inside.")


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors of a safetensors file, and the free text of its header."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        raise damaged(path, f"not a valid safetensors file ({error})") from error


def damaged(path: Path, what: str) -> FsbenchError:
    """The error for a truncated or damaged file."""
    return FsbenchError(f"{path} is truncated or damaged: {what}.", "Download or copy it again and compare the sizes.")
