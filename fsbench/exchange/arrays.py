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
from fsbench.exchange.content import Container, Opened, largest, names_array, zip_members
from fsbench.io.hdf5 import attribute_of
from fsbench.io.trial import refuse_dangerous

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_HDF5 = "an HDF5 file"


def _read_npy(path: Path) -> Opened:
    size = path.stat().st_size
    with path.open("rb") as file:
        return Opened(path, _array(file, size, ""), size)


def _is_npz(path: Path, start: bytes) -> bool:
    """A zip archive of arrays only."""
    names = zip_members(path, start)
    return bool(names) and all(name.endswith(".npy") for name in names)


def _read_npz(path: Path) -> Opened:
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        claimed = sum(member.file_size for member in members)
        if claimed > largest(path) or len({member.filename for member in members}) < len(members):
            raise FsbenchError(f"{path} is an archive whose list of contents is not credible: {claimed} bytes.")
        for member in members:
            if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise FsbenchError(
                    f"{path}: {member.filename!r} is compressed in a way that numpy does not use.",
                    "Save it with numpy.savez or numpy.savez_compressed.",
                )
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as stream:
                arrays[name] = _array(stream, member.file_size, f" {name!r}")
    return Opened(path, arrays, largest(path))


def _array(stream: IO[bytes], size: int, name: str) -> NDArray[Any]:
    """Read an array whose header agrees with the bytes that are there; Python objects are refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on headers of Python 2
        version = npy.read_magic(stream)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, column_major, dtype = header(stream)
    if dtype.kind not in "fiubUS":
        what = "Python objects, which only a pickle could hold" if dtype.hasobject else f"values of kind {dtype}"
        raise FsbenchError(f"Array{name} holds {what}.", "Save numbers, and names as strings.")
    expected = math.prod(shape) * dtype.itemsize
    if stream.tell() + expected != size:
        raise ValueError(f"array{name} of shape {shape} should take {expected} bytes, found {size - stream.tell()}")
    flat = np.frombuffer(stream.read(expected), dtype)
    return flat.reshape(shape, order="F" if column_major else "C")


def _read_hdf5(path: Path) -> Opened:
    """The arrays at the root and one group below it."""
    most = largest(path)
    refuse_dangerous(path, _HDF5, __name__, most)
    with h5py.File(path, "r") as file:
        kind = attribute_of(file, "format")
    if kind == "fsbench-features":
        raise FsbenchError(f"{path} is a feature file of fsbench already.", f"Use it as it is: {path}.")
    if kind == "fsbench-scatter":
        raise FsbenchError(
            f"{path} is a scatter file of fsbench: statistics of base classes, no features.",
            "Give the feature file it belongs to.",
        )
    arrays = {
        name: names_array(path, values) if isinstance(values, list) else values
        for name, values in _hdf5_arrays(path, most, lambda size: None)
    }
    return Opened(path, arrays, most)


def try_out(path: Path, most: int, allow_memory: Callable[[int], None]) -> None:
    """Read an HDF5 file array by array, each within the memory that it needs by its own account."""
    allow_memory(0)
    for _ in _hdf5_arrays(path, most, allow_memory):
        allow_memory(0)


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


NPY = Container("a numpy array", lambda path, start: start.startswith(b"\x93NUMPY"), _read_npy)
NPZ = Container("an npz archive", _is_npz, _read_npz)
# The mark is at the beginning, or after the seal of fsbench's own files.
HDF5 = Container(_HDF5, lambda path, start: b"\x89HDF\r\n\x1a\n" in (start[:8], start[512:520]), _read_hdf5)
