"""What a search saw: accuracy on val over the parameters."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fsbench.evaluation.axes import symbol
from fsbench.report.plots.style import COLOURS, STYLE
from fsbench.report.study_tables import grid_axes, number, split_axes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from fsbench.evaluation.axes import Value
    from fsbench.evaluation.tuning import Tuned


def draw_surface(tuned: Tuned) -> Figure:
    """A grid of two or more axes as maps with their numbers; anything else as accuracy over each parameter."""
    with mpl.rc_context(STYLE):
        map_it = tuned.how == "grid" and len(tuned.params) > 1
        figure = _maps(tuned, grid_axes(tuned.trials)) if map_it else _scatter(tuned)
        figure.suptitle(f"{tuned.method}, {tuned.setting}: accuracy on val (%), {tuned.tasks} tasks", x=0.01, ha="left")
    return figure


def _maps(tuned: Tuned, axes: dict[str, list[Value]]) -> Figure:
    down, across, rest = split_axes(axes)
    panels = list(itertools.product(*(axes[name] for name in rest)))
    width = 0.62 * len(axes[across]) + 1.0
    figure = Figure(figsize=(width * len(panels) + 0.8, 0.36 * len(axes[down]) + 1.4), layout="constrained")
    accuracies = [trial.accuracy for trial in tuned.trials]
    for index, values in enumerate(panels, start=1):
        place = figure.add_subplot(1, len(panels), index)
        _map(place, tuned, axes, dict(zip(rest, values, strict=True)), min(accuracies), max(accuracies))
        if index == 1:
            place.set_ylabel(symbol(down))
    return figure


def _map(
    place: Axes, tuned: Tuned, axes: dict[str, list[Value]], fixed: Mapping[str, Value], low: float, high: float
) -> None:
    down, across, _ = split_axes(axes)
    grid = np.zeros((len(axes[down]), len(axes[across])))
    for trial in tuned.trials:
        if all(trial.params[name] == value for name, value in fixed.items()):
            i, j = axes[down].index(trial.params[down]), axes[across].index(trial.params[across])
            grid[i, j] = trial.accuracy
            best = trial.params == tuned.params
            dark = trial.accuracy < (low + high) / 2
            place.text(
                j, i, f"{trial.accuracy:.1f}", ha="center", va="center", fontsize=8,
                color="white" if dark else "black", fontweight="bold" if best else "normal",
            )  # fmt: skip
            if best:
                place.add_patch(
                    mpl.patches.Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, lw=1.8, ec=COLOURS[5])
                )
    place.imshow(grid, cmap="cividis", vmin=low, vmax=high, aspect="auto")
    place.set_xticks(range(len(axes[across])), [number(value) for value in axes[across]])
    place.set_yticks(range(len(axes[down])), [number(value) for value in axes[down]])
    place.set_xlabel(symbol(across))
    place.set_title(", ".join(f"{symbol(name)} = {number(value)}" for name, value in fixed.items()), loc="left")


def _scatter(tuned: Tuned) -> Figure:
    names = list(tuned.trials[0].params)
    figure = Figure(figsize=(0.6 + 2.7 * len(names), 2.9), layout="constrained")
    accuracies = [trial.accuracy for trial in tuned.trials]
    for index, name in enumerate(names, start=1):
        place = figure.add_subplot(1, len(names), index)
        values = [trial.params[name] for trial in tuned.trials]
        place.plot(values, accuracies, "o", ms=4, color=COLOURS[0], alpha=0.6)
        place.plot([tuned.params[name]], [tuned.best.accuracy], "s", ms=7, color=COLOURS[5])
        if all(isinstance(value, float) and value > 0 for value in values):
            place.set_xscale("log")
        place.set_xlabel(symbol(name))
        if index == 1:
            place.set_ylabel("accuracy (%)")
    return figure
