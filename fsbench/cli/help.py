"""How commands explain themselves."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def help_of(command: Callable[..., None]) -> str:
    """The docstring of a command with one line per paragraph, so that the terminal's width breaks lines."""
    paragraphs = inspect.getdoc(command) or ""
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs.split("\n\n"))
