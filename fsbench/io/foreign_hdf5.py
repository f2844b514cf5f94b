"""Reading HDF5 files of unknown origin: what lies in this very file, at the root and one group below it.

It is also run by `trial.py`, and imports nothing of fsbench.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray


_MEMORY = 1 << 30  # for the libraries and all that is no array
_ATTRIBUTES = ("format", "version", "provenance", "features_sha256", "sha256")  # that fsbench asks for


def members(group: h5py.Group) -> Iterator[tuple[str, Any]]:
    """Names and nodes of what lies in this very file: links to other files are not followed.

    The library takes a slash in a name for a path, which may lead through such a link.
    """
    here = h5py.h5o.get_info(group.id).fileno
    for name in group:
        if "/" in name or name in {"", ".", ".."}:
            raise ValueError(f"{name!r} is no name that a sound file holds")
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        node = group[name]
        if h5py.h5o.get_info(node.id).fileno != here:
            raise ValueError(f"{name!r} lies in another file")
        yield name, node


def lies_inside(node: h5py.Dataset) -> bool:
    """Whether the values of a data set are stored in its own file."""
    return node.external is None and not node.is_virtual


def content(node: h5py.Dataset) -> NDArray[Any] | list[str] | None:
    """Numbers, or names; None for anything else."""
    if node.shape is None:
        return None
    if h5py.check_string_dtype(node.dtype) is not None:
        names: list[str] = np.ravel(node.asstr()[()]).tolist()
        return names
    return np.asarray(node[()]) if node.dtype.kind in "fiu" else None


def try_out(path: str, largest: int, limit_memory: Callable[[int], None]) -> None:
    """Read a file the way the import and the feature files do, array by array, within limits of memory."""
    limit_memory(_MEMORY)
    with h5py.File(path, "r") as file:
        groups = [file, *(node for _, node in members(file) if isinstance(node, h5py.Group))]
        for group in groups:
            for name in _ATTRIBUTES:
                group.attrs.get(name)
            for _, node in members(group):
                if isinstance(node, h5py.Dataset) and lies_inside(node) and node.nbytes <= largest:
                    _try_array(node, limit_memory)


def _try_array(node: h5py.Dataset, limit_memory: Callable[[int], None]) -> None:
    if node.shape and node.chunks is None and node.dtype.kind in "fiu":
        node[:1]  # the rest is bytes of the file, read as they are
        return
    limit_memory(_MEMORY + 4 * node.nbytes)
    content(node)
    limit_memory(_MEMORY)
