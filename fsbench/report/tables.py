"""Tables for the terminal: their common look, and those of single commands."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import re
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, chop_cells
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fsbench.methods.presets import symbol
from fsbench.reporter import SafeConsole
from fsbench.tasks.protocol import TaskProtocol, setting_title

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console, ConsoleOptions, RenderResult

    from fsbench.bench.measure import Measure
    from fsbench.evaluation.verify import Verdict
    from fsbench.features.scatter import BaseStatistics
    from fsbench.results.comparison import Comparison
    from fsbench.results.curves import Curve, Panel, Value
    from fsbench.results.statistics import Interval
    from fsbench.results.tuned import Trial, Tuned


def plus_minus(mean: float, half_width: float | None) -> str:
    """A mean with its interval."""
    return f"{mean:.2f} ± {half_width:.2f}" if half_width is not None else f"{mean:.2f}"


def signed(difference: Interval) -> str:
    """A difference with its interval, which a single task does not have."""
    return f"{difference.mean:+.2f}" + ("" if math.isnan(difference.half_width) else f" ± {difference.half_width:.2f}")


def stdout_console() -> Console:
    """The console for tables: as wide as the terminal, or 100 columns where there is none."""
    console = SafeConsole()
    return console if console.is_terminal else SafeConsole(width=100)


def solved_table(comparison: Comparison) -> FirstThatFits:
    """The table of `fsbench solve`: one method and its baseline; all rows have the same tasks and α."""
    return FirstThatFits(*(_solved(comparison, *layout) for layout in ((True, " ± "), (True, "±"), (False, "±"))))


def _solved(comparison: Comparison, speed: bool, sign: str) -> Table:
    """The same with or without the speed, and the signs between means and intervals."""
    rows = comparison.paired_rows()
    first = rows[0].record.row()
    words = [*([first["variant"]] if first["variant"] else []), *(["tuned on val"] if _is_tuned(first) else [])]
    variant = f" ({', '.join(words)})" if words else ""
    alpha = f", α = {first['alpha']:g}" if first["alpha"] is not None else ""
    over = f"over {first['tasks']:,} tasks{alpha}"
    table = plain_table(f"{first['method']}{variant}: accuracy in % ± 95 % interval {over}")
    for name in ("data set", "backbone"):
        table.add_column(name, overflow="fold", min_width=6)
    table.add_column("setting", no_wrap=True)
    reference = next((row.baseline.key.method for row in rows if row.baseline), "")
    for name in ("shots", "accuracy", *((reference, "gain") if reference else ()), *(["tasks/s"] if speed else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for paired in rows:
        row, baseline, gain = paired.record.row(), paired.baseline, paired.difference
        cells = [str(row[name]) for name in ("dataset", "backbone", "setting", "shots")]
        cells[1] += f" ({row['weights']})" if row["weights"].startswith("random ") else ""
        cells.append(plus_minus(row["accuracy"], row["ci95"]))
        if reference:
            cells.append(plus_minus(baseline.accuracy, baseline.ci95) if baseline else "")
            cells.append(signed(gain) if gain else "")
        cells += [f"{row['tasks_per_second']:,.0f}"] if speed else []
        table.add_row(*(text.replace(" ± ", sign) for text in cells))
    return table


def _is_tuned(row: dict[str, Any]) -> bool:
    return str(row["params_from"]).startswith("tuned")


class _Headed(Table):
    """A table below its heading, which may be wider than the table.

    Numbers are never cut: columns of numbers that do not fit follow below, with the text columns repeated.
    """

    heading: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.heading, style="bold")
        widths = [self._width(place, console, options) for place in range(len(self.columns))]
        texts = [place for place in range(len(widths)) if self._is_text(place)]
        left = [place for place in range(len(widths)) if place not in texts]
        room = options.max_width - 1 - sum(widths[place] for place in texts)
        while True:
            count = max(1, sum(taken <= room for taken in itertools.accumulate(widths[place] for place in left)))
            yield from super(_Headed, self._part(sorted(texts + left[:count]))).__rich_console__(console, options)
            left = left[count:]
            if not left:
                break

    def fits(self, console: Console, options: ConsoleOptions) -> bool:
        """Whether all columns fit side by side."""
        widths = (self._width(place, console, options) for place in range(len(self.columns)))
        return 1 + sum(widths) <= options.max_width

    def _is_text(self, place: int) -> bool:
        """Whether a column is repeated for all numbers: the first one, and those not aligned to the right."""
        return place == 0 or self.columns[place].justify != "right"

    def _part(self, places: Sequence[int]) -> _Headed:
        """The table with only these of its columns."""
        part = copy.copy(self)
        part.columns = [dataclasses.replace(self.columns[place], _index=n) for n, place in enumerate(places)]
        return part

    def _width(self, place: int, console: Console, options: ConsoleOptions) -> int:
        """Width of a column in characters, with one edge, when texts are folded and numbers are not."""
        measured = Measurement.get(console, options.update(max_width=10_000), self._part([place]))
        folds = place > 0 and self._is_text(place) and not self.columns[place].no_wrap
        return (measured.minimum if folds else measured.maximum) - 1


class FirstThatFits:
    """The first of several tables whose columns fit side by side; else the last one, continued below."""

    def __init__(self, *tables: Table) -> None:
        self.tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fitting = (table for table in self.tables if isinstance(table, _Headed) and table.fits(console, options))
        yield next(fitting, self.tables[-1])


class Signature:
    """A signature line: whole where it is piped or written to a file, broken between its fields on a terminal."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = self._lines(options.max_width) if options.is_terminal else [self.text]
        yield from (Text(line, style="dim", no_wrap=True, overflow="ignore") for line in lines)

    def _lines(self, width: int) -> list[str]:
        """As many fields per line as fit; a field that is too long alone is broken where the width ends."""
        lines = [""]
        for field in re.findall(r"[^|]*\|?", self.text):
            if lines[-1] and cell_len(lines[-1] + field) > width:
                lines.append("")
            *full, last = chop_cells(lines[-1] + field, width) or [""]
            lines[-1:] = [*full, last]
        return lines


