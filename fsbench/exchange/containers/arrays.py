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
from fsbench.io.hdf5 import attribute_of
from fsbench.io.trial import refuse_dangerous

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
    refuse_dangerous(path, _HDF5, __name__, largest(path), COPY_AGAIN)
    with reading(path, _HDF5):
        _refuse_own(path)
        arrays = {
            name: names_array(path, values) if isinstance(values, list) else values
            for name, values in _hdf5_arrays(path, largest(path), lambda size: None)
        }
    return Opened(path, _HDF5, arrays, largest(path))


def try_out(path: Path, most: int, allow_memory: Callable[[int], None]) -> None:
    """Read an HDF5 file array by array, each within the memory that it needs by its own account."""
    allow_memory(0)
    for _ in _hdf5_arrays(path, most, allow_memory):
        allow_memory(0)


def _refuse_own(path: Path) -> None:
    with h5py.File(path, "r") as file:
        kind = attribute_of(file, "format")
    if kind == "fsbench-features":
        raise FsbenchError(f"{path} is a feature file of fsbench already.", f"Use it as it is: {path}.")
    if kind == "fsbench-scatter":
        raise FsbenchError(
            f"{path} is a scatter file of fsbench: statistics of base classes, no features.",
            "Give the feature file it belongs to.",
        )


def _hdf5_arrays(
    path: Path, most: int, allow_memory: Callable[[int], None]
) -> Iterator[tuple[str, NDArray[Any] | list[str]]]:
    """Numbers and names that are stored in this very file, with `most` bytes together."""
    with h5py.File(path, "r") as file:
        groups = {"": file, **{f"{name}/": node for name, node in _members(file) if isinstance(node, h5py.Group)}}
        nodes = {prefix + name: node for prefix, group in groups.items() for name, node in _members(group)}
        for name, node in nodes.items():
            if not isinstance(node, h5py.Dataset) or node.shape is None:
                continue
            if node.external is not None or node.is_virtual:
                raise ValueError(f"{name} lies in another file, copy the data into one")
            most -= node.nbytes
            if most < 0:
                raise ValueError(f"{name} claims {node.nbytes} bytes, more than the file can hold")
            allow_memory(node.nbytes)
            if h5py.check_string_dtype(node.dtype) is not None:
                # h5py's `asstr` reads ASCII where the file does not name the encoding, and most do not.
                yield name, [text.decode("utf-8") for text in np.ravel(node[()]).tolist()]
            elif node.dtype.kind in "fiu":
                yield name, np.asarray(node[()])


def _members(group: h5py.Group) -> Iterator[tuple[str, Any]]:
    """Names and nodes in this very file: links to other files are not followed.

    The library takes a slash in a name for a path, which may lead through such a link.
    """
    here = h5py.h5o.get_info(group.id).fileno
    for name in group:
        if "/" in name or name in {"", ".", ".."}:
            raise ValueError(f"{name!r} is not a valid name")
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        node = group[name]
        if h5py.h5o.get_info(node.id).fileno != here:
            raise ValueError(f"{name!r} lies in another file")
        yield name, node


NUMPY = Container(_is_numpy, _read_numpy)
HDF5 = Container(_is_hdf5, _read_hdf5)
