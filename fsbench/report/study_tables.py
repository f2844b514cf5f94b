"""Tables of sweeps and of tuning, for the terminal."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from rich.text import Text

from fsbench.evaluation.axes import symbol
from fsbench.report.tables import plain_table, plus_minus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from fsbench.evaluation.axes import Value
    from fsbench.evaluation.tuning import Trial, Tuned
    from fsbench.report.curves import Curve, Panel

WIDE = 5  # curves up to which a table has room for intervals
SHOWN = 10  # trials of a search that is not a grid


def panel_table(panel: Panel) -> Table:
    """One row per value of the axis, one column per curve; the best point of a curve is bold."""
    table = plain_table(f"{panel.title}: accuracy in %" + (" ± 95 % interval" if len(panel.curves) <= WIDE else ""))
    table.add_column(panel.axis, justify="right", no_wrap=True)
    for curve in panel.curves:
        table.add_column(curve.label, justify="right")
    for x in dict.fromkeys(point.x for curve in panel.curves for point in curve.points):
        table.add_row(number(x), *(_cell(curve, x, len(panel.curves) <= WIDE) for curve in panel.curves))
    return table


def _cell(curve: Curve, x: Value, interval: bool) -> Text:
    (point,) = (point for point in curve.points if point.x == x)
    text = plus_minus(point.accuracy, point.ci95 if interval else None)
    known = {point.x: point.accuracy for point in curve.published}
    if x in known:
        text += f" (published {known[x]:.2f})"
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
        table.add_column(symbol(down), justify="right")
        for value in axes[across] if across else [""]:
            table.add_column(f"{symbol(across)} = {number(value)}" if across else "accuracy", justify="right")
        for y in axes[down]:
            cells = []
            for x in axes[across] if across else [None]:
                place = {**fixed, down: y, **({across: x} if across and x is not None else {})}
                trial = found[tuple(sorted(place.items()))]
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
