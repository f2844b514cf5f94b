"""Studies drawn: the curves of a sweep, and the accuracies of a tuning search."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fsbench.evaluation.spec import symbol
from fsbench.report.plots.style import COLOURS, INK, LINES, MARKERS, STYLE
from fsbench.report.tables import grid_axes, number, split_axes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from fsbench.evaluation.spec import Value
    from fsbench.evaluation.tuning import Tuned
    from fsbench.results.curves import Panel, Sweep


def draw_sweep(sweep: Sweep) -> Figure:
    """All panels of a sweep: bands are 95 % intervals, hollow grey-edged markers published points."""
    across = min(4, len(sweep.panels))  # panels in a row
    rows = -(-len(sweep.panels) // across)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(0.6 + 3.1 * across, 0.9 + 2.5 * rows), layout="constrained")
        figure.suptitle(sweep.title, x=0.01, ha="left", fontsize=10)
        for number, panel in enumerate(sweep.panels, start=1):
            _draw(figure.add_subplot(rows, across, number), panel)
        shared = len({tuple(curve.label for curve in panel.curves) for panel in sweep.panels}) == 1
        for axes in figure.axes[:1] if shared else figure.axes:
            handles, labels = axes.get_legend_handles_labels()
            place = figure if shared else axes
            where = {"loc": "outside lower center", "ncols": min(4, len(labels))} if shared else {"loc": "best"}
            place.legend(handles, labels, frameon=False, **where)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    positions = _positions(panel)
    for place, curve in enumerate(panel.curves):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        points = sorted(curve.points, key=lambda point: positions[point.x])
        x, y = [positions[point.x] for point in points], np.array([point.accuracy for point in points])
        axes.plot(x, y, color=colour, linestyle=LINES[place % len(LINES)], marker=marker, ms=4, label=curve.label)
        widths = [point.ci95 for point in points if point.ci95 is not None]
        if len(widths) == len(points):
            axes.fill_between(x, y - widths, y + widths, color=colour, alpha=0.18, linewidth=0)
        if curve.published:
            axes.plot(
                [positions.get(point.x, point.x) for point in curve.published],
                [point.accuracy for point in curve.published],
                linestyle="none", marker=marker, ms=6, markerfacecolor="none", markeredgecolor=colour,
                label=f"{curve.label}, published",
            )  # fmt: skip
    if any(isinstance(x, str) for x in positions):
        axes.set_xticks(list(positions.values()), [str(x) for x in positions])
    axes.set(xlabel=panel.axis, ylabel="accuracy (%)", axisbelow=True)
    axes.set_title(panel.title, loc="left", fontsize=9)
    axes.grid(axis="y", color=INK, alpha=0.1, linewidth=0.6)


def _positions(panel: Panel) -> dict[float | str, float]:
    """Where values lie on the axis: numbers at themselves; words, and what stands beside words, one after another."""
    values = list(dict.fromkeys(point.x for curve in panel.curves for point in curve.points))
    if any(isinstance(value, str) for value in values):
        return {value: float(number) for number, value in enumerate(values)}
    return {value: float(value) for value in values}


def draw_surface(tuned: Tuned) -> Figure:
    """A grid of two or more axes as maps with their numbers; anything else as accuracy over each parameter."""
    with mpl.rc_context(STYLE):
        figure = _maps(tuned) if tuned.how == "grid" and len(tuned.params) > 1 else _scatter(tuned)
        figure.suptitle(f"{tuned.method}, {tuned.setting}: accuracy on val (%), {tuned.tasks} tasks", x=0.01, ha="left")
    return figure


def _maps(tuned: Tuned) -> Figure:
    axes = grid_axes(tuned.trials)
    down, across, rest = split_axes(axes)
    panels = list(itertools.product(*(axes[name] for name in rest)))
    width = 0.62 * len(axes[across]) + 1.0
    figure = Figure(figsize=(width * len(panels) + 0.8, 0.36 * len(axes[down]) + 1.4), layout="constrained")
    for index, values in enumerate(panels, start=1):
        _map(figure.add_subplot(1, len(panels), index), tuned, axes, dict(zip(rest, values, strict=True)))
    figure.axes[0].set_ylabel(symbol(down))
    return figure


def _map(place: Axes, tuned: Tuned, axes: dict[str, list[Value]], fixed: Mapping[str, Value]) -> None:
    down, across, _ = split_axes(axes)
    low, high = min(trial.accuracy for trial in tuned.trials), max(trial.accuracy for trial in tuned.trials)
    grid = np.zeros((len(axes[down]), len(axes[across])))
    for trial in tuned.trials:
        if all(trial.params[name] == value for name, value in fixed.items()):
            i, j = axes[down].index(trial.params[down]), axes[across].index(trial.params[across])
            grid[i, j] = trial.accuracy
            best = trial.params == tuned.params
            colour = "white" if trial.accuracy < (low + high) / 2 else "black"
            place.text(
                j, i, f"{trial.accuracy:.1f}", ha="center", va="center", fontsize=8, color=colour,
                fontweight="bold" if best else "normal",
            )  # fmt: skip
            if best:
                place.add_patch(Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, lw=1.8, ec=COLOURS[5]))
    place.imshow(grid, cmap="cividis", vmin=low, vmax=high, aspect="auto")
    place.set_xticks(range(len(axes[across])), [number(value) for value in axes[across]])
    place.set_yticks(range(len(axes[down])), [number(value) for value in axes[down]])
    place.set_xlabel(symbol(across))
    place.set_title(", ".join(f"{symbol(name)} = {number(value)}" for name, value in fixed.items()), loc="left")


def _scatter(tuned: Tuned) -> Figure:
    names = list(tuned.trials[0].params)
    figure = Figure(figsize=(0.6 + 2.7 * len(names), 2.9), layout="constrained")
    accuracies = [trial.accuracy for trial in tuned.trials]
    for index, name in enumerate(names, start=1):
        place = figure.add_subplot(1, len(names), index)
        values = [trial.params[name] for trial in tuned.trials]
        place.plot(values, accuracies, "o", ms=4, color=COLOURS[0], alpha=0.6)
        place.plot([tuned.params[name]], [tuned.best.accuracy], "s", ms=7, color=COLOURS[5])
        if all(isinstance(value, float) and value > 0 for value in values):
            place.set_xscale("log")
        place.set_xlabel(symbol(name))
    figure.axes[0].set_ylabel("accuracy (%)")
    return figure
