"""The seal of an HDF5 file that fsbench writes: a first block that tells whether the rest is as it was written.

HDF5 leaves room for such a block before its own data. The library itself can hang, crash or read wrong values when its
internal structures are damaged, so they are compared with their SHA-256 before it sees them. Large arrays are left out:
they are raw numbers, and have digests of their own that are checked while they are read. A seal shows damage, not
who wrote the file: anyone can write one.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import h5py
import numpy as np

from fsbench.errors import FsbenchError, missing_file, system_trouble
from fsbench.io import foreign_hdf5
from fsbench.io.probe import is_trusted, refuse_dangerous, trust

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


REMAKE = "The file is damaged or was not written by fsbench: make it again, or bring it in with fsbench import."
_BLOCK = 512
_MARK = b"fsbench sealed HDF5\n"
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_AT_ONCE = 1 << 20

Ranges = list[tuple[int, int]]


@contextmanager
def sealed_hdf5(path: Path, left_out: Sequence[str] = ()) -> Iterator[h5py.File]:
    """Create an HDF5 file, and seal it once it is closed.

    Args:
        path: The file.
        left_out: Names of contiguous data sets that have digests of their own.
    """
    # Through a stream of Python's: HDF5's own would not get over a full disk, and complain until the very end.
    with path.open("w+b") as stream, h5py.File(stream, "w", userblock_size=_BLOCK) as file:
        yield file
    seal(path, left_out)


def seal(path: Path, left_out: Sequence[str] = ()) -> None:
    """Write the seal of a file that has room for it."""
    with h5py.File(path, "r") as file:
        arrays = [file[name] for name in left_out if name in file]
        ranges = sorted((int(array.id.get_offset()), int(array.nbytes)) for array in arrays if array.size)
    with path.open("r+b") as stream:
        size = stream.seek(0, 2)
        stated = {"size": size, "left_out": ranges, "sha256": _digest(stream, size, ranges)}
        block = _MARK + json.dumps(stated).encode()
        stream.seek(0)
        stream.write(block.ljust(_BLOCK, b"\0"))
    trust(path)


def refuse_broken_seal(path: Path) -> None:
    """Check a file against its seal, unless it is an HDF5 file that never had one."""
    with path.open("rb") as stream:
        block = stream.read(_BLOCK)
        if block.startswith(_SIGNATURE):
            return
        if not block.startswith(_MARK):
            raise FsbenchError(f"{path} cannot be read as an HDF5 file: it does not begin like one.", REMAKE)
        size = stream.seek(0, 2)
        try:
            stated = json.loads(block[len(_MARK) :].rstrip(b"\0"))
            ranges = [(int(start), int(length)) for start, length in stated["left_out"]]
            sound = stated["size"] == size and _in_order(ranges, size)
            sound = sound and stated["sha256"] == _digest(stream, size, ranges)
        except (ValueError, TypeError, KeyError, RecursionError):
            sound = False
    if not sound:
        raise FsbenchError(f"{path} is not as it was written: it is truncated, or bytes in it have changed.", REMAKE)


def _in_order(ranges: Ranges, size: int) -> bool:
    ends = [_BLOCK, *(start + length for start, length in ranges)]
    starts = [*(start for start, _ in ranges), size]
    return all(length > 0 for _, length in ranges) and all(a <= b for a, b in zip(ends, starts, strict=True))


def _digest(stream: IO[bytes], size: int, ranges: Ranges) -> str:
    """SHA-256 of everything after the block but for the ranges, and of the ranges themselves."""
    digest: Any = hashlib.sha256(repr((size, ranges)).encode())
    place = _BLOCK
    for start, length in [*ranges, (size, 0)]:
        stream.seek(place)
        while place < start:
            piece = stream.read(min(_AT_ONCE, start - place))
            if not piece:
                break
            digest.update(piece)
            place += len(piece)
        place = start + length
    found: str = digest.hexdigest()
    return found


@contextmanager
def open_hdf5(path: Path, kind: str, version: int) -> Iterator[h5py.File]:
    """Open an HDF5 file of a given format and version; everything that can be wrong with it has its own message."""
    if path.is_dir():
        raise FsbenchError(f"{path} is a folder.", "Name the file in it.")
    if not path.is_file():
        raise missing_file(path, "Check the path, or make the file with `fsbench extract`.")
    try:
        refuse_broken_seal(path)
        if not is_trusted(path):
            refuse_dangerous(path, "an HDF5 file", foreign_hdf5, path.stat().st_size, REMAKE)
            trust(path)
    except OSError as error:
        raise system_trouble(f"Could not read {path}", error) from error
    try:
        with h5py.File(path, "r") as file:
            _check_format(file, path, kind, version)
            yield file
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, UnicodeError) as error:
        raise FsbenchError(f"{path} cannot be read as an HDF5 file: {error}.", REMAKE) from error


def _check_format(file: h5py.File, path: Path, kind: str, version: int) -> None:
    found = file.attrs.get("format")
    if found != kind:
        told = f"of format {found!r}" if isinstance(found, str) else "an HDF5 file of another program"
        raise FsbenchError(f"{path} is {told}, expected {kind!r}.", "Pass a file that fsbench has written.")
    stated = file.attrs.get("version")
    if not isinstance(stated, (int, np.integer)) or stated < 1:
        raise FsbenchError(f"{path} states no valid format version: {stated!r}.", REMAKE)
    if stated > version:
        raise FsbenchError(
            f"{path} has format version {stated}, this fsbench reads up to {version}.",
            "Update fsbench to read it.",
        )


def lies_here(group: h5py.Group, name: str) -> bool:
    """Whether a group has a member of that name in this very file; links are not followed."""
    return isinstance(group.get(name, getlink=True), h5py.HardLink)


def dataset_of(file: h5py.File, name: str, path: Path, *, ndim: int, kind: str) -> h5py.Dataset:
    """A data set that lies in this very file, contiguous, of the stated rank and kind, as large as it claims."""
    node = file
    for part in name.split("/"):
        if not isinstance(node, h5py.Group) or not lies_here(node, part):
            raise FsbenchError(f"{path} has no {name}.", REMAKE)
        node = node[part]
    if not isinstance(node, h5py.Dataset) or node.ndim != ndim or node.dtype.kind != kind:
        raise FsbenchError(f"{path}: {name} is not a {ndim}-dimensional array of kind {kind!r}.", REMAKE)
    inside = node.external is None and not node.is_virtual and node.chunks is None
    if not inside or (node.nbytes > 0 and node.id.get_storage_size() != node.nbytes):
        raise FsbenchError(f"{path}: {name} is not stored whole inside the file.", REMAKE)
    if node.nbytes > path.stat().st_size:
        raise FsbenchError(f"{path}: {name} claims {node.nbytes} bytes, more than the whole file has.", REMAKE)
    return node


def strings_of(file: h5py.File, name: str, path: Path) -> tuple[str, ...]:
    """Read an array of UTF-8 names."""
    try:
        raw = dataset_of(file, name, path, ndim=1, kind="S")[()]
        return tuple(item.decode("utf-8") for item in raw.tolist())
    except UnicodeDecodeError as error:
        raise FsbenchError(f"{path}: {name} is not UTF-8 text.", REMAKE) from error


def encode(names: Sequence[str]) -> NDArray[np.bytes_]:
    """Names as an array of UTF-8 bytes, the way files store them."""
    return np.array([name.encode("utf-8") for name in names], dtype=np.bytes_)
