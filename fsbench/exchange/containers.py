"""Kinds of files: torch, npz, npy, pickle and S2M2's HDF5, recognised by their first bytes and read as plain arrays."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Container:
    """A kind of file; its name has an article: `a pickle`. `read` gives dicts and lists of arrays and plain values."""

    name: str
    recognise: Callable[[Path, bytes], bool]
    read: Callable[[Path], object]


def open_file(path: Path) -> tuple[str, object]:
    """The kind of a file, with its article, and its content."""
    if not path.exists():
        raise missing_file(path, "Check the path.")
    with reading(path, "a file of features"), path.open("rb") as file:
        start = file.read(_START)
    for container in CONTAINERS:
        if container.recognise(path, start):
            with reading(path, container.name):
                return container.name, container.read(path)
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


def _is_torch(path: Path, start: bytes) -> bool:
    """Whether a file is a zip archive with an index of tensors, or has the mark of old torch files."""
    return is_legacy(start) or any(name.endswith("/data.pkl") for name in _members(path, start))


def _as_array(value: object) -> object:
    """A tensor as an array, numpy's numbers too; other values as they are."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value) if isinstance(value, np.number) else value
    if value.dtype.is_floating_point and value.dtype not in {torch.float16, torch.float32, torch.float64}:
        value = value.float()  # numpy has no bfloat16
    return value.detach().cpu().numpy()


def _is_npz(path: Path, start: bytes) -> bool:
    """Whether a file is a zip archive of arrays only."""
    names = _members(path, start)
    return bool(names) and all(name.endswith(".npy") for name in names)


def _read_npz(path: Path) -> object:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _is_pickle(path: Path, start: bytes) -> bool:
    """Whether a file has the mark of pickles, of protocol 2 or later."""
    return start[:1] == b"\x80" and not is_legacy(start) and not is_safetensors(start)


def _members(path: Path, start: bytes) -> list[str]:
    """The names of a zip archive's members; none if the file is not an archive."""
    if not start.startswith(b"PK\x03\x04"):
        return []
    with reading(path, "a zip archive"), zipfile.ZipFile(path) as archive:
        return archive.namelist()


CONTAINERS = (  # in the order in which they are tried
    # The mark is at the beginning, or after the seal of fsbench's own files.
    Container("an HDF5 file", lambda path, start: _HDF5_MAGIC in (start[:8], start[512:520]), _read_hdf5),
    Container("a torch file", _is_torch, lambda path: replaced(read_torch(path), _as_array, {})),
    Container("an npz archive", _is_npz, _read_npz),
    Container("an npy file", lambda path, start: start.startswith(b"\x93NUMPY"), partial(np.load, allow_pickle=False)),
    Container("a pickle", _is_pickle, read_plain_pickle),
)
