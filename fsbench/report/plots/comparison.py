"""A comparison drawn: accuracy bars, and histograms of the differences task by task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from fsbench.report.plots.style import COLOURS, INK, STYLE, layers
from fsbench.results.statistics import Interval, interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fsbench.results.comparison import Column, Comparison, Entry, Group

# What a method assumes of the class proportions gives its colour, and its hatch for readers in grey.
_LOOKS = {
    "inductive": (COLOURS[7], ""),
    "no prior": (COLOURS[1], "////"),
    "uniform prior": (COLOURS[2], "\\\\\\\\"),
    "free prior": (COLOURS[0], ""),
}
_OTHER = (COLOURS[3], "xxxx")
_NOTE = "Dots: means, with 95 % intervals. ▲ best of its panel, * not significantly worse. Axes do not start at 0."


def draw_bars(comparison: Comparison) -> Figure:
    """Accuracies with their 95 % intervals, one row of panels per feature file."""
    rows = []
    for group in comparison.groups:
        ran = {label for (label, _), cell in group.cells.items() if cell.record}
        rows.append((group, [entry for entry in comparison.entries if entry.label in ran]))
    heights = [0.95 + 0.2 * len(entries) for _, entries in rows]
    longest = max(len(entry.label) for _, entries in rows for entry in entries)
    width = max(6.4, 0.5 + 0.07 * longest + 2.1 * len(comparison.columns))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, sum(heights) + 0.5), layout=ConstrainedLayoutEngine(w_pad=0.08))
        *panels, foot = figure.subfigures(len(rows) + 1, 1, height_ratios=[*heights, 0.5], squeeze=False)[:, 0]
        for panel, (group, entries) in zip(panels, rows, strict=True):
            title = f"{group.title}, {comparison.tasks:,} tasks"
            panel.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=10)
            grid = panel.subplots(1, len(comparison.columns), squeeze=False)
            for axes, column in zip(grid[0], comparison.columns, strict=True):
                _bars(axes, group, entries, column)
            grid[0, 0].set_yticklabels([entry.label for entry in entries])
        _legend(foot, [cell.assumes for group, _ in rows for cell in group.cells.values() if cell.record])
    return figure


def _bars(axes: Axes, group: Group, entries: Sequence[Entry], column: Column) -> None:
    ran = [
        (place, cell, cell.record)
        for place, entry in enumerate(entries)
        if (cell := group.cells.get((entry.label, column))) and cell.record
    ]
    axes.set_ylim(len(entries) - 0.4, -0.6)
    axes.set_yticks(range(len(entries)), [])
    axes.tick_params(axis="y", length=0)
    axes.set_title(column.title, loc="left")
    axes.set_xlabel("accuracy (%)" if ran else "no runs")
    if not ran:
        axes.set_xticks([])
        axes.spines[:].set_visible(False)
        return
    # Limits that show the differences between methods, with room on the left so that every bar is visible
    ends = [(record.accuracy, record.ci95 or 0.0) for *_, record in ran]
    least, most = min(mean - width for mean, width in ends), max(mean + width for mean, width in ends)
    span = max(most - least, 4.0)
    low = max(0.0, least - 0.3 * span)
    axes.set_xlim(low, most + 0.06 * span)
    for place, cell, record in ran:
        for look in layers(*_LOOKS.get(cell.assumes, _OTHER)):
            axes.barh(place, record.accuracy - low, 0.72, left=low, **look)
        mean, beside = record.accuracy, axes.get_yaxis_transform()
        axes.errorbar(mean, place, xerr=record.ci95, fmt="o", markersize=2.6, color=INK, capsize=2, linewidth=1)
        text = f"{mean:.2f}" + (" ▲" if cell.best else " *" if cell.tied else "")
        weight = "bold" if cell.best else "normal"
        axes.text(1.03, place, text, transform=beside, va="center", fontsize=8, fontweight=weight)


def _legend(foot: Any, kinds: Sequence[str]) -> None:
    """What colours and marks mean."""
    names = [kind for kind in dict.fromkeys((*_LOOKS, *kinds)) if kind in kinds]
    handles = [tuple(Patch(**look) for look in layers(*_LOOKS.get(kind, _OTHER))) for kind in names]
    foot.legend(handles, names, loc="upper left", ncols=len(names), frameon=False, fontsize=8, bbox_to_anchor=(0, 1))
    foot.text(0.01, 0.05, _NOTE, fontsize=8, ha="left", va="bottom")


_OUTCOMES = {"worse": (COLOURS[5], "////"), "equal": (COLOURS[7], ""), "better": (COLOURS[0], "")}
_FINEST = 1.25  # points of accuracy: the narrowest bin worth drawing


@dataclass(frozen=True)
class Paired:
    """Two methods on the same tasks.

    Attributes:
        values: (T,) accuracy of the method minus that of the baseline, in points.
        step: The smallest difference there can be: one query.
    """

    place: str
    setting: str
    values: NDArray[np.float64]
    step: float
    interval: Interval

    def share(self, kind: str) -> float:
        """Percentage of tasks where the method is `better`, `equal` or `worse`."""
        return 100.0 * float(self.mask(kind).mean())

    def mask(self, kind: str) -> NDArray[np.bool_]:
        """(T,) which tasks these are."""
        return np.equal(np.sign(self.values), {"worse": -1, "equal": 0, "better": 1}[kind])


def paired_runs(comparison: Comparison, method: str, baseline: str) -> list[Paired]:
    """The settings and feature files of a comparison where both methods ran, which then is on the same tasks."""
    found = []
    for group in comparison.groups:
        for column in comparison.columns:
            one, other = (group.cells.get((label, column)) for label in (method, baseline))
            if one and other and one.record and other.record:
                values = one.record.per_task - other.record.per_task
                step = 100.0 / max(one.record.queries)
                found.append(Paired(group.title, column.title, values, step, interval(values)))
    return found


def draw_differences(pairs: Sequence[Paired], method: str, baseline: str) -> Figure:
    """Histograms of the differences, one panel per setting, at most four to a row."""
    across = min(4, len(pairs))
    down = math.ceil(len(pairs) / across)
    title = f"{method} minus {baseline}, task by task"
    with mpl.rc_context(STYLE):
        size = (max(2.5 * across, 0.5 + 0.09 * len(title)), 0.6 + 2.5 * down)
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=10)
        figure.supxlabel("Dashed: mean, with its 95 % interval.", x=0.01, ha="left", fontsize=8)
        grid = figure.subplots(down, across, squeeze=False)
        for axes, pair in zip(grid.flat, pairs, strict=False):
            _histogram(axes, pair)
        for axes in grid.flat[len(pairs) :]:
            axes.set_axis_off()
        for row in grid:
            row[0].set_ylabel("share of tasks (%)")
    return figure


def _histogram(axes: Axes, pair: Paired) -> None:
    edges = _edges(pair)
    base = np.zeros(len(edges) - 1)
    for kind, (colour, hatch) in _OUTCOMES.items():
        tasks = np.histogram(pair.values[pair.mask(kind)], edges)[0]
        shares = 100.0 * tasks / len(pair.values)
        if tasks.any():
            first, last = np.flatnonzero(tasks)[[0, -1]]
            part = slice(first, last + 1)
            for look in layers(colour, hatch):
                axes.stairs((base + shares)[part], edges[first : last + 2], baseline=base[part], fill=True, **look)
        base = base + shares
    mean, width = pair.interval.mean, pair.interval.half_width
    axes.axvline(0, color=INK, linewidth=0.7)
    axes.axvline(mean, color=INK, linewidth=1.4, linestyle=(0, (3, 1.5)))
    text = f"{mean:+.2f}".replace("-", "−")
    if not math.isnan(width):
        axes.axvspan(pair.interval.low, pair.interval.high, color=INK, alpha=0.25, linewidth=0)
        text += f" ± {width:.2f}"
    counts = ", ".join(f"{kind} {pair.share(kind):.0f} %" for kind in ("better", "equal", "worse"))
    axes.set_title(f"{pair.place}\n{pair.setting}\nmean {text}\n{counts}", loc="left", fontsize=8)
    axes.set_xlabel("difference (points)")


def _edges(pair: Paired) -> NDArray[np.float64]:
    """Bins centred on the differences that can occur, several together where they lie close."""
    width = pair.step * (math.ceil(_FINEST / pair.step) | 1)  # an odd number of them, so that none lies on an edge
    first, last = (round(float(end) / width) for end in (min(pair.values.min(), 0), max(pair.values.max(), 0)))
    return width * (np.arange(first - 1, last + 3, dtype=np.float64) - 0.5)
