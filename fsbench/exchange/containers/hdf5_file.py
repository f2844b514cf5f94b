"""HDF5 files of other programs, such as S2M2's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py

from fsbench.errors import FsbenchError
from fsbench.exchange.found import COPY_AGAIN, Opened, largest, names_array, reading
from fsbench.io import foreign_hdf5
from fsbench.io.foreign_hdf5 import content, lies_inside, members
from fsbench.io.probe import refuse_dangerous

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

CONTAINER = "an HDF5 file"


def recognise(path: Path, start: bytes) -> bool:
    """HDF5's mark, at the beginning or after the seal of fsbench's own files."""
    return b"\x89HDF\r\n\x1a\n" in (start[:8], start[512:520])


def read(path: Path) -> Opened:
    """The arrays at the root and one group below it."""
    refuse_dangerous(path, CONTAINER, foreign_hdf5, largest(path), COPY_AGAIN)
    with reading(path, CONTAINER), h5py.File(path, "r") as file:
        _refuse_own(path, file)
        arrays: dict[str, NDArray[Any]] = {}
        _collect(path, file, "", arrays)
        for name, node in members(file):
            if isinstance(node, h5py.Group):
                _collect(path, node, f"{name}/", arrays)
    return Opened(path, CONTAINER, arrays, largest(path))


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
        found = content(node)
        if found is not None:
            arrays[prefix + name] = names_array(path, found) if isinstance(found, list) else found
