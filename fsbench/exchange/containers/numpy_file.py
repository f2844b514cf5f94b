"""Arrays in numpy's own files: `.npy`, and `.npz` archives of them."""

from __future__ import annotations

import math
import warnings
import zipfile
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from fsbench.errors import FsbenchError
from fsbench.exchange.found import Opened, largest, reading

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MAGIC = b"\x93NUMPY"
ARCHIVE, ARRAY = "an npz archive", "a numpy array"


def recognise(path: Path, start: bytes) -> bool:
    """The mark of an array, or a zip archive of arrays only."""
    if start.startswith(MAGIC):
        return True
    if not start.startswith(b"PK\x03\x04"):
        return False
    with reading(path, "a zip archive"), zipfile.ZipFile(path) as archive:
        return all(name.endswith(".npy") for name in archive.namelist())


def read(path: Path) -> Opened:
    """One array, or arrays by name."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) == MAGIC:
            file.seek(0)
            with reading(path, ARRAY):
                return Opened(path, ARRAY, _array(path, file, path.stat().st_size, ""), path.stat().st_size)
    with reading(path, ARCHIVE), zipfile.ZipFile(path) as archive:
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
    return Opened(path, ARCHIVE, arrays, largest(path))


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
