"""HDF5 files without a seal, tried out in a child process first: the library can hang or crash on damaged ones."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60.0  # for any file, however small
_BYTES_PER_SECOND = 20e6
_NO_MEMORY = 3
_SOURCE = """
import sys, h5py, numpy
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
except (ImportError, ValueError, OSError):
    pass
def look(name, node):
    dict(node.attrs)
    inside = isinstance(node, h5py.Dataset) and node.external is None and not node.is_virtual
    if inside and node.nbytes < int(sys.argv[3]):
        node[()]
try:
    with h5py.File(sys.argv[1], "r") as file:
        dict(file.attrs)
        file.visititems(look)
except MemoryError:
    sys.exit(3)
except Exception:
    pass  # the parent meets the same error, and words it
"""


def refuse_dangerous(path: Path, remedy: str) -> None:
    """Refuse a file on which a process that reads all of it crashes, hangs or runs out of memory."""
    size = path.stat().st_size
    limits = (str((6 << 30) + 8 * size), str(max(64 << 20, 100 * size)))
    try:
        command = [sys.executable, "-P", "-c", _SOURCE, str(path.resolve()), *limits]
        status = subprocess.run(command, timeout=SECONDS + size / _BYTES_PER_SECOND, capture_output=True).returncode
    except subprocess.TimeoutExpired:
        raise FsbenchError(f"{path} is no sound HDF5 file: the library does not come to an end.", remedy) from None
    if status == _NO_MEMORY:
        raise FsbenchError(f"{path} is no sound HDF5 file: it asks for more memory than it can need.", remedy)
    if status:
        raise FsbenchError(f"{path} is no sound HDF5 file: the library breaks down on it.", remedy)
