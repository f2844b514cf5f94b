"""Accuracy bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

from fsbench.report.plots.style import COLOURS, HATCHES, STYLE, save

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from fsbench.evaluate.comparison import Comparison, Group


def accuracy_bars(comparison: Comparison, path: Path) -> None:
    """Accuracies with their 95 % intervals, one panel per feature file; PNG, PDF or SVG by the file's ending."""
    with mpl.rc_context(STYLE):
        panels = len(comparison.groups)
        figure = Figure(figsize=(1.4 + 1.7 * len(comparison.columns), 2.9 * panels + 0.5), layout="constrained")
        for number, group in enumerate(comparison.groups, start=1):
            _bars(figure.add_subplot(panels, 1, number), comparison, group)
        save(figure, path)


def _bars(axes: Axes, comparison: Comparison, group: Group) -> None:
    shown = [entry for entry in comparison.entries if any(
        (cell := group.cells.get((entry.label, column))) and cell.record for column in comparison.columns
    )]  # fmt: skip
    width = 0.8 / len(shown)
    tops = []
    for i, entry in enumerate(shown):
        for j, column in enumerate(comparison.columns):
            cell = group.cells.get((entry.label, column))
            if cell is None or cell.record is None:
                continue
            tops.append(cell.record.accuracy)
            axes.bar(
                j + (i - (len(shown) - 1) / 2) * width,
                cell.record.accuracy,
                width * 0.92,
                yerr=cell.record.ci95 or 0,
                capsize=2,
                color=COLOURS[i % len(COLOURS)],
                hatch=HATCHES[i % len(HATCHES)],
                edgecolor="black",
                linewidth=0.5,
                error_kw={"linewidth": 0.9},
                label=entry.label if j == 0 else None,
            )
    axes.set_xticks(
        range(len(comparison.columns)), [column.title.replace(" ", "\n", 1) for column in comparison.columns]
    )
    axes.set_ylim(max(0.0, min(tops) - 8), min(100.0, max(tops) + 4))
    axes.set_ylabel("accuracy (%)")
    axes.set_title(f"{group.dataset}, {group.backbone}: {comparison.tasks:,} tasks, 95 % intervals", loc="left")
    axes.legend(ncols=min(4, len(shown)), frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))
