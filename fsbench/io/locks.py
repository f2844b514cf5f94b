"""One writer at a time: locks that end with the process that holds them."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import time
from typing import TYPE_CHECKING

from fsbench.errors import FsbenchError, system_trouble
from fsbench.io.files import TEMPORARY, require_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}
_PAUSE = 0.1


@contextlib.contextmanager
def only_writer(path: Path, waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """Be the only process that writes a file while the block runs, on this machine or another.

    The lock is the kernel's, on a hidden file beside `path`: it ends with the process, however that dies, so nobody
    ever has to remove one. Where a file system has no locks, nothing is locked. What killed writers of this file have
    left is removed.

    Args:
        path: The file.
        waiting: Called once with a sentence that names the other writer, who is then waited for; without it, another
            writer is an error.
    """
    require_name(path)
    side = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _locked(path, side, waiting)
    except OSError as error:
        raise system_trouble(f"Could not write {path}", error) from error
    try:
        for leftover in path.parent.glob(f".*{_escaped(path.name)}.*.tmp") if handle is not None else ():
            if TEMPORARY.fullmatch(leftover.name):
                _forget(leftover)
        yield
    finally:
        if handle is not None:
            _forget(side)
            os.close(handle)


def _locked(path: Path, side: Path, waiting: Callable[[str], None] | None) -> int | None:
    """Lock the side file; its handle, or None where there are no locks."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        return None
    told = False
    while True:
        handle = os.open(side, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of the process: its workers do not inherit it
        except OSError as error:
            holder = os.read(handle, 200).decode(errors="replace")
            os.close(handle)
            if error.errno in _NO_LOCKS:
                return None
            if error.errno not in {errno.EACCES, errno.EAGAIN}:
                raise
            sentence = f"{path} is being written by {holder or 'another process'}"
            if waiting is None:
                raise FsbenchError(f"{sentence}.", "Wait until it is done, or write elsewhere with --out.") from None
            if not told:
                waiting(f"{sentence}: waiting for it.")
            told = True
            time.sleep(_PAUSE)
            continue
        if _is_in_place(handle, side):
            with contextlib.suppress(OSError):
                os.fchmod(handle, 0o666)  # a colleague may take over what a killed run has left
            os.ftruncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
            return handle
        os.close(handle)  # the holder before us removed it just now


def _is_in_place(handle: int, side: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), side.stat())
    except FileNotFoundError:
        return False


def _forget(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _escaped(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)
