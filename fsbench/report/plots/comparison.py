"""A comparison drawn: dots with intervals, accuracy against speed, and histograms of differences task by task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray

from fsbench.errors import FsbenchError
from fsbench.report.answer import is_significant
from fsbench.report.comparison import own_warnings
from fsbench.report.plots.style import COLOURS, INK, Paper, Width, faint_grid, mark_look, short_name
from fsbench.results.comparison import Cell, Column, Comparison, Group, paired_values
from fsbench.results.statistics import Interval, interval

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
    drawn = [[_dots(group, column, differences) for column in comparison.columns] for group in comparison.groups]
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
    note = paper.wrapped(note + (" !: the table has a warning." if any(map(own_warnings, cells)) else ""))
    kinds = {cell.record.method.assumes for cell in cells}
    foot_height = paper.line * (1.4 + note.count("\n") + math.ceil(len(kinds) / paper.grid(4)[1]))
    with paper.figure(sum(heights) + foot_height) as figure:
        parts = figure.subfigures(len(groups) + 1, 1, height_ratios=[*heights, foot_height], squeeze=False)[:, 0]
        for part, (_, panels), title in zip(parts, groups, titles, strict=False):
            part.suptitle(title, x=0.01, ha="left", fontweight="bold")
            _dots_of_group(part.subplots(down, across, squeeze=False), comparison, panels, differences)
        _legend(parts[-1], kinds, note, paper.grid(4)[1])
    return figure


def _dots(group: Group, column: Column, differences: bool) -> Dots:
    cells = ((label, cell) for (label, at), cell in group.cells.items() if at == column)
    values = ((label, cell.difference if differences else cell.value, cell) for label, cell in cells)
    return {label: (value, cell) for label, value, cell in values if value}


def _labels(comparison: Comparison, panels: Sequence[Dots]) -> list[str]:
    """Methods that have something to draw, the best mean first."""
    means: dict[str, list[float]] = {}
    for label, (value, _) in (item for dots in panels for item in dots.items()):
        means.setdefault(label, []).append(value.mean)
    return sorted(means, key=lambda label: np.mean(means[label]), reverse=comparison.metric.higher_is_better)


def _dots_of_group(grid: Any, comparison: Comparison, panels: Sequence[Dots], differences: bool) -> None:
    """The panels of a feature file, which share both axes."""
    labels = _labels(comparison, panels)
    every = [value for dots in panels for value, _ in dots.values()]
    ends = clipped_axis([*every, Interval(0.0, 0.0)], -100.0) if differences else clipped_axis(every)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for number, (axes, dots) in enumerate(zip(grid.flat, panels, strict=False)):
        axes.set_title("\n".join(comparison.columns[number].title.rsplit(" ", 1)), loc="left")
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
            filled = is_significant(cell) if differences else cell.best or cell.tied
            _draw_dot(axes, labels.index(label), value, cell, filled)


def _draw_dot(axes: Axes, place: int, value: Interval, cell: Cell, filled: bool) -> None:
    colour, marker = _LOOKS.get(cell.record.method.assumes, _OTHER)
    look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "color": colour}
    low, width, mark = axes.get_xlim()[0], _width(value), "!" if own_warnings(cell) else ""
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


def draw_speed(comparison: Comparison, width: Width = "page") -> Figure:
    """Accuracy against tasks per second, averaged over the feature files, one panel per setting."""
    paper = Paper(width)
    down, across = paper.grid(len(comparison.columns))
    ran = {label for group in comparison.groups for label, _ in group.cells}
    labels = [entry.label for entry in comparison.entries if entry.label in ran]
    names = [short_name(label, 30) for label in labels]
    columns = max(1, int(paper.inches / (0.35 + 0.065 * max(map(len, names)))))
    devices = ", ".join(dict.fromkeys(record.device for record in comparison.records))
    files = ", ".join(f"{group.dataset} {group.backbone}" for group in comparison.groups)
    note = paper.wrapped(
        f"Mean over {files}; {comparison.groups[0].counted_tasks} on {devices}. Grey line: not beaten in both."
    )
    height = 0.35 + 1.8 * down + paper.line * (math.ceil(len(labels) / columns) + note.count("\n"))
    with paper.figure(height) as figure:
        grid = figure.subplots(down, across, squeeze=False, sharex=True)
        for axes in grid.flat[len(comparison.columns) :]:
            axes.set_axis_off()
        for axes, column in zip(grid.flat, comparison.columns, strict=False):
            _speeds(axes, comparison, column, labels)
        for row in grid:
            row[0].set_ylabel(f"{comparison.metric.title} (%)")
        handles = [Line2D([], [], label=name, **mark_look(number)) for number, name in enumerate(names)]
        figure.legend(handles=handles, loc="outside lower left", ncols=columns, frameon=False, handletextpad=0.1,
                      title=note, alignment="left")  # fmt: skip
    return figure


def _speeds(axes: Axes, comparison: Comparison, column: Column, labels: Sequence[str]) -> None:
    groups = [group for group in comparison.groups if any(at == column for _, at in group.cells)]
    points = {}
    for label in labels:
        cells = [cell for group in groups if (cell := group.cells.get((label, column))) and cell.record.seconds]
        if cells and len(cells) == len(groups):
            speeds = [math.log(cell.record.tasks_per_second) for cell in cells]
            points[label] = math.exp(np.mean(speeds)), float(np.mean([cell.value.mean for cell in cells if cell.value]))
    front = sorted(
        point for point in points.values() if not any(x > point[0] and y > point[1] for x, y in points.values())
    )
    if front:
        axes.plot(*zip(*front, strict=True), color="0.7", linewidth=0.8, zorder=1)
    low, high = clipped_axis([Interval(mean, 0.0) for _, mean in points.values()]) if points else (0.0, 100.0)
    for label, (speed, mean) in points.items():
        axes.plot(speed, max(mean, low), zorder=2, clip_on=mean >= low, **mark_look(labels.index(label)))
        if mean < low:  # outside: at the edge, with the number
            axes.annotate(f"▾ {mean:.1f}", (speed, low), (3, 3), textcoords="offset points")
    axes.set(xscale="log", xlabel="tasks per second" if points else "no runs", ylim=(low, high))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title("\n".join(column.title.rsplit(" ", 1)), loc="left")
    faint_grid(axes)


_OUTCOMES = {"worse": (-1, COLOURS[5], "////"), "equal": (0, COLOURS[7], ""), "better": (1, COLOURS[0], "")}
_FINEST = 1.25  # points of accuracy: the narrowest bin worth drawing


@dataclass(frozen=True)
class Paired:
    """Two methods on the same tasks."""

    group: Group
    setting: str
    values: NDArray[np.float64]  # (T,) accuracy of the method minus that of the baseline, in points
    step: float  # the smallest difference there can be: one query
    interval: Interval

    def share(self, kind: str) -> float:
        """Percentage of tasks where the method is `better`, `equal` or `worse`."""
        return 100.0 * float(np.mean(np.sign(self.values) == _OUTCOMES[kind][0]))


def paired_runs(comparison: Comparison, method: str, baseline: str) -> list[Paired]:
    """The settings and feature files of a comparison where both methods ran, which then is on the same tasks."""
    pairs = []
    for group in comparison.groups:
        for column in comparison.columns:
            one, other = (group.cells.get((label, column)) for label in (method, baseline))
            if one and other:
                values = np.subtract(*paired_values(one.record, other.record, comparison.metric))
                pairs.append(
                    Paired(group, column.title, values, 100.0 / one.record.answers.labels.shape[1], interval(values))
                )
    return pairs


def draw_differences(pairs: Sequence[Paired], method: str, baseline: str, width: Width = "page") -> Figure:
    """Histograms of the differences, one panel per setting, on the same axes."""
    paper = Paper(width)
    down, across = paper.grid(len(pairs))
    titles = list(dict.fromkeys(pair.group.title for pair in pairs))
    title = f"{method} minus {baseline}, task by task" + (f", on {titles[0]}" if len(titles) == 1 else "")
    heads = [_panel_title(pair, pair.group.title if len(titles) > 1 else "") for pair in pairs]
    heads = [paper.wrapped(head, paper.inches / across - 0.25) for head in heads]
    note = f"Dashed: mean over {len(pairs[0].values):,} tasks; grey band: its 95 % interval."
    height = down * (1.4 + paper.line * max(head.count("\n") + 1 for head in heads))
    with paper.figure(height, title, note) as figure:
        grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        for axes, pair, head in zip(grid.flat, pairs, heads, strict=False):
            _histogram(axes, pair)
            axes.set_title(head, loc="left")
            axes.set_xlabel("difference (points)")
            axes.tick_params(labelbottom=True)
        for axes in grid.flat[len(pairs) :]:
            axes.set_axis_off()
        for row in grid:
            row[0].set_ylabel("share of tasks (%)")
    return figure


def _panel_title(pair: Paired, place: str) -> str:
    """Setting, mean with its interval, and shares; the feature file where there are several."""
    mean = f"{pair.interval.mean:+.2f}".replace("-", "−")
    mean += "" if math.isnan(pair.interval.half_width) else f" ± {pair.interval.half_width:.2f}"
    shares = ", ".join(f"{kind} {pair.share(kind):.0f}" for kind in ("better", "equal", "worse"))
    return "\n".join([*([place] if place else []), pair.setting, f"mean {mean}", f"{shares} %"])


def _histogram(axes: Axes, pair: Paired) -> None:
    edges = _edges(pair)
    base = np.zeros(len(edges) - 1)
    for sign, colour, hatch in _OUTCOMES.values():
        tasks = np.histogram(pair.values[np.sign(pair.values) == sign], edges)[0]
        top = base + 100.0 * tasks / len(pair.values)
        if tasks.any():
            first, last = np.flatnonzero(tasks)[[0, -1]]
            part, place = slice(first, last + 1), edges[first : last + 2]
            # Twice, tinted, then hatched: in SVG the tint's alpha would hold for hatches too.
            tint: dict[str, Any] = {"facecolor": colour, "edgecolor": "none", "linewidth": 0, "alpha": 0.4}
            hatched = {"facecolor": "none", "edgecolor": colour, "hatch": hatch, "linewidth": 0.7}
            for look in (tint, hatched):
                axes.stairs(top[part], place, baseline=base[part], fill=True, **look)
        base = top
    axes.axvline(0, color=INK, linewidth=0.7)
    axes.axvline(pair.interval.mean, color=INK, linewidth=1.4, linestyle=(0, (3, 1.5)))
    if not math.isnan(pair.interval.half_width):
        axes.axvspan(pair.interval.low, pair.interval.high, color=INK, alpha=0.25, linewidth=0)


def _edges(pair: Paired) -> NDArray[np.float64]:
    """Bins centred on the differences that can occur, several together where they lie close."""
    width = pair.step * (math.ceil(_FINEST / pair.step) | 1)  # an odd number, so that none falls on an edge
    first, last = (round(float(end) / width) for end in (min(pair.values.min(), 0), max(pair.values.max(), 0)))
    return width * (np.arange(first - 1, last + 3, dtype=np.float64) - 0.5)
