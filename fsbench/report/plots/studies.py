"""Studies drawn: the curves of a sweep."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fsbench.report.plots.style import (
    COLOURS,
    LINES,
    MARKERS,
    Paper,
    faint_grid,
)
from fsbench.report.writers import number
from fsbench.results.studies import Panel, Sweep


def draw_sweep(sweep: Sweep) -> Figure:
    """All panels of a sweep: bands are 95 % intervals, hollow markers published points."""
    paper = Paper("page")
    count = len(sweep.panels)
    down, across = paper.grid(count, 2 if count % 3 == 1 and count > 3 else 3)  # 2 + 2 rather than 3 + 1
    each = paper.inches / across
    titles = [paper.wrapped(panel.title, each - 0.35) for panel in sweep.panels]
    shared = len({tuple(curve.label for curve in panel.curves) for panel in sweep.panels}) == 1
    height = down * (min(0.62 * each + 0.8, 2.5) + paper.line * max(title.count("\n") for title in titles))
    note = _note(sweep)
    height += paper.line * (1 + (2 + paper.wrapped(note).count("\n") if shared else 0))
    with paper.figure(height, sweep.title, "" if shared else note) as figure:
        for place, (panel, title) in enumerate(zip(sweep.panels, titles, strict=True), start=1):
            axes = figure.add_subplot(down, across, place)
            _draw(axes, panel, each - 0.55)
            axes.set_title(title, loc="left")
            if not shared:
                axes.legend(frameon=False, loc="best")
        if shared:
            handles, labels = figure.axes[0].get_legend_handles_labels()
            columns = max(1, int(paper.inches / (0.5 + 0.07 * max(map(len, labels)))))
            figure.legend(handles, labels, loc="outside lower left", ncols=min(columns, len(labels)), frameon=False,
                          title=paper.wrapped(note), alignment="left")  # fmt: skip
    return figure


def _note(sweep: Sweep) -> str:
    """What bands and hollow markers are."""
    tasks = re.search(r"tasks:(\d+)", sweep.signature)
    over = f" over {int(tasks[1]):,} tasks" if tasks else ""
    published = any(curve.published for panel in sweep.panels for curve in panel.curves)
    return f"Bands: 95 % intervals{over}." + (" Hollow: published." if published else "")


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
            places = [(positions.get(point.x, point.x), point.accuracy) for point in curve.published]
            axes.plot(
                *zip(*places, strict=True), linestyle="none", marker=marker, ms=5, markerfacecolor="none",
                markeredgecolor=colour, label=f"{curve.label}, published",
            )  # fmt: skip
    fractions = [value for value in positions if isinstance(value, float)]
    if len(fractions) == len(positions) > 1 and 0 < 10 * min(fractions) <= max(fractions):  # they differ by factors
        axes.set_xscale("log")
    ticks(axes, positions, inches)
    axes.set(xlabel=panel.axis, ylabel="accuracy (%)")
    faint_grid(axes, "y")


def ticks(axes: Axes, positions: Mapping[float | str, float], inches: float) -> None:
    """Ticks at the sampled points, labelled where there is space."""
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
    in_words = any(isinstance(value, str) for value in values)
    return {value: float(place if in_words else value) for place, value in enumerate(values)}
