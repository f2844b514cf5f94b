"""Files that this process has not written, tried out in a child process first: a library can hang or crash on them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from fsbench.errors import FsbenchError
from fsbench.io import trial

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


SECONDS = 60.0  # for any file, however small
_BYTES_PER_SECOND = 20e6
_LITTLE_MEMORY = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system",
}  # fmt: skip

_trusted: set[tuple[int, ...]] = set()


def trust(path: Path) -> None:
    """Remember a file that this process has written or tried out; it may be renamed."""
    _trusted.add(_identity(path))


def is_trusted(path: Path) -> bool:
    """Whether this process has written the file, or tried it out before."""
    return _identity(path) in _trusted


def refuse_dangerous(path: Path, kind: str, reader: ModuleType, largest: int, remedy: str) -> None:
    """Refuse a file on which a process that reads it fails, crashes, hangs or runs out of memory.

    Args:
        path: The file.
        kind: What it should be, with its article.
        reader: A module with a function `try_out`.
        largest: Bytes of the largest array that will be read.
        remedy: What to do about a file that is refused.
    """
    seconds = SECONDS + path.stat().st_size / _BYTES_PER_SECOND
    command = [sys.executable, "-P", trial.__file__, str(reader.__file__), str(path.resolve()), str(largest)]
    try:
        tried = subprocess.run(command, timeout=seconds, capture_output=True, env={**os.environ, **_LITTLE_MEMORY})
        status, told = tried.returncode, "the library breaks down on it"
    except subprocess.TimeoutExpired:
        status, told = -1, "the library does not come to an end"
    if status == trial.UNREADABLE:
        told = tried.stdout.decode(errors="replace")
    if status == trial.NO_MEMORY:
        told = "it asks for more memory than it can need"
    if status:
        raise FsbenchError(f"{path} cannot be read as {kind}: {told}.", remedy)


def _identity(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
