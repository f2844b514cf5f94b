"""Files whose library can crash, hang or take any amount of memory on a damaged one, read in a child process first.

`refuse_dangerous` lets a child process call the function `try_out` of the module that reads such files, within limits
of time and memory. Only a file that the child has read is read by this process.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from pathlib import Path

from fsbench.errors import FsbenchError

SECONDS = 60.0  # for any file, however small
_BYTES_PER_SECOND = 20e6
_LIBRARY_BYTES = 1 << 30  # memory for everything but the content of the file
_UNREADABLE, _NO_MEMORY = 4, 3  # exit statuses of the child
_CHILD_SETTINGS = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system",
}  # fmt: skip


def refuse_dangerous(path: Path, kind: str, reader: str, largest: int) -> None:
    """Refuse a file on which a process that reads it fails, crashes, hangs or runs out of memory.

    The module `reader` has the function `try_out`; the content of the file may take `largest` bytes.
    """
    command = [sys.executable, "-P", "-m", "fsbench.io.trial", reader, str(path.resolve()), str(largest)]
    environment = {**os.environ, **_CHILD_SETTINGS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    seconds = SECONDS + path.stat().st_size / _BYTES_PER_SECOND
    try:
        child = subprocess.run(command, timeout=seconds, capture_output=True, env=environment)
    except subprocess.TimeoutExpired:
        raise FsbenchError(f"{path} cannot be read as {kind}: the library does not finish.") from None
    told = {_UNREADABLE: child.stdout.decode(errors="replace"), _NO_MEMORY: "it asks for more memory than it can need"}
    if child.returncode:
        reason = told.get(child.returncode, "the library crashes on it")
        raise FsbenchError(f"{path} cannot be read as {kind}: {reason}.")


def allow_memory(size: int) -> None:
    """Let the child take four times that many bytes beyond those of its libraries, where the system has limits."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on Windows

        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (_LIBRARY_BYTES + 4 * size, most))


def _main(reader: str, path: str, largest: str) -> int:
    try:
        importlib.import_module(reader).try_out(Path(path), int(largest), allow_memory)
    except MemoryError:
        return _NO_MEMORY
    except Exception as error:  # every library has its own words for damage, and for memory that it does not get
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        sys.stdout.buffer.write(reason[:300].encode(errors="replace"))
        return _UNREADABLE
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
