"""Output for people on the terminal: safe consoles, progress bars, notes and warnings."""

from __future__ import annotations

import itertools
import math
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
from rich.segment import Segment
from rich.table import Column

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


@dataclass
class _Pace:
    """Steps per second: in the present cell, smoothed over the last half minute or so, and on average over all cells.

    Attributes:
        in_cell: Steps left in the present cell; infinite where there are no cells.
    """

    last: float = field(default_factory=lambda: time.monotonic())
    done: float = 0.0
    seconds: float = 0.0
    all_done: int = 0
    all_seconds: float = 0.0
    in_cell: float = math.inf

    def add(self, done: int, timed: bool) -> None:
        """Count steps that were just done, or leave them and their time out."""
        passed = time.monotonic() - self.last
        self.last += passed
        self.in_cell -= done
        if timed:
            keep = math.exp(-passed / SECONDS_OF_SILENCE)
            self.done, self.seconds = self.done * keep + done, self.seconds * keep + passed
            self.all_done, self.all_seconds = self.all_done + done, self.all_seconds + passed

    def left(self, steps: int) -> str:
        """The time that further steps take, those of later cells on average; empty as long as nobody can tell."""
        if not self.all_done or not self.all_seconds:
            return ""
        own, average = min(steps, self.in_cell), self.all_done / self.all_seconds
        return str(timedelta(seconds=round(own / (self.rate or average) + (steps - own) / average)))

    @property
    def rate(self) -> float:
        """Per second."""
        return self.done / self.seconds if self.seconds else 0.0


class Reporter:
    """Progress bars, notes and warnings on stderr: warnings alone if quiet, nothing if silent, as others report."""

    def __init__(self, quiet: bool = False, silent: bool = False, words: Callable[[str], str] = str) -> None:
        self.words = words  # what is made of a message: in Python, options become arguments
        self.console: Console = SafeConsole(stderr=True, quiet=silent)
        self.quiet = quiet or silent
        self.spoken = time.monotonic()
        self._drawn: Progress | None = None  # all bars that are on the screen

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[_Bar | _Lines]:
        """Show a progress bar with speed and time left while the block runs; in a log, a line now and then.

        A bar within the block of another one is drawn below it.
        """
        if self.quiet or not self.console.is_terminal:
            yield _Lines(self, label, total)
        elif self._drawn:
            yield from self._below(self._drawn, label, total)
        else:
            with Progress(*_columns(self.console.width), console=self.console, transient=True, expand=True) as drawn:
                self._drawn = drawn
                try:
                    yield from self._below(drawn, label, total)
                finally:
                    self._drawn = None

    def _below(self, drawn: Progress, label: str, total: int) -> Iterator[_Bar]:
        bar = _Bar(drawn, label, total)
        try:
            yield bar
        finally:
            drawn.remove_task(bar.task)

    @contextmanager
    def cells(self, count: int, steps: int, noun: str = "cell") -> Iterator[Callable[[str], Callable[[int], None]]]:
        """One bar over many cells of as many steps each: `cell 5 of 64: …`, with the time left for all of them.

        Gives a function from the label of the next cell to what advances it. A cell that is done at once, as its result
        is read from a record, does not count for the speed.
        """
        with self.bar("preparing", count * steps) as bar:
            numbers = itertools.count(1)

            def next_cell(label: str) -> Callable[[int], None]:
                if 0 < bar.pace.in_cell < math.inf:  # the cell before had fewer steps than others
                    bar(int(bar.pace.in_cell), timed=False)
                bar.label = f"{noun} {next(numbers)} of {count}: {label}" if count > 1 else label
                bar.pace.in_cell, bar.pace.done, bar.pace.seconds = steps, 0.0, 0.0
                return lambda done: bar(done, timed=done < steps)

            yield next_cell

    def say(self, text: str) -> None:
        """Print a note, unless quiet."""
        self.spoken = time.monotonic()
        if not self.quiet:
            self.console.print(self.words(text), style="dim", soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a warning, even when quiet."""
        self.console.print(f"warning: {self.words(text)}", style="yellow", soft_wrap=True)


def _columns(width: int) -> list[ProgressColumn]:
    """The fields of a bar, the less important ones only where there is room; labels are cut before fields are."""
    fields: list[tuple[int, ProgressColumn]] = [
        (0, TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True))),
        (70, BarColumn(bar_width=24 if width >= 110 else 12)),
        (100, MofNCompleteColumn(table_column=Column(no_wrap=True))),
        (85, TextColumn("{task.fields[speed]}", table_column=Column(no_wrap=True))),
        (0, TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True))),
    ]
    return [field for least, field in fields if width >= least]


class _Bar:
    """A bar on a terminal."""

    def __init__(self, drawn: Progress, label: str, total: int) -> None:
        self.drawn, self.pace, self.done, self.total = drawn, _Pace(), 0, total
        self.task = drawn.add_task(label, total=total or None, speed="", left="")

    @property
    def label(self) -> str:
        """What stands before it."""
        return self.drawn.tasks[self.drawn.task_ids.index(self.task)].description

    @label.setter
    def label(self, text: str) -> None:
        self.drawn.update(self.task, description=text)

    def __call__(self, done: int, total: int | None = None, *, timed: bool = True) -> None:
        """Add to what is done; set the total if it has become known."""
        self.done, self.total = self.done + done, total or self.total
        self.pace.add(done, timed)
        speed = f"{self.pace.rate:,.0f}/s" if self.pace.rate else ""
        left = self.pace.left(self.total - self.done) if self.total else ""
        self.drawn.update(self.task, advance=done, total=self.total or None, speed=speed, left=left and f"{left} left")


@dataclass
class _Lines:
    """Progress in a log, where no bar can be drawn: a line when nothing was printed for a while."""

    reporter: Reporter
    label: str
    total: int
    done: int = 0
    pace: _Pace = field(default_factory=_Pace)

    def __call__(self, done: int, total: int | None = None, *, timed: bool = True) -> None:
        """Add to what is done; set the total if it has become known."""
        self.done += done
        self.total = total or self.total
        self.pace.add(done, timed)
        if self.pace.last - self.reporter.spoken < SECONDS_OF_SILENCE or not 0 < self.done < self.total:
            return
        words = [f"{self.label}: {self.done:,} of {self.total:,}"]
        if left := self.pace.left(self.total - self.done):
            words += [f"{self.pace.rate:,.1f}/s", f"{left} left"]
        self.reporter.say(", ".join(words))
