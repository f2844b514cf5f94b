"""Predictions drawn: which classes are confused, and whether probabilities are right as often as they say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from fsbench.report.plots.style import INK, MARKERS, WIDTHS, Width, font_size, line_look, short_name, style_of, wrapped
from fsbench.results.predictions import BINS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fsbench.results.predictions import Reliability

_NUMBERS = {"page": 25, "column": 12}  # classes at most for which numbers are written into the cells
_LONGEST = {"page": 24, "column": 14}  # letters of a class name
_LEAST = 0.1  # percent of the queries that a bin needs to be drawn
_LETTER = 0.55  # width of a letter, in font sizes


def draw_confusion(values: NDArray[np.float64], names: Sequence[str], title: str, width: Width = "page") -> Figure:
    """True classes down, answers across, in percent; classes that are often confused stand side by side."""
    inches, order = WIDTHS[width], confused_first(values)
    shown, labels = values[np.ix_(order, order)], [short_name(names[place], _LONGEST[width]) for place in order]
    own, numbered = np.eye(len(shown), dtype=bool), len(labels) <= _NUMBERS[width]
    others = np.where(own, np.nan, shown)
    most = max(float(np.nanmax(np.append(others, 0.0))), 1.0)
    diagonal = "The diagonal has the percent that got their own. " if numbered else ""
    note = wrapped(
        f"Percent of the queries of a class that got another one, in tasks with both. {diagonal}Columns are in the "
        "order of the rows, in which classes that are often confused stand side by side.",
        inches - 0.2,
    )
    with mpl.rc_context(style_of(inches)):
        size = font_size(inches)
        room = size / 72 * _LETTER * max(map(len, labels))  # for the longest name
        side, below = inches - room - 0.9, room if width == "page" else 0.0
        lines = 4 + note.count("\n") + wrapped(title, inches - 0.2).count("\n")
        figure = Figure(figsize=(inches, side + below + 1.5 * size / 72 * lines), layout="constrained")
        figure.suptitle(wrapped(title, inches - 0.2), x=0.01, ha="left", fontweight="bold")
        axes = figure.add_subplot()
        drawn = axes.imshow(others, cmap="Blues", vmin=0.0, vmax=most, interpolation="nearest")
        places = np.arange(0, len(labels), math.ceil(len(labels) * 1.2 * size / (72 * side)))  # those that have room
        axes.set_yticks(places, [labels[place] for place in places])
        axes.set_xticks(places, [labels[place] if width == "page" else "" for place in places], rotation=90)
        axes.set_facecolor("#d8d8d8")  # of the diagonal, and of classes that never met
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set(xlabel="answer", ylabel="true class")
        if numbered:
            _write_numbers(axes, shown, most, min(size, 0.4 * 72 * side / len(labels)))
        bar = figure.colorbar(drawn, ax=axes, shrink=0.6, aspect=30, pad=0.02, label="answered so (%)")
        bar.outline.set_visible(False)
        figure.supxlabel(note, x=0.01, ha="left", fontsize=size)
    return figure


def confused_first(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """(C,) an order of classes in which those that are often confused stand side by side."""
    if len(values) < 3:
        return np.arange(len(values))
    both = np.nan_to_num(values + values.T)
    np.fill_diagonal(both, 0.0)
    distance = squareform(both.max() - both, checks=False)
    return leaves_list(optimal_leaf_ordering(linkage(distance, "average"), distance)).astype(np.int64)


def _write_numbers(axes: Axes, shown: NDArray[np.float64], most: float, size: float) -> None:
    for row, column in np.argwhere(np.isfinite(shown)):
        value, own = shown[row, column], row == column
        dark = not own and value > 0.55 * most
        axes.text(
            column, row, f"{value:.0f}", ha="center", va="center", fontsize=size, color="white" if dark else INK,
            fontweight="bold" if own else "normal",
        )  # fmt: skip


def draw_calibration(panels: Mapping[str, Mapping[str, Reliability]], title: str, width: Width = "page") -> Figure:
    """Accuracy over confidence, and how many queries there are of each confidence: a column of panels per setting."""
    inches = WIDTHS[width]
    across = min(4 if width == "page" else 2, len(panels))
    rows = -(-len(panels) // across)
    labels = dict.fromkeys(label for methods in panels.values() for label in methods)
    note = (
        f"Above: right answers in {BINS} bins of the largest probability, without bins of fewer than {_LEAST} % of the "
        "queries; on the dotted line, a method is right as often as it says. Below: share of the queries per bin. "
        "ECE: mean distance from the dotted line over all queries, in points, panel by panel."
    )
    with mpl.rc_context(style_of(inches)):
        line = 1.5 * font_size(inches) / 72
        text = wrapped(note, inches - 0.2)
        foot = line * (1.5 + text.count("\n") + len(labels))
        figure = Figure(figsize=(inches, rows * 2.9 + foot + 0.3), layout="constrained")
        figure.suptitle(wrapped(title, inches - 0.2), x=0.01, ha="left", fontweight="bold")
        grid = figure.subplots(2 * rows, across, squeeze=False, height_ratios=[1.7, 0.7] * rows)
        for place in grid.flat:
            place.set_visible(False)
        for number, (words, methods) in enumerate(panels.items()):
            row, column = divmod(number, across)
            above, below = grid[2 * row, column], grid[2 * row + 1, column]
            drawn = {name: (methods[name], *_look(place)) for place, name in enumerate(labels) if name in methods}
            _reliability(above, below, drawn)
            above.set_title(wrapped(words, inches / across - 0.5), loc="left")
            above.set_ylabel("" if column else "right (%)")
            below.set_ylabel("" if column else "queries (%)")
        handles = [Line2D([], [], marker=marker, ms=3, **look) for look, marker in map(_look, range(len(labels)))]
        lines = [f"{short_name(label)}: ECE {_errors(label, panels)}" for label in labels]
        figure.legend(handles, lines, loc="outside lower left", frameon=False, title=text, alignment="left")
    return figure


def _look(number: int) -> tuple[dict[str, Any], str]:
    return line_look(number), MARKERS[number % len(MARKERS)]


def _errors(label: str, panels: Mapping[str, Mapping[str, Reliability]]) -> str:
    found = (methods.get(label) for methods in panels.values())
    return ", ".join(f"{one.error:.1f}" if one else "–" for one in found)


def _reliability(above: Axes, below: Axes, methods: Mapping[str, tuple[Reliability, dict[str, Any], str]]) -> None:
    above.plot([0, 100], [0, 100], color=INK, linewidth=0.7, linestyle=":")
    for found, look, marker in methods.values():
        shares = 100.0 * found.counts / found.counts.sum()
        drawn = shares >= _LEAST
        above.plot(found.confidence[drawn], found.accuracy[drawn], marker=marker, ms=2.5, **look)
        below.stairs(np.maximum(shares, _LEAST / 10), np.linspace(0.0, 100.0, BINS + 1), **look)
    below.set_yscale("log")
    below.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    below.set_yticks([], minor=True)
    for axes in (above, below):
        axes.set_visible(True)
        axes.grid(color=INK, alpha=0.1, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_xticks([0, 50, 100])
    above.set(xlim=(0, 100), ylim=(0, 102), yticks=[0, 25, 50, 75, 100])
    below.set(xlim=(0, 100), ylim=(_LEAST, 120), xlabel="probability (%)")
