"""The one error that users are meant to see."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_FULL = "Free some space, then run the same command again to resume."
_FORBIDDEN = "Check that the folder can be written to, or choose another one."
_GONE = "Check the disk or the network folder, then run the same command again."
_REMEDIES = {
    errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.EFBIG: _FULL,
    errno.EACCES: _FORBIDDEN, errno.EPERM: _FORBIDDEN, errno.EROFS: _FORBIDDEN, errno.ENOTDIR: _FORBIDDEN,
    errno.EIO: _GONE, errno.ESTALE: _GONE, errno.ENOTCONN: _GONE, errno.ETIMEDOUT: _GONE, errno.EHOSTDOWN: _GONE,
    errno.ENOENT: "Check the path: the file or folder was not found.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EMFILE: "Raise the limit of open files with `ulimit -n`.",
}  # fmt: skip


class FsbenchError(Exception):
    """Something could not be done; the message is for users.

    The command line shows it without a traceback and exits with status 1. Every other exception is a bug. The message
    says what was expected and what is there instead; the hint what to do about it. Hints spell
    options as the command line does: `--shots 5` is `shots=5` in Python.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(FsbenchError):
    """An argument that has no meaning, or contradicts another one; the command line exits with status 2.

    Attributes:
        argument: Its name in Python, which the command line shows as an option.
        complaint: What is wrong with it, without a full stop.
    """

    def __init__(self, argument: str, message: str, hint: str = "") -> None:
        super().__init__(f"{argument}: {message}.", hint)
        self.argument, self.complaint = argument, message


_WANTED = {
    r"^(Value error, |Input should be )|, unable to .*": "",
    r"^greater than 0$": "a positive number",
    r"^greater than or equal to ": "at least ",
    r"^less than or equal to ": "at most ",
    r"^less than ": "below ",
    r"^a valid integer": "a whole number",
    r"^a valid boolean": "true or false",
    r"^a valid ": "a ",
}


def wanted(errors: Iterable[Mapping[str, Any]]) -> str:
    """What a value should have been, from pydantic's errors: `a positive number or 'learned'`."""
    parts = [str(error["msg"]) for error in errors]
    for pattern, words in _WANTED.items():
        parts = [re.sub(pattern, words, part) for part in parts]
    return " or ".join(dict.fromkeys(parts))


def unknown_name(kind: str, name: str, known: Iterable[str]) -> FsbenchError:
    """An error for a mistyped name that suggests the nearest known one."""
    names = sorted(known)
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
    return FsbenchError(f"Unknown {kind} {name!r}.", f"{hint}Known: {', '.join(names)}.")


def missing_file(path: Path, hint: str) -> FsbenchError:
    """An error for a path where nothing is, that suggests the nearest name in its folder."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        names = []
    nearest = difflib.get_close_matches(path.name, names, n=1)
    return FsbenchError(f"No such file: {path}.", f"Did you mean {path.parent / nearest[0]}?" if nearest else hint)


def system_trouble(what: str, error: Exception) -> FsbenchError:
    """An error of the operating system in words, after what could not be done and with which file; and its remedy.

    It may be what a library made of an OSError: torch raises another in its place, HDF5 has it in its text.
    """
    hidden = re.search(r"errno = (\d+)", str(error))
    number = int(hidden[1]) if hidden else 0
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, OSError) and behind.errno is not None:
            number = behind.errno
            break
        behind = behind.__cause__ or behind.__context__
    reason = os.strerror(number) if number else str(error).strip().partition("\n")[0] or type(error).__name__
    remedy = _REMEDIES.get(number, "Check that the folder can be written to and that the disk has room.")
    return FsbenchError(f"{what}: {reason}.", remedy)
