"""Predictions drawn: which classes are confused, and whether probabilities are right as often as they say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from fsbench.errors import unknown_name
from fsbench.report.plots.style import INK, MARKERS, Paper, Width, faint_grid, line_look, short_name
from fsbench.results.comparison import Comparison, Group
from fsbench.results.metrics import Reliability, confusion, has_confidence, reliability

_NUMBERS = {"page": 25, "column": 12}  # classes at most for which numbers are written into the cells
_LONGEST = {"page": 24, "column": 14}  # letters of a class name
_LEAST = 0.1  # percent of the queries that a bin needs to be drawn


def draw_confusion(comparison: Comparison, group: Group, method: str, width: Width) -> Figure:
    """Which classes a method, or the best one, confuses in the first setting: true classes down, answers across."""
    column = comparison.columns[0]
    cells = {label: cell for (label, one), cell in group.cells.items() if one == column}
    if method and method not in cells:
        raise unknown_name("method among the records", method, cells)
    label = method or max(cells, key=lambda name: cells[name].value.mean)
    record = cells[label].record
    title = f"{label} on {group.title}, {column.title}, {record.tasks:,} tasks: {record.accuracy:.2f} % right"
    values, names, paper = confusion(record), record.class_names, Paper(width)
    order = confused_first(values)
    shown, labels = values[np.ix_(order, order)], [short_name(names[place], _LONGEST[width]) for place in order]
    others = np.where(np.eye(len(shown), dtype=bool), np.nan, shown)
    most = max(float(np.nanmax(np.append(others, 0.0))), 1.0)
    note = (
        "A row has the answers to the queries of one class, in percent that add up to 100. The diagonal, with right "
        "answers, is grey. Rows and columns have the same order: classes that are often confused stand side by side."
    )
    longest = paper.points / 72 * 0.55 * max(map(len, labels))  # inches
    side = paper.inches - longest - 0.9
    with paper.figure(side + (longest if width == "page" else 0.0) + 2 * paper.line, title, note) as figure:
        axes = figure.add_subplot()
        drawn = axes.imshow(others, cmap="Blues", vmin=0.0, vmax=most, interpolation="nearest")
        step = math.ceil(len(labels) * 1.2 * paper.points / (72 * side))  # so that names do not overlap
        axes.set_yticks(range(0, len(labels), step), labels[::step])
        axes.set_xticks(range(0, len(labels), step), labels[::step] if width == "page" else [], rotation=90)
        axes.set_facecolor("#d8d8d8")  # of the diagonal, and of classes without queries
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set(xlabel="answer", ylabel="true class")
        for row, place in np.argwhere(np.isfinite(shown)) if len(labels) <= _NUMBERS[width] else ():
            value, own = shown[row, place], row == place
            colour, weight = "white" if not own and value > 0.55 * most else INK, "bold" if own else "normal"
            look: dict[str, Any] = {"ha": "center", "va": "center", "color": colour, "fontweight": weight}
            size = min(paper.points, 0.4 * 72 * side / len(labels))
            axes.text(place, row, f"{value:.0f}", fontsize=size, **look)
        bar = figure.colorbar(drawn, ax=axes, shrink=0.6, aspect=30, pad=0.02, label="answered so (%)")
        bar.outline.set_visible(False)
    return figure


def confused_first(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """(C,) an order of classes in which those that are often confused stand side by side."""
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering  # noqa: PLC0415 - take a second
    from scipy.spatial.distance import squareform  # noqa: PLC0415

    if len(values) < 3:
        return np.arange(len(values))
    both = np.nan_to_num(values + values.T)
    np.fill_diagonal(both, 0.0)
    distance = squareform(both.max() - both, checks=False)
    return leaves_list(optimal_leaf_ordering(linkage(distance, "average"), distance)).astype(np.int64)


def draw_calibration(comparison: Comparison, group: Group, width: Width) -> Figure:
    """Accuracy over confidence, and how many queries there are of each confidence: a column of panels per setting."""
    panels: dict[str, dict[str, Reliability]] = {}
    for setting in comparison.columns:
        for entry in comparison.entries:
            cell = group.cells.get((entry.label, setting))
            if cell and has_confidence(cell.record.answers):
                panels.setdefault(setting.title, {})[entry.label] = reliability(cell.record)
    paper, title = Paper(width), f"{group.title}, {group.counted_tasks}"
    down, across = paper.grid(len(panels))
    labels = list(dict.fromkeys(label for methods in panels.values() for label in methods))
    bins = len(next(iter(next(iter(panels.values())).values())).counts)
    note = paper.wrapped(
        f"Above: right answers in {bins} bins of the largest probability, without bins of fewer than {_LEAST} % of the "
        "queries; on the dotted line, a method is right as often as it says. Below: share of the queries per bin. "
        "ECE: mean distance from the dotted line over all queries, in points, panel by panel."
    )
    with paper.figure(down * 2.9 + paper.line * (1.5 + note.count("\n") + len(labels)), title) as figure:
        grid = figure.subplots(2 * down, across, squeeze=False, height_ratios=[1.7, 0.7] * down)
        for number in range(len(panels), down * across):
            for part in (0, 1):
                grid[2 * (number // across) + part, number % across].set_visible(False)
        for number, (words, methods) in enumerate(panels.items()):
            row, column = divmod(number, across)
            above, below = grid[2 * row, column], grid[2 * row + 1, column]
            _reliability(above, below, labels, methods)
            above.set_title(paper.wrapped(words, paper.inches / across - 0.5), loc="left")
            above.set_ylabel("" if column else "right (%)")
            below.set_ylabel("" if column else "queries (%)")
        handles = [Line2D([], [], marker=MARKERS[n % len(MARKERS)], ms=3, **line_look(n)) for n in range(len(labels))]
        lines = []
        for name in labels:
            errors = (f"{one[name].error:.1f}" if name in one else "–" for one in panels.values())
            lines.append(f"{short_name(name)}: ECE {', '.join(errors)}")
        figure.legend(handles, lines, loc="outside lower left", frameon=False, title=note, alignment="left")
    return figure


def _reliability(above: Axes, below: Axes, labels: Sequence[str], methods: Mapping[str, Reliability]) -> None:
    above.plot([0, 100], [0, 100], color=INK, linewidth=0.7, linestyle=":")
    for label, one in methods.items():
        number = labels.index(label)
        shares = 100.0 * one.counts / one.counts.sum()
        drawn, look = shares >= _LEAST, line_look(number)
        above.plot(one.confidence[drawn], one.accuracy[drawn], marker=MARKERS[number % len(MARKERS)], ms=2.5, **look)
        below.stairs(np.maximum(shares, _LEAST / 10), np.linspace(0.0, 100.0, len(shares) + 1), **look)
    below.set_yscale("log")
    below.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    below.set_yticks([], minor=True)
    for axes in (above, below):
        faint_grid(axes)
        axes.set_xticks([0, 50, 100])
    above.set(xlim=(0, 100), ylim=(0, 102), yticks=[0, 25, 50, 75, 100])
    below.set(xlim=(0, 100), ylim=(_LEAST, 120), xlabel="probability (%)")
