"""Reading HDF5 files of unknown origin: what lies in this very file, at the root and one group below it.

Run as a program, it reads a file the way the import and the feature files do, within limits of memory: the library
can hang, crash or ask for any amount of memory on a file that is damaged or hostile. `probe.py` runs it.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

UNREADABLE, NO_MEMORY = 4, 3  # what the program exits with
_MEMORY = 1 << 30  # for the program itself and all that is no array
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


def _try_out(path: str, largest: int) -> None:
    with h5py.File(path, "r") as file:
        _try_members(file, largest)
        for _, node in members(file):
            if isinstance(node, h5py.Group):
                _try_members(node, largest)


def _try_members(group: h5py.Group, largest: int) -> None:
    for name in _ATTRIBUTES:
        group.attrs.get(name)
    for _, node in members(group):
        if not isinstance(node, h5py.Dataset) or not lies_inside(node) or node.nbytes > largest:
            continue
        raw = node.chunks is None and node.dtype.kind in "fiu" and node.shape
        _limit_memory(_MEMORY + (0 if raw else 4 * node.nbytes))
        if raw:
            node[:1]  # the rest is bytes of the file, read as they are
        else:
            content(node)


def _limit_memory(size: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not every system has limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _main() -> int:
    _limit_memory(_MEMORY)
    try:
        _try_out(sys.argv[1], int(sys.argv[2]))
    except MemoryError:
        return NO_MEMORY
    except Exception as error:  # the library has many words for damage, and for memory it does not get
        _limit_memory(2 * _MEMORY)
        told = str(error).strip().partition("\n")[0] or type(error).__name__
        sys.stdout.buffer.write(told[:300].encode(errors="replace"))
        return UNREADABLE
    return 0


if __name__ == "__main__":
    sys.exit(_main())
