"""Kinds of files: torch, npz, npy, pickle and S2M2's HDF5, recognised by their first bytes and read as plain arrays.

A layout then recognises rows in the content of a file.
"""

from __future__ import annotations

import tarfile
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import torch

from fsbench.errors import FsbenchError, missing_file
from fsbench.io.hdf5 import attribute_of
from fsbench.io.pickles import read_plain_pickle, replaced
from fsbench.io.torch_files import is_legacy, is_safetensors, read_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

REPAIR = "The file is truncated, damaged or not what it claims to be: copy it again, or repair it where it was made."
EXTRACT = "Extract features first: fsbench extract --data FOLDER."
_SAVE_NPZ = "Save features and labels with numpy.savez(FILE, features=…, labels=…)."
_START = 4096
_S2M2_ARRAYS = ("all_feats", "all_labels", "count")
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_TEXT_PICKLES = (b"ccollections\n", b"(dp", b"(lp", b"(d.", b"(l.", b"}q", b"]q")  # protocols 0 and 1
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF")
_ARCHIVES = (b"PK", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"Rar!")


@dataclass(frozen=True)
class Part:
    """Rows of one split."""

    split: str  # `base`, `val` or `novel`; empty if the file does not say
    features: NDArray[Any] | None  # (M, D), or None if the file has labels only
    labels: NDArray[Any] | None  # (M,) whole numbers or names, or None if the file has features only
    class_names: tuple[str, ...] = ()  # of the classes 0, 1, …, where the file gives them
    images: tuple[str, ...] = ()  # M names, or none


@dataclass(frozen=True)
class Recognised:
    """The rows that a layout recognises in a file, and remarks on them."""

    parts: Sequence[Part]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """A way of laying out features in dicts, lists and arrays."""

    name: str
    recognise: Callable[[object], bool]
    read: Callable[[Any, str, str], Recognised]  # from content, name of the data set, and the split the user states


@contextmanager
def reading(path: Path, container: str) -> Iterator[None]:
    """Turn exceptions of libraries on damaged files into one clear error; name file and remedy in all errors."""
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


def is_table(value: object) -> bool:
    """Whether a value is an array of real numbers with two axes."""
    return isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind == "f"


@dataclass(frozen=True)
class Container:
    """A kind of file; its name has an article: `a pickle`. `read` gives dicts and lists of arrays and plain values."""

    name: str
    recognise: Callable[[Path, bytes], bool]
    read: Callable[[Path], object]


def open_file(path: Path) -> tuple[str, object]:
    """The kind of a file, with its article, and its content."""
    try:
        with path.open("rb") as file:
            start = file.read(_START)
    except IsADirectoryError:
        raise FsbenchError(f"{path} is a folder.", "Name the files in it.") from None
    except FileNotFoundError:
        raise missing_file(path, "Check the path.") from None
    except OSError as error:
        raise FsbenchError(f"{path} cannot be read: {error.strerror or error}.", "Check its permissions.") from error
    for container in CONTAINERS:
        if container.recognise(path, start):
            with reading(path, container.name):
                return container.name, container.read(path)
    raise _foreign_file(path, start)


def _read_hdf5(path: Path) -> object:
    """The three arrays that S2M2 and CloserLook write."""
    with h5py.File(path, "r") as file:
        kind = attribute_of(file, "format")
        if kind == "fsbench-features":
            raise FsbenchError(f"{path} is a feature file of fsbench already.", f"Use it as it is: {path}.")
        if kind == "fsbench-scatter":
            message = f"{path} is a scatter file of fsbench: statistics of base classes, no features."
            raise FsbenchError(message, "Give the feature file it belongs to.")
        if not all(isinstance(file.get(name), h5py.Dataset) for name in _S2M2_ARRAYS):
            listed = ", ".join(list(file)[:6]) or "nothing"
            message = f"{path} is an HDF5 file without {', '.join(_S2M2_ARRAYS)}; it holds {listed}."
            raise FsbenchError(message, _SAVE_NPZ)
        return {name: np.asarray(file[name][()]) for name in _S2M2_ARRAYS}


def _is_torch(path: Path, start: bytes) -> bool:
    """Whether a file is a zip archive with an index of tensors, or has the mark of old torch files."""
    return is_legacy(start) or any(name.endswith("/data.pkl") for name in _members(path, start))


def _read_torch(path: Path) -> object:
    return replaced(read_torch(path), _as_array, {})


def _as_array(value: object) -> object:
    """A dense tensor of real numbers as an array, numpy's numbers too; other values as they are."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value) if isinstance(value, np.number) else value
    if value.layout is not torch.strided or value.is_quantized or value.is_complex() or value.is_meta:
        raise FsbenchError("It holds a tensor that is not a plain one of real numbers.", "Save it dense.")
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


def _read_npy(path: Path) -> Any:
    return np.load(path, allow_pickle=False)


def _is_pickle(path: Path, start: bytes) -> bool:
    """Whether a file begins like a pickle; protocols from 2 on have a mark, older ones begin with their content."""
    marked = start[:1] == b"\x80" and not is_legacy(start) and not is_safetensors(start)
    return marked or start.startswith(_TEXT_PICKLES)


def _members(path: Path, start: bytes) -> list[str]:
    """The names of a zip archive's members; none if the file is not an archive."""
    if not start.startswith(b"PK\x03\x04"):
        return []
    with reading(path, "a zip archive"), zipfile.ZipFile(path) as archive:
        return archive.namelist()


def _foreign_file(path: Path, start: bytes) -> FsbenchError:
    """The error for a file that no container recognises."""
    if not start:
        return FsbenchError(f"{path} is empty.", "Download or copy it again.")
    if start.startswith(_IMAGES):
        return FsbenchError(f"{path} is an image.", EXTRACT)
    if start.lstrip()[:9].lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return FsbenchError(f"{path} is a web page, saved in place of the file.", "Download it in a browser.")
    if start.startswith(b"version https://git-lfs"):
        return FsbenchError(f"{path} is a Git LFS pointer, not the file itself.", "Fetch it with `git lfs pull`.")
    if start.startswith(_ARCHIVES) or tarfile.is_tarfile(path):
        return FsbenchError(f"{path} is an archive.", f"Unpack it, and name the files in it. Images: {EXTRACT}")
    message = f"{path} is not a feature file that fsbench recognises; it starts with {start[:12]!r}."
    return FsbenchError(message, _SAVE_NPZ)


CONTAINERS = (  # in the order in which they are tried
    # The mark is at the beginning, or after the seal of fsbench's own files.
    Container("an HDF5 file", lambda path, start: _HDF5_MAGIC in (start[:8], start[512:520]), _read_hdf5),
    Container("a torch file", _is_torch, _read_torch),
    Container("an npz archive", _is_npz, _read_npz),
    Container("a numpy array", lambda path, start: start.startswith(b"\x93NUMPY"), _read_npy),
    Container("a pickle", _is_pickle, read_plain_pickle),
)
