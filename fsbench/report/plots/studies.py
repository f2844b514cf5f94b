"""Studies drawn: the curves of a sweep, the accuracies of a tuning search, and the growth of cost."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fsbench.methods.presets import symbol
from fsbench.report.plots.style import COLOURS, INK, LINES, MARKERS, WIDTHS, Width, font_size, style_of, wrapped
from fsbench.report.tables import grid_axes, number, split_axes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from fsbench.bench.measure import Measure
    from fsbench.results.curves import Panel, Sweep, Value
    from fsbench.results.tuned import Tuned


def draw_sweep(sweep: Sweep, width: Width = "page") -> Figure:
    """All panels of a sweep: bands are 95 % intervals, hollow markers published points."""
    inches = WIDTHS[width]
    across = min(3 if width == "page" else 2, len(sweep.panels))  # panels in a row
    across = across - 1 if len(sweep.panels) % across == 1 and across == 3 else across  # 2 + 2 rather than 3 + 1
    rows = -(-len(sweep.panels) // across)
    each = inches / across
    titles = [wrapped(panel.title, each - 0.35, font_size(inches)) for panel in sweep.panels]
    shared = len({tuple(curve.label for curve in panel.curves) for panel in sweep.panels}) == 1
    with mpl.rc_context(style_of(inches)):
        height = min(0.62 * each + 0.8, 2.5) + 0.13 * max(title.count("\n") for title in titles)
        note = wrapped(_note(sweep), inches - 0.2)
        figure = Figure(figsize=(inches, 0.7 + height * rows + 0.13 * note.count("\n")), layout="constrained")
        figure.suptitle(wrapped(sweep.title, inches - 0.2), x=0.01, ha="left", fontweight="bold")
        for number, (panel, title) in enumerate(zip(sweep.panels, titles, strict=True), start=1):
            axes = figure.add_subplot(rows, across, number)
            _draw(axes, panel, each - 0.55)
            axes.set_title(title, loc="left")
        for axes in figure.axes[:1] if shared else figure.axes:
            handles, labels = axes.get_legend_handles_labels()
            place = figure if shared else axes
            columns = max(1, int(inches / (0.5 + 0.07 * max(map(len, labels)))))
            below = {
                "loc": "outside lower left",
                "ncols": min(columns, len(labels)),
                "title": note,
                "alignment": "left",
            }
            place.legend(handles, labels, frameon=False, **(below if shared else {"loc": "best"}))
        if not shared:
            figure.supxlabel(note, x=0.01, ha="left", fontsize=font_size(inches))
    return figure


def _note(sweep: Sweep) -> str:
    """What bands and hollow markers are."""
    tasks = re.search(r"tasks:(\d+)", sweep.signature)
    over = f" over {int(tasks[1]):,} tasks" if tasks else ""
    curves = [curve for panel in sweep.panels for curve in panel.curves]
    published = " Hollow: published." if any(curve.published for curve in curves) else ""
    return f"Bands: 95 % intervals{over}.{published}"


def _draw(axes: Axes, panel: Panel, inches: float) -> None:
    positions = _positions(panel)
    for place, curve in enumerate(panel.curves):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        points = sorted(curve.points, key=lambda point: positions[point.x])
        x, y = [positions[point.x] for point in points], np.array([point.accuracy for point in points])
        axes.plot(x, y, color=colour, linestyle=LINES[place % len(LINES)], marker=marker, ms=3, label=curve.label)
        widths = [point.ci95 for point in points if point.ci95 is not None]
        if len(widths) == len(points):
            axes.fill_between(x, y - widths, y + widths, color=colour, alpha=0.18, linewidth=0)
        if curve.published:
            axes.plot(
                [positions.get(point.x, point.x) for point in curve.published],
                [point.accuracy for point in curve.published],
                linestyle="none", marker=marker, ms=5, markerfacecolor="none", markeredgecolor=colour,
                label=f"{curve.label}, published",
            )  # fmt: skip
    if _is_scale(positions):
        axes.set_xscale("log")
    _ticks(axes, positions, inches)
    axes.set(xlabel=panel.axis, ylabel="accuracy (%)", axisbelow=True)
    axes.grid(axis="y", color=INK, alpha=0.1, linewidth=0.6)


def _is_scale(positions: Mapping[float | str, float]) -> bool:
    """Whether values differ by factors: positive fractions of which the largest is ten times the smallest."""
    values = [*positions]
    numbers = [value for value in values if isinstance(value, float)]
    return len(numbers) == len(values) > 1 and min(numbers) > 0 and max(numbers) >= 10 * min(numbers)


def _ticks(axes: Axes, positions: Mapping[float | str, float], inches: float) -> None:
    """Ticks at the sampled points, labelled where there is room."""
    ordered = sorted(positions.items(), key=lambda item: item[1])
    places = np.array([place for _, place in ordered])
    scaled = np.log(places) if axes.get_xscale() == "log" else places
    along = inches * (scaled - scaled[0]) / max(scaled[-1] - scaled[0], 1e-9)
    labels, free = [], -1.0
    for (value, _), at in zip(ordered, along, strict=True):
        text = number(value)
        half = 0.032 * len(text)
        labels.append(text if at - half >= free else "")
        free = at + half + 0.05 if labels[-1] else free
    axes.set_xticks(places, labels)
    axes.set_xticks([], minor=True)


def _positions(panel: Panel) -> dict[float | str, float]:
    """Positions of values on the axis: numbers at their value; words, and numbers among words, one after another."""
    values: list[float | str] = list(dict.fromkeys(point.x for curve in panel.curves for point in curve.points))
    if any(isinstance(value, str) for value in values):
        return {value: float(number) for number, value in enumerate(values)}
    return {value: float(value) for value in values}


def draw_growth(measures: Sequence[Measure], width: Width = "page") -> Figure:
    """Time relative to arithmetic, as one thing grows: a level line is explained by arithmetic alone."""
    inches = WIDTHS[width]
    points = [measure for measure in measures if measure.axis]
    names = list(dict.fromkeys(measure.axis for measure in points))
    with mpl.rc_context(style_of(inches)):
        figure = Figure(figsize=(inches, 2.1), layout="constrained")
        figure.suptitle("BAVARDAGE: time relative to arithmetic", x=0.01, ha="left", fontweight="bold")
        panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, names, strict=True):
            along = {measure.x: measure.value for measure in points if measure.axis == name}
            axes.plot([*along], [*along.values()], color=COLOURS[0], marker=MARKERS[0], ms=3)
            axes.set(xlabel=name, xscale="log", yscale="log", axisbelow=True)
            _ticks(axes, {x: x for x in along}, inches / len(names) - 0.35)
            axes.grid(axis="y", color=INK, alpha=0.1, linewidth=0.6)
        panels[0].set_ylabel("time / arithmetic")
        panels[0].set_yticks((0.5, 1, 2, 5, 10), ("0.5", "1", "2", "5", "10"))
        panels[0].minorticks_off()
    return figure


def draw_surface(tuned: Tuned, features: str = "", width: Width = "page") -> Figure:
    """A grid of two or more axes as maps with their numbers; anything else as accuracy over each parameter."""
    inches = WIDTHS[width]
    where = f" of {features}" if features else ""
    title = f"{tuned.method}, {tuned.setting}: accuracy on the val classes{where} (%), {tuned.tasks:,} tasks"
    with mpl.rc_context(style_of(inches)):
        figure = _maps(tuned, inches) if tuned.how == "grid" and len(tuned.params) > 1 else _scatter(tuned, inches)
        figure.suptitle(wrapped(title, inches - 0.2), x=0.01, ha="left", fontweight="bold")
    return figure


def _maps(tuned: Tuned, inches: float) -> Figure:
    axes = grid_axes(tuned.trials)
    down, across, rest = split_axes(axes)
    panels = list(itertools.product(*(axes[name] for name in rest)))
    room = 0.075 * font_size(inches) / 7 * 5  # inches for a number of four digits
    beside = max(1, min(len(panels), int((inches - 0.5) / (room * len(axes[across]) + 0.1))))
    rows = -(-len(panels) // beside)
    height = rows * (0.2 * len(axes[down]) + 0.55) + 0.45
    figure = Figure(figsize=(inches, height), layout="constrained")
    for index, values in enumerate(panels, start=1):
        place = figure.add_subplot(rows, beside, index)
        _map(place, tuned, axes, dict(zip(rest, values, strict=True)))
        if index % beside == 1 or beside == 1:
            place.set_ylabel(symbol(down))
    return figure


def _map(place: Axes, tuned: Tuned, axes: dict[str, list[Value]], fixed: Mapping[str, Value]) -> None:
    down, across, _ = split_axes(axes)
    every = [trial.accuracy for trial in tuned.trials]
    high = max(every)
    low = max(min(every), high - max(4 * (high - float(np.median(every))), 2.0))  # colours for what matters
    grid = np.zeros((len(axes[down]), len(axes[across])))
    for trial in tuned.trials:
        if all(trial.params[name] == value for name, value in fixed.items()):
            i, j = axes[down].index(trial.params[down]), axes[across].index(trial.params[across])
            grid[i, j] = trial.accuracy
            best = trial.params == tuned.params
            colour = "white" if trial.accuracy < (low + high) / 2 else "black"
            place.text(
                j, i, f"{trial.accuracy:.1f}", ha="center", va="center", color=colour,
                fontweight="bold" if best else "normal",
            )  # fmt: skip
            if best:
                place.add_patch(
                    Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, lw=1.5, ec=COLOURS[5], zorder=3)
                )
    edges = (np.arange(len(axes[name]) + 1) - 0.5 for name in (across, down))
    place.pcolormesh(*edges, grid, cmap="cividis", vmin=low, vmax=high)
    place.invert_yaxis()
    place.set_xticks(range(len(axes[across])), [number(value) for value in axes[across]])
    place.set_yticks(range(len(axes[down])), [number(value) for value in axes[down]])
    place.set_xlabel(symbol(across))
    place.set_title(", ".join(f"{symbol(name)} = {number(value)}" for name, value in fixed.items()), loc="left")


def _scatter(tuned: Tuned, inches: float) -> Figure:
    names = list(tuned.trials[0].params)
    figure = Figure(figsize=(inches, 2.4), layout="constrained")
    accuracies = [trial.accuracy for trial in tuned.trials]
    for index, name in enumerate(names, start=1):
        place = figure.add_subplot(1, len(names), index)
        values = [trial.params[name] for trial in tuned.trials]
        place.plot(values, accuracies, "o", ms=3, color=COLOURS[0], alpha=0.6)
        place.plot([tuned.params[name]], [tuned.best.accuracy], "s", ms=5, color=COLOURS[5])
        if all(isinstance(value, float) and value > 0 for value in values):
            place.set_xscale("log")
            _ticks(place, {value: float(value) for value in values}, inches / len(names) - 0.6)
        place.set_xlabel(symbol(name))
    figure.axes[0].set_ylabel("accuracy (%)")
    return figure
