"""Files that appear whole or not at all, with one writer at a time; JSON with the SHA-256 of its own content."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from glob import escape
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from fsbench.errors import FsbenchError, system_trouble

T = TypeVar("T")
_SEAL = "sha256"
TEMPORARY = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.tmp")
_LONGEST_NAME = 255  # as in file systems
# Control characters and changes of the direction of writing steer a terminal; half a surrogate pair is not text.
_NO_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_READABLE_BYTES = 180  # file systems allow 255; a digest, an ending and what temporary files add come after it
_SIGNATURES = {  # what a file of each kind begins with
    "an HDF5 file": rb"fsbench sealed HDF5|\x89HDF\r\n\x1a\n",
    "an archive": rb"PK\x03\x04",
    "a pickle": rb"\x80",
    "a weights file": rb".{4}\0{4}\{",
    "a JSON file": rb"\{",
}
_NO_FOLDER_FLUSH = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EACCES}


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success it is flushed to disk and renamed, else it is removed.

    A reader sees the old file or the new one, never a part. Features, weights and records are replaced only by files of
    their own kind; a device is never overwritten. Trouble with the folder or the disk becomes an FsbenchError.
    """
    _refuse_no_file(path)
    if path.is_symlink():
        path = path.resolve()  # the link stays one
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush(temporary)
        _refuse_another_kind(path, temporary)
        temporary.replace(path)
        _flush(path.parent)
    except (OSError, RuntimeError) as error:  # HDF5 and torch have their own words for a full disk
        raise system_trouble(f"Could not write {path}", error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def require_writable(folder: Path) -> None:
    """Refuse a folder that no file can be written into, before anything is computed; it is not created yet."""
    place = folder
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
        if not place.is_dir():
            raise FsbenchError(f"Could not write into {folder}: {place} is a file.", "Name a folder.")
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise system_trouble(f"Could not write into {folder}", error) from error


def require_place(path: Path) -> None:
    """Refuse a path where a table or a figure could not be written, before it is computed."""
    _refuse_no_file(path)
    _refuse_another_kind(path, None)
    require_writable(path.parent)


def require_regular(path: Path) -> None:
    """Refuse to read a pipe or a device, which may never end; what is not there is left to whoever opens it."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise FsbenchError(f"{path} is a pipe or a device; expected a file.", "Save its content to a file first.")


def _refuse_no_file(path: Path) -> None:
    if path.name in {"", ".."} or path.is_dir():
        raise FsbenchError(f"Could not write {path}: it is a folder.", "Name a file in it.")
    if path.exists() and not path.is_file():
        raise FsbenchError(f"Could not write {path}: it is a device or a pipe.", "Name a file.")


def _refuse_another_kind(old: Path, new: Path | None) -> None:
    """Refuse to replace a file that takes work to make by one of another kind; None stands for any other kind."""
    kind = _kind_of(old) if old.is_file() else None
    if kind and (new is None or kind != _kind_of(new)):
        message = f"{old} is {kind}, and would be replaced by something else."
        raise FsbenchError(message, "Choose another name, or remove it first.")


def _kind_of(path: Path) -> str | None:
    """The kind of a file by its first bytes, if it is one that takes work to make."""
    with path.open("rb") as stream:
        start = stream.read(32)
    return next((kind for kind, signature in _SIGNATURES.items() if re.match(signature, start, re.DOTALL)), None)


def is_name(text: str) -> bool:
    """Whether a text can name a data set, a backbone or a method: one line in any script, no control characters."""
    return 0 < len(text) <= _LONGEST_NAME and not _NO_NAME.search(text)


def readable_part(text: str) -> str:
    """The beginning of a text that is short enough to be part of a file name."""
    return text.encode()[:_READABLE_BYTES].decode(errors="ignore")


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_sealed(path: Path, content: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Write an object with its seal, whole or not at all."""
    sealed = {**content, _SEAL: _digest_of(content)}
    write_text(path, json.dumps(sealed, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def read_sealed(path: Path, kind: type[T], what: str, remedy: str) -> T:
    """Read an object of a type and compare it with its seal.

    Messages call the file a `what`, such as `record`, and end with the remedy.
    """
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - completion imports this module for names alone

    try:
        content = json.loads(path.read_bytes())
        seal = content.pop(_SEAL, None)
    except OSError as error:
        raise system_trouble(f"The {what} {path} cannot be read", error) from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:  # the second two: not an object
        raise FsbenchError(f"The {what} {path} is damaged: it is not JSON as fsbench writes it.", remedy) from error
    if seal != _digest_of(content):
        raise FsbenchError(f"The {what} {path} is not as it was written: its SHA-256 differs.", remedy)
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise FsbenchError(f"The {what} {path} is damaged: {where}: {first['msg']}.", remedy) from error


def _digest_of(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _flush(path: Path) -> None:
    """Make a file or a rename permanent. Some network folders cannot be flushed, which does no harm."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FLUSH or not path.is_dir():
            raise


_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}
_MOMENT = 0.1  # seconds, in which a lock file that was just removed is made again
_EVERYBODY = 0o666  # another user may resume a killed run


@contextlib.contextmanager
def only_writer(path: Path, waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """Be the only process that writes a file while the block runs, on this machine or another.

    The lock is the kernel's, on a hidden file beside `path`: it ends with the process, so a lock file that is left
    behind blocks nobody. Where a file system has no locks, nothing is locked. Temporary files of killed writers of
    this file are removed. Another writer is an error; with `waiting`, which is called once with a sentence, this one
    waits until the other is done.
    """
    side = path.parent / f".{path.name}.lock"
    lock = FileLock(side, mode=_EVERYBODY, fallback_to_soft=False)
    try:
        _refuse_no_file(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(Timeout):
            lock.acquire(timeout=_MOMENT)
        if not lock.is_locked:
            sentence = f"{path} is being written by another process"
            if waiting is None:
                raise FsbenchError(f"{sentence}.", "Wait until it is done, or write elsewhere with --out.")
            waiting(f"{sentence}: waiting for it.")
            lock.acquire()
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise system_trouble(f"Could not write {path}", error) from error
    try:
        for leftover in path.parent.glob(f".*{escape(path.name)}.*.tmp") if lock.is_locked else ():
            if TEMPORARY.fullmatch(leftover.name):
                with contextlib.suppress(OSError):
                    leftover.unlink()
        yield
    finally:
        if lock.is_locked:
            with contextlib.suppress(OSError):
                side.unlink()  # before the release, so that a waiting process sees that the file is gone
            lock.release()
