"""The one error that users are meant to see."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Call = TypeVar("Call", bound=Callable[..., Any])

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
    """Something could not be done, said in words a user can act on.

    The command line shows it without a traceback and exits with status 1. Every other exception is a bug. The message
    says what was expected, what was found, and where; the hint what to do about it.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(FsbenchError):
    """An argument that has no meaning, or contradicts another one; the command line exits with status 2.

    The argument has its name in Python, which the command line shows as an option; the message has no full stop.
    """

    def __init__(self, argument: str, message: str, hint: str = "") -> None:
        super().__init__(f"{argument}: {message}.", hint)
        self.argument, self.complaint = argument, message

    def as_option(self) -> FsbenchError:
        """The same error, with the argument spelled as an option."""
        return FsbenchError(f"--{self.argument.replace('_', '-')}: {self.complaint}.", self.hint)


_SWITCHES = {"force", "tune", "balanced", "pretrained", "skip_broken", "skip_infeasible", "over_data"}
_OPTION = re.compile(r"--([a-z][a-z-]*)(?:[ =]([A-Z]{2,}(?:\.h5)?|\d[\d.,]*\d|\d|all\b|val\b|fp32|feat|ptmap))?")
_COMMAND = re.compile(r"(`?fsbench [a-z]+ [^\n`]*)")  # as typed in a terminal, from Python too


def in_python(text: str) -> str:
    """A message with the arguments of Python in place of options of the command line."""

    def argument(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        return f"{name}={option[2]}" if option[2] else f"{name}=True" if name in _SWITCHES else name

    parts = _COMMAND.split(text)
    return "".join(part if place % 2 else _OPTION.sub(argument, part) for place, part in enumerate(parts))


def speaks_python(function: Call) -> Call:
    """Decorates a function of the Python interface: its errors speak of arguments, not of options."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except FsbenchError as error:
            error.message, error.hint = in_python(error.message), in_python(error.hint)
            error.args = (error.message,)
            raise

    return call  # type: ignore[return-value]


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
