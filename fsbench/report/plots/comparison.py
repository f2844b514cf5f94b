"""A comparison drawn: dots with intervals, accuracy against speed, and histograms of differences task by task."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from fsbench.errors import FsbenchError
from fsbench.report.plots.style import (
    COLOURS,
    INK,
    MARKERS,
    WIDTHS,
    Width,
    font_size,
    layers,
    short_name,
    style_of,
    wrapped,
)
from fsbench.results.statistics import LEVEL, Interval, interval, paired_difference
from fsbench.results.warnings import OF_FEATURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fsbench.results.comparison import Column, Comparison, Group
    from fsbench.results.record import RunRecord

# What a method assumes of the class proportions gives its colour, and its marker for readers in grey.
_LOOKS = {
    "inductive": ("#5b5b5b", "s"),
    "no prior": (COLOURS[5], "D"),
    "uniform prior": (COLOURS[2], "^"),
    "free prior": (COLOURS[0], "o"),
}
_OTHER = (COLOURS[3], "v")


class Dot(NamedTuple):
    """What is drawn of one method: mean and interval, and whether it is filled."""

    label: str
    assumes: str
    mean: float
    width: float
    filled: bool
    warned: bool


def clipped_axis(records: Sequence[RunRecord]) -> tuple[float, float]:
    """The ends of an axis for accuracies: whole percents around all runs but those far below the others."""
    return _limits([(record.accuracy, record.ci95 or 0.0) for record in records], 0.0, 100.0)


def _limits(values: Sequence[tuple[float, float]], least: float, most: float) -> tuple[float, float]:
    """Ends around means and half-widths. Left out is what is 20 points below the best, and thrice as far as most."""
    means = np.array([mean for mean, _ in values])
    reach = max(3 * (means.max() - float(np.median(means))), 20.0)
    kept = [(mean, width) for mean, width in values if mean >= means.max() - reach]
    low, high = min(mean - width for mean, width in kept), max(mean + width for mean, width in kept)
    room = 0.03 * max(high - low, 4.0)
    return max(float(math.floor(low - room)), least), min(float(math.ceil(high + room)), most)


def draw_dots(comparison: Comparison, width: Width = "page", baseline: str = "") -> Figure:
    """Means with their 95 % intervals, the best first, one row of panels per feature file.

    With a baseline, the paired differences to it instead of accuracies.
    """
    inches = WIDTHS[width]
    across = min(4 if width == "page" else 2, len(comparison.columns))
    down = math.ceil(len(comparison.columns) / across)
    groups = [(group, _sorted_labels(comparison, group, baseline)) for group in comparison.groups]
    groups = [(group, labels) for group, labels in groups if labels]
    if not groups:
        raise FsbenchError(f"No method ran on the same tasks as {baseline}.", "Choose another --baseline.")
    size, note = font_size(inches), _note(comparison, baseline)
    line = 1.5 * size / 72
    titles = [
        wrapped(f"{group.title}, {comparison.tasks:,} tasks", 0.9 * inches, font_size(inches)) for group, _ in groups
    ]
    heights = [
        down * (line * len(labels) + 5.2 * line) + line * (1 + title.count("\n"))
        for (_, labels), title in zip(groups, titles, strict=True)
    ]
    if any(
        dot.warned for group, _ in groups for column in comparison.columns for dot in _dots(group, column, baseline)
    ):
        note += " !: the table has a warning."
    kinds = [cell.assumes for group, _ in groups for cell in group.cells.values() if cell.record]
    legend = wrapped(note, inches - 0.1)
    foot_height = line * (1.4 + legend.count("\n") + math.ceil(len({*kinds}) / (4 if width == "page" else 2)))
    with mpl.rc_context(style_of(inches)):
        figure = Figure(figsize=(inches, sum(heights) + foot_height), layout="constrained")
        *panels, foot = figure.subfigures(len(groups) + 1, 1, height_ratios=[*heights, foot_height], squeeze=False)[
            :, 0
        ]
        for panel, (group, labels), title in zip(panels, groups, titles, strict=True):
            panel.suptitle(title, x=0.01, ha="left", fontweight="bold")
            _dots_of_group(panel.subplots(down, across, squeeze=False), comparison, group, labels, baseline)
        _legend(foot, kinds, legend, 4 if width == "page" else 2)
    return figure


def _note(comparison: Comparison, baseline: str) -> str:
    lines = f"lines: 95 % intervals over {comparison.tasks:,} tasks"
    if baseline:
        return f"Dots: mean difference to {baseline} on the same tasks; {lines}. Filled: significant (Holm, 5 %)."
    return f"Dots: mean accuracy; {lines}. Filled: the best of its panel, or not significantly worse (Holm, 5 %)."


def _sorted_labels(comparison: Comparison, group: Group, baseline: str) -> list[str]:
    """Methods that have something to draw, the highest mean first."""
    means: dict[str, list[float]] = {}
    for column in comparison.columns:
        for dot in _dots(group, column, baseline):
            means.setdefault(dot.label, []).append(dot.mean)
    return sorted(means, key=lambda label: -float(np.mean(means[label])))


def _dots(group: Group, column: Column, baseline: str) -> list[Dot]:
    """What is drawn in one panel."""
    runs = {label: cell for (label, at), cell in group.cells.items() if at == column and cell.record}
    warned = {label for label, cell in runs.items() if any(one.code not in OF_FEATURES for one in cell.warnings)}
    other = runs[baseline].record if baseline in runs else None
    dots = []
    for label, cell in runs.items():
        record = cell.record
        assert record is not None
        if not baseline:
            dots.append(
                Dot(label, cell.assumes, record.accuracy, record.ci95 or 0.0, cell.best or cell.tied, label in warned)
            )
        elif other and label != baseline:
            found = paired_difference(record.per_task, other.per_task)
            width = 0.0 if math.isnan(found.half_width) else found.half_width
            significant = cell.p_value is not None and cell.p_value < LEVEL
            dots.append(Dot(label, cell.assumes, found.mean, width, significant, label in warned))
    return dots


def _dots_of_group(grid: Any, comparison: Comparison, group: Group, labels: Sequence[str], baseline: str) -> None:
    """The panels of a feature file, which share both axes."""
    drawn = [_dots(group, column, baseline) for column in comparison.columns]
    every = [(dot.mean, dot.width) for dots in drawn for dot in dots]
    ends = _limits([*every, (0.0, 0.0)], -100.0, 100.0) if baseline else _limits(every, 0.0, 100.0)
    for number, axes in enumerate(grid.flat):
        if number >= len(drawn):
            axes.set_axis_off()
            continue
        axes.set_title("\n".join(comparison.columns[number].title.rsplit(" ", 1)), loc="left")
        axes.set(xlim=ends, ylim=(len(labels) - 0.4, -0.6))
        axes.set_yticks(
            range(len(labels)), [figure_label(label) for label in labels] if number % grid.shape[1] == 0 else []
        )
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=INK, alpha=0.12, linewidth=0.5)
        axes.set_axisbelow(True)
        if baseline:
            axes.axvline(0, color=INK, linewidth=0.7)
        axes.set_xlabel(("difference (points)" if baseline else "accuracy (%)") if drawn[number] else "no runs")
        for dot in drawn[number]:
            _draw_dot(axes, labels.index(dot.label), dot, ends[0])


def _draw_dot(axes: Axes, place: int, dot: Dot, low: float) -> None:
    colour, marker = _LOOKS.get(dot.assumes, _OTHER)
    if dot.mean < low:  # outside: an arrow at the edge, with the number
        text = f"◂ {dot.mean:.1f}".replace("-", "−") + (" !" if dot.warned else "")
        axes.annotate(text, (low, place), (1.5, 0), textcoords="offset points", va="center", color=colour)
        return
    axes.errorbar(
        dot.mean, place, xerr=dot.width or None, fmt=marker, markersize=3.6, color=colour, linewidth=1,
        markerfacecolor=colour if dot.filled else "white", markeredgewidth=0.9,
    )  # fmt: skip

    if dot.warned:
        axes.annotate("!", (dot.mean + dot.width, place), (2, 0), textcoords="offset points", va="center", color=colour)


def _legend(foot: Any, kinds: Sequence[str], note: str, columns: int) -> None:
    """What colours, shapes and fillings mean."""
    names = [kind for kind in dict.fromkeys((*_LOOKS, *kinds)) if kind in kinds]
    looks = [_LOOKS.get(kind, _OTHER) for kind in names]
    handles = [Line2D([], [], color=colour, marker=marker, linestyle="", markersize=3.6) for colour, marker in looks]
    where = {"loc": "upper left", "bbox_to_anchor": (0, 1), "borderaxespad": 0}
    foot.legend(handles, names, ncols=min(columns, len(names)), frameon=False, handletextpad=0.1, **where)
    foot.text(0.01, 0.02, note, ha="left", va="bottom")


def figure_label(label: str) -> str:
    """A label without the details of its tuning, and not too long."""
    return short_name(re.sub(r"\(tuned:[^)]*\)", "(tuned)", label), 30)


def draw_speed(comparison: Comparison, width: Width = "page") -> Figure:
    """Accuracy against tasks per second, averaged over the feature files, one panel per setting."""
    inches = WIDTHS[width]
    across = min(4 if width == "page" else 2, len(comparison.columns))
    down = math.ceil(len(comparison.columns) / across)
    labels = [entry.label for entry in comparison.entries if any(entry.label == label for group in comparison.groups
              for (label, _), cell in group.cells.items() if cell.record)]  # fmt: skip
    with mpl.rc_context(style_of(inches)):
        columns = max(1, int(inches / (0.35 + 0.065 * max(len(figure_label(label)) for label in labels))))
        devices = ", ".join(dict.fromkeys(record.device for record in comparison.records))
        files = ", ".join(f"{group.dataset} {group.backbone}" for group in comparison.groups)
        note = f"Mean over {files}; {comparison.tasks:,} tasks on {devices}. Grey line: not beaten in both."
        note = wrapped(note, inches - 0.1)
        height = 0.35 + 1.8 * down + 0.16 * (math.ceil(len(labels) / columns) + note.count("\n"))
        figure = Figure(figsize=(inches, height), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False, sharex=True)
        for axes in grid.flat[len(comparison.columns) :]:
            axes.set_axis_off()
        for axes, column in zip(grid.flat, comparison.columns, strict=False):
            _speeds(axes, comparison, column, labels)
        for row in grid:
            row[0].set_ylabel("accuracy (%)")
        handles = [Line2D([], [], linestyle="", markersize=4, label=figure_label(label), **_method_look(number))
                   for number, label in enumerate(labels)]  # fmt: skip
        figure.legend(handles=handles, loc="outside lower left", ncols=columns, frameon=False, handletextpad=0.1,
                      title=note, alignment="left")  # fmt: skip
    return figure


def _method_look(number: int) -> dict[str, Any]:
    """Colour and shape, another pair for each of 56 methods."""
    colours = [colour for colour in COLOURS if colour != "#F0E442"]
    return {"color": colours[number % len(colours)], "marker": MARKERS[number % len(MARKERS)]}


def _speeds(axes: Axes, comparison: Comparison, column: Column, labels: Sequence[str]) -> None:
    groups = [group for group in comparison.groups if any(at == column and cell.record
              for (_, at), cell in group.cells.items())]  # fmt: skip
    points = {}
    for label in labels:
        cells = [group.cells.get((label, column)) for group in groups]
        runs = [cell.record for cell in cells if cell and cell.record]
        if runs and len(runs) == len(groups):
            speed = float(np.exp(np.mean([math.log(run.tasks_per_second) for run in runs])))
            points[label] = speed, float(np.mean([run.accuracy for run in runs]))
    front = sorted(
        point for point in points.values() if not any(x > point[0] and y > point[1] for x, y in points.values())
    )
    if front:
        axes.plot(*zip(*front, strict=True), color="0.7", linewidth=0.8, zorder=1)
    low, high = _limits([(accuracy, 0.0) for _, accuracy in points.values()], 0.0, 100.0) if points else (0.0, 100.0)
    for label, (speed, accuracy) in points.items():
        look = _method_look(labels.index(label))
        if accuracy >= low:
            axes.plot(speed, accuracy, linestyle="", markersize=4, zorder=2, **look)
            continue
        axes.plot(speed, low, linestyle="", markersize=4, zorder=2, clip_on=False, **look)  # outside: at the edge
        axes.annotate(f"▾ {accuracy:.1f}", (speed, low), (3, 3), textcoords="offset points")
    axes.set(xscale="log", xlabel="tasks per second" if points else "no runs", ylim=(low, high))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title("\n".join(column.title.rsplit(" ", 1)), loc="left")
    axes.grid(color=INK, alpha=0.1, linewidth=0.5)


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


def draw_differences(pairs: Sequence[Paired], method: str, baseline: str, width: Width = "page") -> Figure:
    """Histograms of the differences, one panel per setting, on the same axes."""
    inches = WIDTHS[width]
    across = min(4 if width == "page" else 2, len(pairs))
    down = math.ceil(len(pairs) / across)
    places = list(dict.fromkeys(pair.place for pair in pairs))
    title = f"{method} minus {baseline}, task by task" + (f", on {places[0]}" if len(places) == 1 else "")
    title = wrapped(title, inches - 0.2)
    each = inches / across - 0.25
    short = [place.partition(" (")[0] for place in places]
    names = dict(zip(places, short if len({*short}) == len(short) else places, strict=True))
    heads = [_panel_title(pair, each, names[pair.place] if len(places) > 1 else "") for pair in pairs]
    line = 1.25 * font_size(inches) / 72
    note = wrapped(f"Dashed: mean over {len(pairs[0].values):,} tasks; grey band: its 95 % interval.", inches - 0.2)
    with mpl.rc_context(style_of(inches)):
        taken = down * (1.4 + line * max(head.count("\n") + 2 for head in heads))
        figure = Figure(
            figsize=(inches, taken + line * (3 + title.count("\n") + note.count("\n"))), layout="constrained"
        )
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        figure.supxlabel(note, x=0.01, ha="left", fontsize=font_size(inches))
        grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        for axes, pair, head in zip(grid.flat, pairs, heads, strict=False):
            _histogram(axes, pair)
            axes.set_title(head, loc="left")
            axes.tick_params(labelbottom=True)
        for axes in grid.flat[len(pairs) :]:
            axes.set_axis_off()
        for row in grid:
            row[0].set_ylabel("share of tasks (%)")
    return figure


def _panel_title(pair: Paired, inches: float, place: str) -> str:
    """Setting, mean with its interval, and shares; the feature file where there are several."""
    text = f"{pair.interval.mean:+.2f}".replace("-", "−")
    text += "" if math.isnan(pair.interval.half_width) else f" ± {pair.interval.half_width:.2f}"
    counts = ", ".join(f"{kind} {pair.share(kind):.0f}" for kind in ("better", "equal", "worse")) + " %"
    lines = [*([place] if place else []), pair.setting, f"mean {text}", counts]
    return wrapped("\n".join(lines), inches, 7.0)


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
    if not math.isnan(width):
        axes.axvspan(pair.interval.low, pair.interval.high, color=INK, alpha=0.25, linewidth=0)
    axes.set_xlabel("difference (points)")


def _edges(pair: Paired) -> NDArray[np.float64]:
    """Bins centred on the differences that can occur, several together where they lie close."""
    width = pair.step * (math.ceil(_FINEST / pair.step) | 1)  # an odd number, so that none falls on an edge
    first, last = (round(float(end) / width) for end in (min(pair.values.min(), 0), max(pair.values.max(), 0)))
    return width * (np.arange(first - 1, last + 3, dtype=np.float64) - 0.5)
