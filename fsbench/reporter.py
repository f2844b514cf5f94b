"""Output for people on the terminal: safe consoles, progress bars, notes and warnings."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn
from rich.segment import Segment
from rich.table import Column

SECONDS_OF_SILENCE = 30.0
_WIDE = 100  # columns of a terminal that has room for all fields of a bar
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


class Reporter:
    """Progress bars, notes and warnings on stderr: warnings alone if quiet, nothing if silent, as others report."""

    def __init__(self, quiet: bool = False, silent: bool = False) -> None:
        self.console: Console = SafeConsole(stderr=True, quiet=silent)
        self.quiet = quiet or silent
        self.spoken = time.monotonic()
        self._drawn: Progress | None = None  # all bars that are on the screen

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Bar]:
        """Show a progress bar with speed and time left while the block runs; in a log, a line now and then.

        A bar within the block of another one is drawn below it.
        """
        outer, whole = self._drawn, Column(no_wrap=True)
        details = (
            BarColumn(),
            MofNCompleteColumn(table_column=whole),
            TextColumn("{task.fields[speed]}", table_column=whole),
        )
        drawn = self._drawn = outer or Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
            *(details if self.console.width >= _WIDE else ()),
            TextColumn("{task.fields[left]}", table_column=whole),
            console=self.console,
            transient=True,
            expand=True,
            speed_estimate_period=SECONDS_OF_SILENCE,
            get_time=lambda: time.monotonic(),
            disable=self.quiet or not self.console.is_terminal,
        )
        number = drawn.add_task(label, total=total or None, speed="", left="")
        try:
            with nullcontext() if outer else drawn:
                yield Bar(self, drawn, drawn.tasks[-1])
        finally:
            drawn.remove_task(number)
            self._drawn = outer

    def say(self, text: str) -> None:
        """Print a note, unless quiet."""
        self.spoken = time.monotonic()
        if not self.quiet:
            self.console.print(text, style="dim", soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a warning, even when quiet."""
        self.console.print(f"warning: {text}", style="yellow", soft_wrap=True)


@dataclass(frozen=True)
class Bar:
    """Advances a bar on a terminal; in a log, prints a line when nothing was printed for a while."""

    reporter: Reporter
    drawn: Progress
    task: Task

    def __call__(self, done: int, label: str = "") -> None:
        """Add to what is done, and say what is under way. Speed and time left are empty until measured."""
        task = self.task
        self.drawn.update(task.id, advance=done, description=label or task.description)
        seconds = task.time_remaining if task.total else None
        left = "" if seconds is None else f"{timedelta(seconds=round(seconds))} left"
        speed = f"{task.speed:,.{0 if task.speed > 10 else 1}f}/s" if task.speed else ""
        self.drawn.update(task.id, speed=speed, left=left)
        silent = time.monotonic() - self.reporter.spoken < SECONDS_OF_SILENCE
        if self.drawn.disable and not silent and task.total and 0 < task.completed < task.total:
            words = [f"{task.description}: {task.completed:,.0f} of {task.total:,.0f}", speed, left]
            self.reporter.say(", ".join(filter(None, words)))
