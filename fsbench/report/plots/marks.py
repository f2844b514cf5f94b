"""Pictures of one task: three panels, samples as marks, one legend.

Colour and shape are the true class, hollow is a wrong answer, large with a black edge is the support.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fsbench.errors import FsbenchError
from fsbench.report.plots.style import MOST_CLASSES, STYLE, class_mark, save, short_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fsbench.evaluation.watch import WatchedTask

_SUPPORT, _QUERY = 9.0, 5.0  # sizes in points
_WIDTH, _LETTERS = 10.5, 145  # of the picture in inches, and letters of the legend beside each other


@contextmanager
def three_panels(task: WatchedTask, note: str, path: Path) -> Iterator[list[Axes]]:
    """Give three panels to draw on, then add title, legend and note, and save."""
    ways = len(task.class_names)
    if ways > MOST_CLASSES:
        raise FsbenchError(f"A picture tells {MOST_CLASSES} classes apart, the task has {ways}.", "Use fewer --ways.")
    entries, columns = _legend(task)
    rows = -(-len(entries) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(_WIDTH, 4.1 + 0.2 * rows), layout="constrained")
        figure.suptitle(short_name(task.title, longest=400), fontsize="medium")
        yield [figure.add_subplot(1, 3, number) for number in (1, 2, 3)]
        by_rows = [entries[i] for column in range(columns) for i in range(column, len(entries), columns)]
        figure.legend(
            handles=by_rows, loc="outside lower center", ncols=columns, frameon=False, handletextpad=0.3,
            title=note, title_fontsize="small",
        )  # fmt: skip
        save(figure, path)


def draw_support(axes: Axes, points: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
    """Support samples (S, 2), beneath the queries."""
    _draw(axes, points, labels, "support", zorder=3)


def draw_queries(axes: Axes, points: NDArray[np.float64], labels: NDArray[np.int64], right: NDArray[np.bool_]) -> None:
    """Queries (Q, 2), those with a wrong answer on top."""
    _draw(axes, points[right], labels[right], "right", zorder=4)
    _draw(axes, points[~right], labels[~right], "wrong", zorder=5)


def _draw(axes: Axes, points: NDArray[np.float64], labels: NDArray[np.int64], kind: str, zorder: int) -> None:
    for k in np.unique(labels):
        axes.plot(*points[labels == k].T, **_mark(*class_mark(k), kind), zorder=zorder, clip_on=False)


def _mark(colour: str, marker: str, kind: str) -> dict[str, Any]:
    size, face, edge, width = {
        "support": (_SUPPORT, colour, "black", 1.0),
        "right": (_QUERY, colour, "white", 0.4),
        "wrong": (_QUERY + 1, "white", colour, 1.3),
    }[kind]
    return {
        "linestyle": "", "marker": marker, "markersize": size, "markerfacecolor": face, "markeredgecolor": edge,
        "markeredgewidth": width,
    }  # fmt: skip


def _legend(task: WatchedTask) -> tuple[list[Line2D], int]:
    """The classes with their numbers of queries, in rows of their own what the marks mean; and entries per row."""
    counts = np.bincount(task.query_labels, minlength=len(task.class_names))
    names = [f"{short_name(name)} ({count})" for name, count in zip(task.class_names, counts, strict=True)]
    classes = [Line2D([], [], **_mark(*class_mark(k), "right"), label=name) for k, name in enumerate(names)]
    meanings = {"support": "support", "right": "query, correct", "wrong": "query, wrong"}
    marks = [Line2D([], [], **_mark("0.4", "o", kind), label=label) for kind, label in meanings.items()]
    longest = max(len(label) for label in (*names, *meanings.values()))
    columns = min(max(len(classes), len(marks)), _LETTERS // (6 + longest))
    blank = [Line2D([], [], linestyle="", label=" ")] * (-len(classes) % columns)
    return classes + blank + marks, columns
