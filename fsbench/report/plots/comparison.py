"""A comparison drawn: dots with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fsbench.errors import FsbenchError
from fsbench.report.plots.style import COLOURS, INK, Paper, Width, faint_grid, short_name
from fsbench.results.comparison import Cell, Column, Comparison, Group
from fsbench.results.statistics import Interval

# What a method assumes of the class proportions gives its colour, and its marker for readers in grey.
_LOOKS = {
    "inductive": ("#5b5b5b", "s"),
    "no prior": (COLOURS[5], "D"),
    "uniform prior": (COLOURS[2], "^"),
    "free prior": (COLOURS[0], "o"),
}
_OTHER = (COLOURS[3], "v")


def clipped_axis(values: Sequence[Interval], least: float = 0.0) -> tuple[float, float]:
    """The ends of an axis for percentages: whole ones around all values but those far below the others.

    Left out is what is 20 points below the best, and thrice as far as most.
    """
    means = np.array([value.mean for value in values])
    reach = max(3 * (means.max() - float(np.median(means))), 20.0)
    near = [value for value in values if value.mean >= means.max() - reach]
    low = min(value.mean - _width(value) for value in near)
    high = max(value.mean + _width(value) for value in near)
    margin = 0.03 * max(high - low, 4.0)
    return max(float(math.floor(low - margin)), least), min(float(math.ceil(high + margin)), 100.0)


def _width(value: Interval) -> float:
    return 0.0 if math.isnan(value.half_width) else value.half_width


Dots = dict[str, tuple["Interval", "Cell"]]  # what is drawn in a panel, by label


def draw_dots(comparison: Comparison, width: Width = "page", *, differences: bool = False) -> Figure:
    """Means with their 95 % intervals, the best first, one row of panels per feature file.

    With `differences`, the paired differences to the baseline of the comparison.
    """
    paper = Paper(width)
    down, across = paper.grid(len(comparison.columns))
    drawn = [
        [_dots(comparison, group, column, differences) for column in comparison.columns] for group in comparison.groups
    ]
    groups = [(group, panels) for group, panels in zip(comparison.groups, drawn, strict=True) if any(panels)]
    if not groups:
        raise FsbenchError(f"No method ran on the same tasks as {comparison.baseline}.", "Choose another --baseline.")
    titles = [paper.wrapped(f"{group.title}, {group.counted_tasks}", 0.9 * paper.inches) for group, _ in groups]
    heights = [
        paper.line * (down * (len(_labels(comparison, panels)) + 5.2) + 1 + title.count("\n"))
        for (_, panels), title in zip(groups, titles, strict=True)
    ]
    cells = [cell for _, panels in groups for dots in panels for _, cell in dots.values()]
    means = f"difference to {comparison.baseline} on the same tasks" if differences else comparison.metric.title
    filled = "significant" if differences else "the best of its panel, or not significantly worse"
    note = f"Dots: mean {means}; lines: 95 % intervals over these tasks. Filled: {filled} (Holm, 5 %)."
    note = paper.wrapped(note + (" !: the table has a warning." if any(cell.own_warnings for cell in cells) else ""))
    kinds = {cell.record.method.assumes for cell in cells}
    foot_height = paper.line * (1.4 + note.count("\n") + math.ceil(len(kinds) / paper.grid(4)[1]))
    with paper.figure(sum(heights) + foot_height) as figure:
        parts = figure.subfigures(len(groups) + 1, 1, height_ratios=[*heights, foot_height], squeeze=False)[:, 0]
        for part, (_, panels), title in zip(parts, groups, titles, strict=False):
            part.suptitle(title, x=0.01, ha="left", fontweight="bold")
            _dots_of_group(part.subplots(down, across, squeeze=False), comparison, panels, differences)
        _legend(parts[-1], kinds, note, paper.grid(4)[1])
    return figure


def _dots(comparison: Comparison, group: Group, column: Column, differences: bool) -> Dots:
    cells = [(title, group.cells.get((entry.label, column))) for title, entry in comparison.rows.items()]
    if column in group.undecided:
        cells = [(title, cell and replace(cell, best=False, tied=False)) for title, cell in cells]
    values = ((title, cell.difference if differences else cell.value, cell) for title, cell in cells if cell)
    return {label: (value, cell) for label, value, cell in values if value}


def _labels(comparison: Comparison, panels: Sequence[Dots]) -> list[str]:
    """Methods that have something to draw, the best mean first."""
    means: dict[str, list[float]] = {}
    for label, (value, _) in (item for dots in panels for item in dots.items()):
        means.setdefault(label, []).append(value.mean)
    return sorted(means, key=lambda label: np.mean(means[label]), reverse=comparison.metric.higher_is_better)


def _dots_of_group(grid: Any, comparison: Comparison, panels: Sequence[Dots], differences: bool) -> None:
    """The panels of a feature file, which share their rows; each has an axis of its own."""
    labels = _labels(comparison, panels)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for number, (axes, dots) in enumerate(zip(grid.flat, panels, strict=False)):
        axes.set_title("\n".join(comparison.columns[number].title.rsplit(" ", 1)), loc="left")
        values = [value for value, _ in dots.values()] or [Interval(50.0, 0.0)]
        ends = clipped_axis([*values, Interval(0.0, 0.0)], -100.0) if differences else clipped_axis(values)
        axes.set(xlim=ends, ylim=(len(labels) - 0.4, -0.6))
        names = [short_name(label, 30) for label in labels] if number % grid.shape[1] == 0 else []
        axes.set_yticks(range(len(labels)), names)
        axes.tick_params(axis="y", length=0)
        faint_grid(axes, "x")
        if differences:
            axes.axvline(0, color=INK, linewidth=0.7)
        words = "difference (points)" if differences else f"{comparison.metric.title} (%)"
        axes.set_xlabel(words if dots else "no runs")
        for label, (value, cell) in dots.items():
            filled = cell.significant if differences else cell.best or cell.tied
            _draw_dot(axes, labels.index(label), value, cell, filled)


def _draw_dot(axes: Axes, place: int, value: Interval, cell: Cell, filled: bool) -> None:
    colour, marker = _LOOKS.get(cell.record.method.assumes, _OTHER)
    look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "color": colour}
    low, width, mark = axes.get_xlim()[0], _width(value), "!" if cell.own_warnings else ""
    if value.mean < low:  # outside: an arrow at the edge, with the number
        text = f"◂ {value.mean:.1f} {mark}".replace("-", "−").rstrip()
        axes.annotate(text, (low, place), (1.5, 0), **look)
        return
    axes.errorbar(
        value.mean, place, xerr=width or None, fmt=marker, markersize=3.6, color=colour, linewidth=1,
        markerfacecolor=colour if filled else "white", markeredgewidth=0.9,
    )  # fmt: skip
    if mark:
        axes.annotate(mark, (value.mean + width, place), (2, 0), **look)


def _legend(foot: Any, kinds: set[str], note: str, columns: int) -> None:
    """What colours, shapes and fillings mean."""
    names = [*(kind for kind in _LOOKS if kind in kinds), *sorted(kinds - {*_LOOKS})]
    looks = [_LOOKS.get(kind, _OTHER) for kind in names]
    handles = [Line2D([], [], color=colour, marker=marker, linestyle="", markersize=3.6) for colour, marker in looks]
    where = {"loc": "upper left", "bbox_to_anchor": (0, 1), "borderaxespad": 0}
    foot.legend(handles, names, ncols=min(columns, len(names)), frameon=False, handletextpad=0.1, **where)
    foot.text(0.01, 0.02, note, ha="left", va="bottom")
