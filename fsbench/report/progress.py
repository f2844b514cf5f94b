"""What a person sees while waiting: bars and remarks on stderr, so that stdout stays clean for tables and data."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fsbench.report.console import SafeConsole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console


class Advance(Protocol):
    """Tells a bar that more is done, and, where it became known only now, how much there is."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Say that `done` more are done."""
        ...


class Reporter:
    """Bars and remarks.

    Args:
        quiet: Show warnings only.
        silent: Show nothing at all: another process speaks.
    """

    def __init__(self, quiet: bool = False, silent: bool = False) -> None:
        self.console: Console = SafeConsole(stderr=True, quiet=silent)
        self.quiet = quiet or silent

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Advance]:
        """Show a bar, with speed and time left, while the block runs."""
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
        )
        hidden = self.quiet or not self.console.is_terminal
        with Progress(*columns, console=self.console, transient=True, disable=hidden) as progress:
            task = progress.add_task(label, total=total or None, speed="")

            def advance(done: int, total: int | None = None) -> None:
                progress.update(task, advance=done, total=total)
                speed = progress.tasks[0].speed if progress.tasks else None
                progress.update(task, speed=f"{speed:,.0f}/s" if speed else "")

            yield advance

    def say(self, text: str) -> None:
        """A remark."""
        if not self.quiet:
            self.console.print(text, style="dim", soft_wrap=True)

    def warn(self, text: str) -> None:
        """A warning, shown even when quiet."""
        self.console.print(f"warning: {text}", style="yellow", soft_wrap=True)
