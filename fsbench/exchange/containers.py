"""Kinds of files: torch, npz, npy, pickle and S2M2's HDF5, recognised by their first bytes and read as plain arrays."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import torch

from fsbench.errors import FsbenchError, missing_file
from fsbench.io.files import require_regular
from fsbench.io.hdf5 import attribute_of
from fsbench.io.pickles import read_plain_pickle, replaced
from fsbench.io.torch_files import is_legacy, is_safetensors, read_torch

REPAIR = "The file is truncated, damaged or not what it claims to be: copy it again, or repair it where it was made."
_SAVE_NPZ = "Save features and labels with numpy.savez(FILE, features=…, labels=…)."
_START = 4096
_S2M2_ARRAYS = ("all_feats", "all_labels", "count")
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"


@contextmanager
def reading(path: Path, container: str) -> Iterator[None]:
    """Turn exceptions of libraries on damaged files into one clear error; name file and remedy in all errors."""
    require_regular(path)
    try:
        yield
    except FsbenchError as error:
        named = error.message if str(path) in error.message else f"{path}: {error.message}"
        raise FsbenchError(named, error.hint or REPAIR) from error
    except Exception as error:  # libraries raise many exception types for damage
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise FsbenchError(f"{path} cannot be read as {container}: {reason}.", REPAIR) from error


def text_of(value: object) -> str | None:
    """A key or a name as text, if it is one."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return value if isinstance(value, str) else None


def open_file(path: Path) -> tuple[str, object]:
    """The kind of a file, with its article, and its content: dicts and lists of arrays and plain values."""
    if not path.exists():
        raise missing_file(path, "Check the path.")
    with reading(path, "a file of features"), path.open("rb") as file:
        start = file.read(_START)
    kind = _kind(path, start)
    with reading(path, kind):
        return kind, READERS[kind](path)


def _kind(path: Path, start: bytes) -> str:
    """The kind of a file by its first bytes, and those of zip archives by the names of their members."""
    members: list[str] = []
    if start.startswith(b"PK\x03\x04"):
        with reading(path, "a zip archive"), zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    if _HDF5_MAGIC in (start[:8], start[512:520]):  # at the beginning, or after the seal of fsbench's own files
        return "an HDF5 file"
    if is_legacy(start) or any(name.endswith("/data.pkl") for name in members):
        return "a torch file"
    if members and all(name.endswith(".npy") for name in members):
        return "an npz archive"
    if start.startswith(b"\x93NUMPY"):
        return "an npy file"
    if start[:1] == b"\x80" and not is_safetensors(start):  # protocol 2 or later
        return "a pickle"
    message = f"{path} is not a feature file that fsbench recognises; it starts with {start[:12]!r}."
    raise FsbenchError(message, _SAVE_NPZ)


def _read_hdf5(path: Path) -> object:
    """The three arrays that S2M2 and CloserLook write."""
    with h5py.File(path, "r") as file:
        if str(attribute_of(file, "format")).startswith("fsbench"):
            raise FsbenchError(f"{path} is a file of fsbench already.", "Feature files can be used as they are.")
        if not all(isinstance(file.get(name), h5py.Dataset) for name in _S2M2_ARRAYS):
            listed = ", ".join(list(file)[:6]) or "nothing"
            message = f"{path} is an HDF5 file without {', '.join(_S2M2_ARRAYS)}; it holds {listed}."
            raise FsbenchError(message, _SAVE_NPZ)
        return {name: np.asarray(file[name][()]) for name in _S2M2_ARRAYS}


def _as_array(value: object) -> object:
    """A tensor as an array, numpy's numbers too; other values as they are."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value) if isinstance(value, np.number) else value
    if value.dtype.is_floating_point and value.dtype not in {torch.float16, torch.float32, torch.float64}:
        value = value.float()  # numpy has no bfloat16
    return value.detach().cpu().numpy()


def _read_npz(path: Path) -> object:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


READERS: Mapping[str, Callable[[Path], object]] = {
    "an HDF5 file": _read_hdf5,
    "a torch file": lambda path: replaced(read_torch(path), _as_array, {}),
    "an npz archive": _read_npz,
    "an npy file": partial(np.load, allow_pickle=False),
    "a pickle": read_plain_pickle,
}
