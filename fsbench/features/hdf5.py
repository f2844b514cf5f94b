"""The door to HDF5 files: format, version, and data sets that are what they claim to be."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import h5py
import numpy as np

from fsbench.errors import FsbenchError, missing_file, system_trouble
from fsbench.features.seal import REMAKE as REMAKE
from fsbench.features.seal import refuse_broken_seal
from fsbench.foreign import hdf5 as foreign_hdf5
from fsbench.foreign.probe import is_trusted, refuse_dangerous, trust

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


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
