"""Tables for the terminal."""

from __future__ import annotations

import copy
import dataclasses
import math
from itertools import accumulate
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fsbench.report.console import SafeConsole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console, ConsoleOptions, RenderResult

    from fsbench.bench.measure import Measure
    from fsbench.evaluation.solve import Solved
    from fsbench.evaluation.statistics import Interval
    from fsbench.features.scatter import BaseStatistics


def plus_minus(mean: float, half_width: float | None) -> str:
    """A mean with its interval."""
    return f"{mean:.2f} ± {half_width:.2f}" if half_width is not None else f"{mean:.2f}"


def stdout_console() -> Console:
    """The console for tables: as wide as the terminal, or 100 columns where there is none."""
    console = SafeConsole()
    return console if console.is_terminal else SafeConsole(width=100)


def solved_table(rows: list[Solved]) -> Table:
    """What `fsbench solve` shows. All rows have the same method, tasks and α."""
    first = rows[0].record.row()
    variant = f" ({first['variant']})" if first["variant"] else ""
    alpha = f", α = {first['alpha']:g}" if first["alpha"] is not None else ""
    title = f"{first['method']}{variant}: accuracy in % ± 95 % interval over {first['tasks']:,} tasks{alpha}"
    table = plain_table(title)
    for name in ("data set", "backbone"):
        table.add_column(name, overflow="fold", min_width=6)
    table.add_column("setting", no_wrap=True)
    for name in ("shots", "accuracy", "Soft-KMEANS", "gain", "tasks/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for solved in rows:
        row, baseline, gain = solved.record.row(), solved.baseline, solved.gain
        table.add_row(
            row["dataset"],
            row["backbone"],
            row["setting"],
            str(row["shots"]),
            plus_minus(row["accuracy"], row["ci95"]),
            plus_minus(baseline.accuracy, baseline.ci95) if baseline else "",
            _signed(gain) if gain else "",
            f"{row['tasks_per_second']:,.0f}",
        )
    return table


def _signed(gain: Interval) -> str:
    """A difference with its interval, which a single task does not have."""
    return f"{gain.mean:+.2f}" + ("" if math.isnan(gain.half_width) else f" ± {gain.half_width:.2f}")


class _Headed(Table):
    """A table below its heading, which may be wider than the table.

    Numbers are never cut: columns of numbers that have no room come below, beside the same first column and texts.
    """

    heading: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.heading, style="bold")
        widths = [self._width(place, console, options) for place in range(len(self.columns))]
        texts = [place for place in range(len(widths)) if self._is_text(place)]
        left = [place for place in range(len(widths)) if place not in texts]
        room = options.max_width - 1 - sum(widths[place] for place in texts)
        while True:
            count = max(1, sum(taken <= room for taken in accumulate(widths[place] for place in left)))
            yield from super(_Headed, self._part(sorted(texts + left[:count]))).__rich_console__(console, options)
            left = left[count:]
            if not left:
                break

    def _is_text(self, place: int) -> bool:
        """Whether a column stands beside all numbers: the first one, and those that are not aligned to the right."""
        return place == 0 or self.columns[place].justify != "right"

    def _part(self, places: Sequence[int]) -> _Headed:
        """The table with only these of its columns."""
        part = copy.copy(self)
        part.columns = [dataclasses.replace(self.columns[place], _index=n) for n, place in enumerate(places)]
        return part

    def _width(self, place: int, console: Console, options: ConsoleOptions) -> int:
        """Letters that a column takes, with one edge, when texts are folded and numbers are not."""
        measured = Measurement.get(console, options.update(max_width=10_000), self._part([place]))
        folds = place > 0 and self._is_text(place) and not self.columns[place].no_wrap
        return (measured.minimum if folds else measured.maximum) - 1


def plain_table(heading: str) -> Table:
    """The look of all tables."""
    table = _Headed(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.heading = heading
    return table


def scatter_table(rows: list[tuple[Path, BaseStatistics, float]]) -> Table:
    """What `fsbench scatter` shows: one row per feature file, with the σ that a later `solve` would use."""
    table = plain_table("Within-class scatter of the base classes")
    table.add_column("features", overflow="fold")
    for name in ("N_base", "classes", "D", "effective rank", "clamped"):
        table.add_column(name, justify="right", no_wrap=True)
    for path, base, sigma in rows:
        table.add_row(
            path.name,
            f"{sum(base.class_counts):,}",
            f"{len(base.class_counts):,}",
            str(len(base.mean)),
            f"{base.effective_rank:.1f}",
            f"{100 * base.share_clamped(sigma):.0f} % at σ = {sigma:g}",
        )
    return table


def measures_table(measures: list[Measure]) -> Table:
    """What `fsbench bench` shows."""
    table = plain_table("Speed on this machine, as ratios within this run")
    table.add_column("case", overflow="fold")
    table.add_column("measured against", overflow="fold")
    table.add_column("", justify="right", no_wrap=True)
    for measure in measures:
        digits = 0 if measure.unit == "%" else 1 if measure.unit == "×" else 2
        unit = "" if measure.unit == "ratio" else f" {measure.unit}"
        table.add_row(measure.case, measure.against, f"{measure.value:.{digits}f}{unit}")
    return table
