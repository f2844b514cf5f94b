"""Curves of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

from fsbench.report.plots.style import COLOURS, INK, LINES, MARKERS, STYLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from fsbench.report.curves import Curve, Panel, Point, Sweep

ACROSS = 4  # panels in a row at most


def draw_sweep(sweep: Sweep) -> Figure:
    """All panels of a sweep: bands are 95 % intervals, hollow grey-edged markers published points."""
    rows, across = _grid(len(sweep.panels))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(0.6 + 3.1 * across, 0.9 + 2.5 * rows), layout="constrained")
        figure.suptitle(sweep.title, x=0.01, ha="left", fontsize=10)
        for number, panel in enumerate(sweep.panels, start=1):
            _draw(figure.add_subplot(rows, across, number), panel)
        shared = len({tuple(curve.label for curve in panel.curves) for panel in sweep.panels}) == 1
        drawn = figure.axes[:1] if shared else figure.axes
        for axes in drawn:
            handles, labels = axes.get_legend_handles_labels()
            place = figure if shared else axes
            where = {"loc": "outside lower center", "ncols": min(4, len(labels))} if shared else {"loc": "best"}
            place.legend(handles, labels, frameon=False, **where)
    return figure


def _grid(panels: int) -> tuple[int, int]:
    across = min(panels, ACROSS)
    return -(-panels // across), across


def _draw(axes: Axes, panel: Panel) -> None:
    positions = _positions(panel)
    for number, curve in enumerate(panel.curves):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        x, y = [positions[point.x] for point in curve.points], [point.accuracy for point in curve.points]
        order = sorted(range(len(x)), key=x.__getitem__)
        x, y, points = [x[i] for i in order], [y[i] for i in order], [curve.points[i] for i in order]
        axes.plot(x, y, color=colour, linestyle=LINES[number % len(LINES)], marker=marker, ms=4, label=curve.label)
        if all(point.ci95 is not None for point in points):
            low, high = _band(points)
            axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
        _published(axes, curve, positions, colour, marker)
    if any(isinstance(x, str) for x in positions):
        axes.set_xticks(list(positions.values()), [str(x) for x in positions])
    axes.set_xlabel(panel.axis)
    axes.set_ylabel("accuracy (%)")
    axes.set_title(panel.title, loc="left", fontsize=9)
    axes.grid(axis="y", color=INK, alpha=0.1, linewidth=0.6)
    axes.set_axisbelow(True)


def _band(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    width = [point.ci95 or 0.0 for point in points]
    return (
        [point.accuracy - half for point, half in zip(points, width, strict=True)],
        [point.accuracy + half for point, half in zip(points, width, strict=True)],
    )


def _published(axes: Axes, curve: Curve, positions: dict[float | str, float], colour: str, marker: str) -> None:
    if not curve.published:
        return
    x = [positions.get(point.x, point.x) for point in curve.published]
    y = [point.accuracy for point in curve.published]
    axes.plot(
        x, y, linestyle="none", marker=marker, ms=6, markerfacecolor="none", markeredgecolor=colour,
        label=f"{curve.label}, published",
    )  # fmt: skip


def _positions(panel: Panel) -> dict[float | str, float]:
    """Where values lie on the axis: numbers at themselves; words, and what stands beside words, one after another."""
    values = list(dict.fromkeys(point.x for curve in panel.curves for point in curve.points))
    if any(isinstance(value, str) for value in values):
        return {value: float(number) for number, value in enumerate(values)}
    return {value: float(value) for value in values}
