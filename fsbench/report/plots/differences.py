"""Paired differences: how a method fares against another, task by task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fsbench.evaluation.statistics import Interval, paired_difference
from fsbench.report.plots.style import COLOURS, INK, STYLE, layers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fsbench.evaluation.comparison import Comparison, Group
    from fsbench.report.record import RunRecord

_LOOKS = {"worse": (COLOURS[5], "////"), "equal": (COLOURS[7], ""), "better": (COLOURS[0], "")}
_NOTE = "Dashed: mean, with its 95 % interval."
_FINEST = 1.25  # points of accuracy: the narrowest bin worth drawing


@dataclass(frozen=True)
class Paired:
    """Two methods on the same tasks.

    Attributes:
        place: Feature file.
        setting: Of the tasks.
        values: (T,) accuracy of the method minus that of the baseline, in points.
        step: The smallest difference there can be: one query.
        interval: Mean of the values and its 95 % interval.
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
                found.append(_paired(group, column.title, one.record, other.record))
    return found


def _paired(group: Group, setting: str, record: RunRecord, baseline: RunRecord) -> Paired:
    values = record.per_task - baseline.per_task
    difference = paired_difference(record.per_task, baseline.per_task)
    return Paired(group.title, setting, values, 100.0 / max(record.queries), difference)


def differences_figure(pairs: Sequence[Paired], method: str, baseline: str) -> Figure:
    """Histograms of the differences, one panel per setting, at most four to a row."""
    across = min(4, len(pairs))
    down = math.ceil(len(pairs) / across)
    title = f"{method} minus {baseline}, task by task"
    with mpl.rc_context(STYLE):
        size = (max(2.5 * across, 0.5 + 0.09 * len(title)), 0.6 + 2.5 * down)
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=10)
        figure.supxlabel(_NOTE, x=0.01, ha="left", fontsize=8)
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
    for kind, (colour, hatch) in _LOOKS.items():
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
