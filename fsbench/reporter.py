"""What is said to the user on the terminal: safe consoles, progress bars, notes and warnings."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import ConsoleOptions, RenderableType

SECONDS_OF_SILENCE = 30.0
# Control characters except tab and newline, and the characters that change the direction of writing.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


def printable(text: str) -> str:
    """A text without control characters: they are escaped, ESC as x1b after a backslash."""
    return _COMMANDS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class SafeConsole(Console):
    """A console on which a name from a file cannot move the cursor, set colours or hide anything."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments to print, without control characters except rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class Advance(Protocol):
    """Advances a progress bar."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Add `done` to what is done; set the total if it has become known."""


class Reporter:
    """Progress bars, notes and warnings on stderr: warnings alone if quiet, nothing if silent, as others report."""

    def __init__(self, quiet: bool = False, silent: bool = False, words: Callable[[str], str] = str) -> None:
        self.words = words  # what is made of a message: in Python, options become arguments
        self.console: Console = SafeConsole(stderr=True, quiet=silent)
        self.quiet = quiet or silent
        self.spoken = time.monotonic()

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Advance]:
        """Show a progress bar with speed and time left while the block runs; in a log, a line now and then."""
        if self.quiet or not self.console.is_terminal:
            yield _Lines(self, label, total)
            return
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as progress:
            task = progress.add_task(label, total=total or None, speed="")

            def advance(done: int, total: int | None = None) -> None:
                progress.update(task, advance=done, total=total)
                speed = progress.tasks[0].speed if progress.tasks else None
                progress.update(task, speed=f"{speed:,.0f}/s" if speed else "")

            yield advance

    def say(self, text: str) -> None:
        """Print a note, unless quiet."""
        self.spoken = time.monotonic()
        if not self.quiet:
            self.console.print(self.words(text), style="dim", soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a warning, even when quiet."""
        self.console.print(f"warning: {self.words(text)}", style="yellow", soft_wrap=True)


class _Lines:
    """Progress in a log, where no bar can be drawn: a line when nothing was printed for a while."""

    def __init__(self, reporter: Reporter, label: str, total: int) -> None:
        self.reporter, self.label, self.total = reporter, label, total
        self.done, self.start = 0, time.monotonic()

    def __call__(self, done: int, total: int | None = None) -> None:
        self.done += done
        self.total = total or self.total
        now = time.monotonic()
        if now - self.reporter.spoken < SECONDS_OF_SILENCE or not 0 < self.done < self.total:
            return
        speed = self.done / (now - self.start)
        left = timedelta(seconds=round((self.total - self.done) / speed))
        self.reporter.say(f"{self.label}: {self.done:,} of {self.total:,}, {speed:,.1f}/s, {left} left")
