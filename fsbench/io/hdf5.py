"""HDF5 files in fsbench's own format: sealed when written, and checked before anything in them is used.

The seal is the first block of the file, which HDF5 leaves to its users: the SHA-256 of the rest. The HDF5 library can
hang, crash or read wrong values when its internal structures are damaged, so the seal is checked before the library
sees them. Large arrays are left out of it: they are raw numbers with digests of their own, checked while they are read.
A seal shows damage, not who wrote the file: anyone can write one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import h5py
import numpy as np
from numpy.typing import NDArray

from fsbench.errors import FsbenchError, missing_file, system_trouble
from fsbench.io.files import require_regular, whole_file

REMAKE = "The file is damaged or was not written by fsbench: make it again, or bring it in with fsbench import."
_SEAL_BYTES = 512
_SEAL_START = b"fsbench sealed HDF5\n"
_HDF5_START = b"\x89HDF\r\n\x1a\n"
_READ_BYTES = 1 << 20


@contextmanager
def sealed_hdf5(path: Path, kind: str, version: int, left_out: Sequence[str] = ()) -> Iterator[h5py.File]:
    """Write an HDF5 file of a format and version, sealed, whole or not at all.

    The data sets that are `left_out` of the seal are contiguous and have their own digests.
    """
    with whole_file(path) as temporary:
        # Through a Python stream: after a full disk, HDF5's own files report errors until the process ends.
        with temporary.open("w+b") as stream, h5py.File(stream, "w", userblock_size=_SEAL_BYTES) as file:
            file.attrs.update({"format": kind, "version": version})
            yield file
        seal(temporary, left_out)


def seal(path: Path, left_out: Sequence[str] = ()) -> None:
    """Write the seal of a file that has room for it."""
    with h5py.File(path, "r") as file:
        arrays = [file[name] for name in left_out if name in file]
        ranges = sorted((int(array.id.get_offset()), int(array.nbytes)) for array in arrays if array.size)
    with path.open("r+b") as stream:
        size = stream.seek(0, 2)
        stated = {"left_out": ranges, "sha256": _digest(stream, size, ranges)}
        stream.seek(0)
        stream.write((_SEAL_START + json.dumps(stated).encode()).ljust(_SEAL_BYTES, b"\0"))


def _check_seal(path: Path) -> None:
    """Compare a file with its seal."""
    with path.open("rb") as stream:
        block = stream.read(_SEAL_BYTES)
        if block.startswith(_HDF5_START):
            raise FsbenchError(f"{path} is an HDF5 file of another program.", REMAKE)
        if not block.startswith(_SEAL_START):
            raise FsbenchError(f"{path} is not an HDF5 file.", REMAKE)
        size = stream.seek(0, 2)
        try:
            stated = json.loads(block[len(_SEAL_START) :].rstrip(b"\0"))
            ranges = [(int(start), int(length)) for start, length in stated["left_out"]]
            bounds = [_SEAL_BYTES, *(bound for start, length in ranges for bound in (start, start + length)), size]
            intact = bounds == sorted(bounds) and stated["sha256"] == _digest(stream, size, ranges)
        except (ValueError, TypeError, KeyError, RecursionError):
            intact = False
    if not intact:
        raise FsbenchError(f"{path} is not as it was written: it is truncated, or bytes in it have changed.", REMAKE)


def _digest(stream: IO[bytes], size: int, left_out: list[tuple[int, int]]) -> str:
    """SHA-256 of the size, of the ranges (first byte, length), and of all bytes behind the seal in none of them."""
    digest = hashlib.sha256(repr((size, left_out)).encode())
    position = _SEAL_BYTES
    for start, length in [*left_out, (size, 0)]:
        stream.seek(position)
        while position < start and (piece := stream.read(min(_READ_BYTES, start - position))):
            digest.update(piece)
            position += len(piece)
        position = start + length
    return digest.hexdigest()


@contextmanager
def open_hdf5(path: Path, kind: str, version: int) -> Iterator[h5py.File]:
    """Open an HDF5 file of a given format and version; what is wrong with it, also in the block, becomes an error."""
    require_regular(path)
    try:
        _check_seal(path)
    except IsADirectoryError:
        hint = "Name a file in it. If it holds images, extract features from them first with `fsbench extract`."
        raise FsbenchError(f"{path} is a folder; expected an HDF5 file.", hint) from None
    except FileNotFoundError:
        raise missing_file(path, "Check the path, or make the file with `fsbench extract`.") from None
    except OSError as error:
        raise system_trouble(f"Could not read {path}", error) from error
    try:
        with h5py.File(path, "r") as file:
            stated, number = attribute_of(file, "format"), attribute_of(file, "version")
            if stated != kind:
                what = f"of format {stated!r}" if stated else "an HDF5 file of another program"
                raise FsbenchError(f"{path} is {what}, expected {kind!r}.", "Pass a file that fsbench has written.")
            if not isinstance(number, int) or not 0 < number <= version:
                message = f"{path} has format version {number}, this fsbench reads up to {version}."
                raise FsbenchError(message, "Update fsbench to read it, or make the file again.")
            yield file
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, UnicodeError) as error:
        raise FsbenchError(f"{path} cannot be read as an HDF5 file: {error}.", REMAKE) from error


def attribute_of(node: h5py.Group, name: str) -> str | int | None:
    """An attribute that is one text or one whole number; None for any other."""
    value = node.attrs.get(name)
    return int(value) if isinstance(value, np.integer) else value if isinstance(value, str) else None


def strings_of(array: h5py.Dataset) -> tuple[str, ...]:
    """Read an array of UTF-8 names."""
    return tuple(item.decode("utf-8") for item in array[()].tolist())


def encode(names: Sequence[str]) -> NDArray[np.bytes_]:
    """Names as an array of UTF-8 bytes, as files store them."""
    return np.array([name.encode("utf-8") for name in names], dtype=np.bytes_)
