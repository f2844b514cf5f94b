"""Consoles that show names of others without obeying them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, RenderableType

# Control characters but tab and newline, and the marks that turn the direction of writing.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


def printable(text: str) -> str:
    """A text whose characters all show: what a terminal would obey is written out, ESC as x1b after a backslash."""
    return _COMMANDS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class SafeConsole(Console):
    """A console on which a name from a file cannot move the cursor, set colours or hide anything.

    Args:
        options: Those of rich's console, but for markup, which nothing printed here may carry.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces of what is printed, made printable; rich's own controls are left as they are."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
