"""Studies drawn: the curves of a sweep, and the spectrum of S_w."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from fsbench.errors import FsbenchError
from fsbench.report.plots.style import COLOURS, INK, LINES, MARKERS, Paper, Width, faint_grid, line_look, short_name
from fsbench.report.writers import number
from fsbench.results.studies import Panel, Sweep

if TYPE_CHECKING:
    from fsbench.features.scatter import BaseStatistics


def draw_sweep(sweep: Sweep) -> Figure:
    """All panels of a sweep: bands are 95 % intervals, hollow markers published points."""
    paper = Paper("page")
    count = len(sweep.panels)
    down, across = paper.grid(count, 2 if count % 3 == 1 and count > 3 else 3)  # 2 + 2 rather than 3 + 1
    each = paper.inches / across
    titles = [paper.wrapped(panel.title, each - 0.35) for panel in sweep.panels]
    shared = len({tuple(curve.label for curve in panel.curves) for panel in sweep.panels}) == 1
    height = down * (min(0.62 * each + 0.8, 2.5) + paper.line * max(title.count("\n") for title in titles))
    tasks = re.search(r"tasks:(\d+)", sweep.signature)
    note = f"Bands: 95 % intervals{f' over {int(tasks[1]):,} tasks' if tasks else ''}."
    note += " Hollow: published." if any(one.published for panel in sweep.panels for one in panel.curves) else ""
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


def _draw(axes: Axes, panel: Panel, inches: float) -> None:
    values: list[float | str] = list(dict.fromkeys(point.x for curve in panel.curves for point in curve.points))
    in_words = any(isinstance(value, str) for value in values)  # these, and numbers among them, one after another
    positions = {value: float(place if in_words else value) for place, value in enumerate(values)}
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


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_ROUNDING = 1e-12  # eigenvalues below this share of the largest are zero but for rounding
_CAPTION = (
    "Spread: how far images of one class differ in each direction of the features, the widest first; the dot marks "
    "how many directions matter (effective rank). Factors: narrow directions tell classes apart and are stretched; "
    "those with hardly any spread are mostly noise, so none is stretched by more than σ (faint: without this limit)."
)


def draw_spectra(spectra: Sequence[tuple[str, BaseStatistics]], sigma: float, width: Width = "page") -> Figure:
    """Eigenvalues of S_w, and next to them (in a column: below) the scalings with their clamp σ; one line per file."""
    paper, labels = Paper(width), []
    for name, base in spectra:
        if not float(base.eigenvalues[0]) > 0:
            message = f"The base classes of {name} have no scatter: the images of a class do not differ."
            raise FsbenchError(message, "Base classes need several different images each.")
        count = len(base.eigenvalues)
        clamped = round(base.share_clamped(sigma) * count)
        rank = f"{short_name(name, 60)}: effective rank {base.effective_rank:.1f} of {count}"
        labels.append(paper.wrapped(f"{rank}; σ = {sigma:g} clamps {clamped} directions", paper.inches - 0.5))
    shape, note = (1, 2) if width == "page" else (2, 1), paper.wrapped(_CAPTION)
    lines = sum(1 + text.count("\n") for text in (*labels, note))
    with paper.figure(2.5 * shape[0] + paper.line * lines) as figure:
        left, right = figure.subplots(*shape)
        for number, ((_, base), label) in enumerate(zip(spectra, labels, strict=True)):
            values, look = base.eigenvalues.numpy(), line_look(number)
            values = np.where(values > _ROUNDING * values[0], values, np.nan)
            directions = np.arange(1, len(values) + 1)
            left.plot(directions, values, label=label, **look)
            spread = values[values > 0]
            height = np.exp(np.interp(base.effective_rank, directions[values > 0], np.log(spread)))
            left.plot(base.effective_rank, height, marker="o", color=look["color"], markeredgecolor="black", ms=4)
            right.plot(directions, values**-0.5, alpha=0.35, **look)
            right.plot(directions, np.fmin(values**-0.5, sigma), **look)
        right.axhline(sigma, color=INK, linewidth=0.7, linestyle=":")
        right.annotate(f"σ = {sigma:g}", (1, sigma), (0, 3), textcoords="offset points")
        left.set(xlabel="direction i", ylabel="eigenvalue λ of S_w", title="Spread within a class")
        right.set(xlabel="direction i", ylabel="scaling min(1/√λ, σ)", title="Factors of BAVARDAGE (Eq. 7)")
        for axes in (left, right):
            axes.set_yscale("log")
            low, high = np.log10(axes.dataLim.intervaly)
            axes.set_ylim(10 ** np.floor(low), 10 ** np.ceil(high))
            axes.yaxis.set_major_formatter(lambda value, _: "10" + f"{np.log10(value):.0f}".translate(_RAISED))
            axes.yaxis.set_minor_formatter(NullFormatter())
        legend: dict[str, Any] = {"title": note, "alignment": "left", "frameon": False}
        figure.legend(handles=left.get_lines()[::2], loc="outside lower left", **legend)
    return figure
