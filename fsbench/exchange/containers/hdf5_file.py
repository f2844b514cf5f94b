"""HDF5 files of other programs, such as S2M2's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from fsbench.errors import FsbenchError
from fsbench.exchange.found import COPY_AGAIN, Opened, largest, names_array, reading
from fsbench.io.hdf5 import attribute_of
from fsbench.io.trial import refuse_dangerous

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

CONTAINER = "an HDF5 file"


def recognise(path: Path, start: bytes) -> bool:
    """HDF5's mark, at the beginning or after the seal of fsbench's own files."""
    return b"\x89HDF\r\n\x1a\n" in (start[:8], start[512:520])


def read(path: Path) -> Opened:
    """The arrays at the root and one group below it."""
    refuse_dangerous(path, CONTAINER, __name__, largest(path), COPY_AGAIN)
    with reading(path, CONTAINER):
        _refuse_own(path)
        arrays = {
            name: names_array(path, values) if isinstance(values, list) else values
            for name, values in _arrays(path, largest(path), lambda size: None)
        }
    return Opened(path, CONTAINER, arrays, largest(path))


def try_out(path: Path, most: int, allow_memory: Callable[[int], None]) -> None:
    """Read a file array by array, each within the memory that it needs by its own account."""
    allow_memory(0)
    for _ in _arrays(path, most, allow_memory):
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


def _arrays(
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
