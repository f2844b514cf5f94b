"""One writer per file: a lock that ends with the process that holds it."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from glob import escape
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from fsbench.errors import FsbenchError, system_trouble
from fsbench.io.files import TEMPORARY, require_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}
_MOMENT = 0.1  # seconds, in which a lock file that was just removed is made again
_EVERYBODY = 0o666  # a colleague may take over what a killed run has left


@contextlib.contextmanager
def only_writer(path: Path, waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """Be the only process that writes a file while the block runs, on this machine or another.

    The lock is the kernel's, on a hidden file beside `path`: it ends with the process, however that dies, so a lock
    file that is left behind blocks nobody. Where a file system has no locks, nothing is locked. What killed writers of
    this file have left is removed.

    Args:
        path: The file.
        waiting: Called once with a sentence that names the other writer, who is then waited for; without it, another
            writer is an error.
    """
    require_name(path)
    side = path.with_name(f".{path.name}.lock")
    lock = FileLock(side, mode=_EVERYBODY, fallback_to_soft=False, on_acquired=_sign)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _acquire(lock, path, side, waiting)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise system_trouble(f"Could not write {path}", error) from error
    try:
        if lock.is_locked:
            _remove_leftovers(path)
        yield
    finally:
        if lock.is_locked:
            with contextlib.suppress(OSError):
                side.unlink()  # before the release: who waits for this very file then sees that it is gone
            lock.release()


def _acquire(lock: FileLock, path: Path, side: Path, waiting: Callable[[str], None] | None) -> None:
    try:
        lock.acquire(timeout=_MOMENT)
    except Timeout:
        sentence = f"{path} is being written by {_holder(side)}"
        if waiting is None:
            raise FsbenchError(f"{sentence}.", "Wait until it is done, or write elsewhere with --out.") from None
        waiting(f"{sentence}: waiting for it.")
        lock.acquire()


def _sign(handle: int) -> None:
    """Write into the lock file who holds it."""
    os.ftruncate(handle, 0)
    os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())


def _holder(side: Path) -> str:
    try:
        return side.read_text(encoding="utf-8", errors="replace")[:200] or "another process"
    except OSError:
        return "another process"


def _remove_leftovers(path: Path) -> None:
    for leftover in path.parent.glob(f".*{escape(path.name)}.*.tmp"):
        if TEMPORARY.fullmatch(leftover.name):
            with contextlib.suppress(OSError):
                leftover.unlink()
