"""HDF5 files that this process has not written, tried out in a child process first: the library can hang or crash."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from fsbench.errors import FsbenchError
from fsbench.features import foreign_hdf5

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60.0  # for any file, however small
_BYTES_PER_SECOND = 20e6
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # each takes memory

_trusted: set[tuple[int, ...]] = set()


def trust(path: Path) -> None:
    """Remember a file that this process has written or tried out; it may be renamed."""
    _trusted.add(_identity(path))


def is_trusted(path: Path) -> bool:
    """Whether this process has written the file, or tried it out before."""
    return _identity(path) in _trusted


def refuse_dangerous(path: Path, largest: int, remedy: str) -> None:
    """Refuse a file on which a process that reads it fails, crashes, hangs or runs out of memory.

    Args:
        path: The file.
        largest: Bytes of the largest array that will be read.
        remedy: What to do about a file that is refused.
    """
    seconds = SECONDS + path.stat().st_size / _BYTES_PER_SECOND
    command = [sys.executable, "-P", foreign_hdf5.__file__, str(path.resolve()), str(largest)]
    try:
        tried = subprocess.run(command, timeout=seconds, capture_output=True, env={**os.environ, **_ONE_THREAD})
    except subprocess.TimeoutExpired:
        raise FsbenchError(f"{path} is no sound HDF5 file: the library does not come to an end.", remedy) from None
    if tried.returncode == foreign_hdf5.UNREADABLE:
        told = tried.stdout.decode(errors="replace")
        raise FsbenchError(f"{path} cannot be read as an HDF5 file: {told}.", remedy)
    if tried.returncode == foreign_hdf5.NO_MEMORY:
        raise FsbenchError(f"{path} is no sound HDF5 file: it asks for more memory than it can need.", remedy)
    if tried.returncode:
        raise FsbenchError(f"{path} is no sound HDF5 file: the library breaks down on it.", remedy)


def _identity(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
