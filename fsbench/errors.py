"""The one error that users are meant to see."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class FsbenchError(Exception):
    """Something could not be done, said in words a user can act on.

    The command line shows it without a traceback and exits with status 1. Every other exception is a bug.

    Args:
        message: What was expected, what was found, and where.
        hint: What to do about it.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


def unknown_name(kind: str, name: str, known: Iterable[str]) -> FsbenchError:
    """An error for a mistyped name that suggests the nearest known one."""
    names = sorted(known)
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
    return FsbenchError(f"Unknown {kind} {name!r}.", f"{hint}Known: {', '.join(names)}.")
