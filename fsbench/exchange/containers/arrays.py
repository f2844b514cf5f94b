"""Files of arrays: numpy's `.npy` and `.npz`, and HDF5 files of other programs, such as S2M2's."""

from __future__ import annotations

import math
import warnings
import zipfile
from typing import IO, TYPE_CHECKING, Any

import h5py
import numpy as np
from numpy.lib import format as npy

from fsbench.errors import FsbenchError
from fsbench.exchange.content import COPY_AGAIN, Container, Opened, largest, names_array, reading
from fsbench.io import foreign_hdf5
from fsbench.io.foreign_hdf5 import content, lies_inside, members
from fsbench.io.probe import refuse_dangerous

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_NUMPY_MARK = b"\x93NUMPY"
_ARCHIVE, _ARRAY, _HDF5 = "an npz archive", "a numpy array", "an HDF5 file"


def _is_numpy(path: Path, start: bytes) -> bool:
    """The mark of an array, or a zip archive of arrays only."""
    if start.startswith(_NUMPY_MARK):
        return True
    if not start.startswith(b"PK\x03\x04"):
        return False
    with reading(path, "a zip archive"), zipfile.ZipFile(path) as archive:
        return all(name.endswith(".npy") for name in archive.namelist())


def _read_numpy(path: Path) -> Opened:
    """One array, or arrays by name."""
    with path.open("rb") as file:
        if file.read(len(_NUMPY_MARK)) == _NUMPY_MARK:
            file.seek(0)
            with reading(path, _ARRAY):
                return Opened(path, _ARRAY, _array(path, file, path.stat().st_size, ""), path.stat().st_size)
    with reading(path, _ARCHIVE), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        claimed = sum(member.file_size for member in members)
        if claimed > largest(path) or len({member.filename for member in members}) < len(members):
            raise FsbenchError(
                f"{path} is an archive whose list of contents is not credible: {claimed} bytes.",
                "The file is damaged or not what it claims to be.",
            )
        arrays = {}
        for member in members:
            if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise FsbenchError(
                    f"{path}: {member.filename!r} is compressed in a way that numpy does not use.",
                    "Save it with numpy.savez or numpy.savez_compressed.",
                )
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as stream:
                arrays[name] = _array(path, stream, member.file_size, f" {name!r}")
    return Opened(path, _ARCHIVE, arrays, largest(path))


def _array(path: Path, stream: IO[bytes], size: int, name: str) -> NDArray[Any]:
    """Read an array whose header agrees with the bytes that are there; Python objects are refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on headers of Python 2
        version = npy.read_magic(stream)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, column_major, dtype = header(stream)
    if dtype.kind not in "fiubUS":
        what = "Python objects, which only a pickle could hold" if dtype.hasobject else f"values of kind {dtype}"
        raise FsbenchError(f"{path}: array{name} holds {what}.", "Save numbers, and names as strings.")
    expected = math.prod(shape) * dtype.itemsize
    if stream.tell() + expected != size:
        raise ValueError(f"array{name} of shape {shape} should take {expected} bytes, found {size - stream.tell()}")
    flat = np.frombuffer(stream.read(expected), dtype)
    return flat.reshape(shape, order="F" if column_major else "C")


def _is_hdf5(path: Path, start: bytes) -> bool:
    """HDF5's mark, at the beginning or after the seal of fsbench's own files."""
    return b"\x89HDF\r\n\x1a\n" in (start[:8], start[512:520])


def _read_hdf5(path: Path) -> Opened:
    """The arrays at the root and one group below it."""
    refuse_dangerous(path, _HDF5, foreign_hdf5, largest(path), COPY_AGAIN)
    with reading(path, _HDF5), h5py.File(path, "r") as file:
        _refuse_own(path, file)
        arrays: dict[str, NDArray[Any]] = {}
        _collect(path, file, "", arrays)
        for name, node in members(file):
            if isinstance(node, h5py.Group):
                _collect(path, node, f"{name}/", arrays)
    return Opened(path, _HDF5, arrays, largest(path))


def _refuse_own(path: Path, file: h5py.File) -> None:
    match file.attrs.get("format"):
        case "fsbench-features":
            raise FsbenchError(f"{path} is a feature file of fsbench already.", f"Use it as it is: {path}.")
        case "fsbench-scatter":
            raise FsbenchError(
                f"{path} is a scatter file of fsbench: statistics of base classes, no features.",
                "Give the feature file it belongs to.",
            )


def _collect(path: Path, group: h5py.Group, prefix: str, arrays: dict[str, NDArray[Any]]) -> None:
    for name, node in members(group):
        if not isinstance(node, h5py.Dataset):
            continue
        if not lies_inside(node):
            raise FsbenchError(f"{path}: {prefix}{name} lies in another file.", "Copy the data into one file.")
        if sum(array.nbytes for array in arrays.values()) + node.nbytes > largest(path):
            raise FsbenchError(f"{path}: {prefix}{name} claims {node.nbytes} bytes, more than the file can hold.")
        values = content(node)
        if values is not None:
            arrays[prefix + name] = names_array(path, values) if isinstance(values, list) else values


NUMPY = Container(_is_numpy, _read_numpy)
HDF5 = Container(_is_hdf5, _read_hdf5)