def plain_table(heading: str) -> Table:
    """The look of all tables."""
    table = _Headed(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.heading = heading
    return table


def scatter_table(rows: list[tuple[Path, BaseStatistics, float]]) -> Table:
    """The table of `fsbench scatter`: one row per feature file, with the σ that `solve` would use."""
    table = plain_table("Within-class scatter of the base classes")
    table.add_column("features", overflow="fold")
    for name in ("N_base", "classes", "D", "effective rank", "clamped"):
        table.add_column(name, justify="right", no_wrap=True)
    for path, base, sigma in rows:
        counts = f"{sum(base.class_counts):,}", f"{len(base.class_counts):,}", str(len(base.mean))
        clamped = f"{100 * base.share_clamped(sigma):.0f} % at σ = {sigma:g}"
        table.add_row(path.name, *counts, f"{base.effective_rank:.1f}", clamped)
    return table


def verdicts_table(verdicts: Sequence[Verdict]) -> Table:
    """The table of `fsbench verify`: one row per record."""
    table = plain_table("Records, solved again on a sample of their tasks")
    for name in ("data set", "backbone", "method"):
        table.add_column(name, overflow="fold", min_width=6)
    for name in ("setting", "shots"):
        table.add_column(name, no_wrap=True)
    table.add_column("tasks", justify="right", no_wrap=True)
    table.add_column("result", no_wrap=True)
    styles = {"equal": "green", "different": "bold red", "not verified": "yellow"}
    for verdict in verdicts:
        record, protocol = verdict.record, TaskProtocol(**verdict.record.key.protocol)
        setting = setting_title(protocol.alpha, protocol.present, protocol.pooled)
        result = Text(verdict.state, style=styles[verdict.state])
        checked = f"{len(verdict.tasks):,} of {record.key.tasks:,}"
        table.add_row(record.dataset, record.backbone, verdict.method, setting, str(protocol.shots), checked, result)
    return table


def measures_table(measures: list[Measure]) -> Table:
    """The table of `fsbench bench`."""
    table = plain_table("Speed on this machine, as ratios within this run")
    for name in ("case", "measured against"):
        table.add_column(name, overflow="fold")
    for name in ("", "bound"):
        table.add_column(name, justify="right", no_wrap=True)
    for measure in measures:
        digits = 0 if measure.unit == "%" and measure.value >= 10 else 1 if measure.unit in {"×", "tasks/s", "%"} else 2
        unit = "" if measure.unit == "ratio" else f" {measure.unit}"
        bound = f"{'≥' if measure.bound.least else '≤'} {measure.bound.limit:g}{unit}" if measure.bound else ""
        style = "bold red" if measure.missed else ""
        table.add_row(measure.case, measure.against, f"{measure.value:,.{digits}f}{unit}", bound, style=style)
    return table


WIDE = 5  # curves up to which a table has room for intervals
SHOWN = 10  # trials of a search that is not a grid


def panel_table(panel: Panel) -> Table:
    """One row per value of the axis, one column per curve; the best point of a curve is bold."""
    wide = len(panel.curves) <= WIDE
    table = plain_table(f"{panel.title}: accuracy in %" + (" ± 95 % interval" if wide else ""))
    table.add_column(panel.axis, justify="right", no_wrap=True)
    for curve in panel.curves:
        table.add_column(curve.label, justify="right")
    for x in dict.fromkeys(point.x for curve in panel.curves for point in curve.points):
        table.add_row(number(x), *(_cell(curve, x, wide) for curve in panel.curves))
    return table


def _cell(curve: Curve, x: Value, interval: bool) -> Text:
    (point,) = (point for point in curve.points if point.x == x)
    text = plus_minus(point.accuracy, point.ci95 if interval else None)
    known = {point.x: point.accuracy for point in curve.published}
    text += f" (published {known[x]:.2f})" if x in known else ""
    return Text(text, style="bold" if point == curve.best else "")


def surface_tables(tuned: Tuned) -> list[Table]:
    """A grid as tables of its two longest axes; anything else as a list of the best trials."""
    if tuned.how != "grid":
        return [_best_trials(tuned)]
    axes = grid_axes(tuned.trials)
    down, across, rest = split_axes(axes)
    found = {tuple(sorted(trial.params.items())): trial for trial in tuned.trials}
    tables = []
    for values in itertools.product(*(axes[name] for name in rest)):
        fixed = dict(zip(rest, values, strict=True))
        title = ", ".join(f"{symbol(name)} = {number(value)}" for name, value in fixed.items())
        table = plain_table(f"{tuned.method}, {tuned.setting}: accuracy on val in %" + (f", {title}" if title else ""))
        places = [{across: value} for value in axes[across]] if across else [{}]
        heads = [f"{symbol(across)} = {number(value)}" for value in axes[across]] if across else ["accuracy"]
        for head in (symbol(down), *heads):
            table.add_column(head, justify="right")
        for y in axes[down]:
            cells = []
            for place in places:
                trial = found[tuple(sorted({**fixed, down: y, **place}.items()))]
                best = trial.params == tuned.params
                cells.append(Text(f"{trial.accuracy:.2f}" + (" ▲" if best else ""), style="bold" if best else ""))
            table.add_row(number(y), *cells)
        tables.append(table)
    return tables


def _best_trials(tuned: Tuned) -> Table:
    table = plain_table(f"{tuned.method}, {tuned.setting}: best of {len(tuned.trials)} trials, accuracy on val in %")
    names = list(tuned.trials[0].params)
    for name in (*map(symbol, names), "accuracy"):
        table.add_column(name, justify="right")
    for trial in sorted(tuned.trials, key=lambda trial: -trial.accuracy)[:SHOWN]:
        table.add_row(*(number(trial.params[name]) for name in names), plus_minus(trial.accuracy, trial.ci95))
    return table


def grid_axes(trials: Sequence[Trial]) -> dict[str, list[Value]]:
    """Names and values of the axes of a grid."""
    return {name: list(dict.fromkeys(trial.params[name] for trial in trials)) for name in trials[0].params}


def split_axes(axes: dict[str, list[Value]]) -> tuple[str, str, list[str]]:
    """The longest axis goes down, the next one (or none, "") across, the rest are tables or panels of their own."""
    longest = sorted(axes, key=lambda name: -len(axes[name]))
    down, across = longest[0], longest[1] if len(longest) > 1 else ""
    return down, across, [name for name in axes if name not in (down, across)]


def number(value: Value) -> str:
    """Short, without needless digits."""
    return value if isinstance(value, str) else f"{value:g}"
