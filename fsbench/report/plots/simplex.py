"""The paths of the queries of one task through the probability simplex."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from fsbench.report.plots.style import Paper, Width, mark_look, short_name

if TYPE_CHECKING:
    from fsbench.evaluation.task_views import WatchedTask

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]])  # of an equilateral triangle, one per class
_NOTE = (
    "A query is drawn at its probabilities of the three classes; its answer changes at the dotted lines. Lines "
    "are paths since the panel before.\n"
    "Nearest class mean: softmax(−T_km d²), the first step of Soft-KMEANS. In brackets: queries of the class."
)
_SOFTENED = (
    "\nDrawn is p^(1/{root}), made to add up to 1, so that nearly certain queries do not all fall into the corners; "
    "corners, edges and dotted lines stay."
)
_MARKS = {"support": "support", "right": "query, correct", "wrong": "query, wrong"}


def draw_simplex(task: WatchedTask, root: int, width: Width = "page") -> Figure:
    """Nearest class mean, then the paths from there through Soft-KMEANS, then from there through BAVARDAGE."""
    paper, ends = Paper(width), task.last_steps
    stages = (
        ("(a) nearest class mean", ends["NCM"], ends["NCM"]),
        ("(b) Soft-KMEANS", ends["NCM"], ends["Soft-KMEANS"]),
        ("(c) BAVARDAGE", ends["Soft-KMEANS"], ends["BAVARDAGE"]),
    )
    note = paper.wrapped(_NOTE + (_SOFTENED.format(root=root) if root != 1 else ""))
    down, across = (1, 3) if width == "page" else (3, 1)  # in a column, a stack
    each = (0.31 * paper.inches if width == "page" else 2.3) + 4 * paper.line
    handles = _legend(task)
    longest = 0.55 * paper.points / 72 * max(6 + len(str(handle.get_label())) for handle in handles)  # inches
    columns = 3 if 3 * longest <= paper.inches else 1
    by_rows = [handles[i] for column in range(columns) for i in range(column, 6, columns)]
    lines = 6 // columns + 1 + note.count("\n")
    colours = [mark_look(label)[0] for label in task.query_labels]
    with paper.figure(down * each + lines * paper.line, short_name(task.title, longest=400)) as figure:
        figure.legend(handles=by_rows, loc="outside lower center", ncols=columns, frameon=False, title=note)
        panels = figure.subplots(down, across).flat
        for axes, (name, first, last) in zip(panels, stages, strict=True):
            axes.set_title(f"{name}\n{100 * task.right(last).mean():.1f} % correct", pad=20)
            _triangle(axes, task, last)
            points = in_triangle(task.query_probabilities[first : last + 1], root)  # (T, Q, 2)
            axes.add_collection(LineCollection([*points.swapaxes(0, 1)], colors=colours, linewidths=0.8, alpha=0.55))
            _draw_samples(axes, task, points[-1], task.right(last))
    return figure


def in_triangle(probabilities: NDArray[np.float64], root: int) -> NDArray[np.float64]:
    """Probabilities p (…, 3) as points of the triangle (…, 2), its corners weighted with p^(1/root)."""
    softened = probabilities ** (1 / root)
    points: NDArray[np.float64] = softened / softened.sum(axis=-1, keepdims=True) @ CORNERS
    return points


def _draw_samples(axes: Axes, task: WatchedTask, points: NDArray[np.float64], right: NDArray[np.bool_]) -> None:
    """The support in its corners, on it the queries (Q, 2), on top those with a wrong answer."""
    labels = np.concatenate([task.support_labels, task.query_labels])
    places = np.concatenate([CORNERS[task.support_labels], points])
    kinds = np.concatenate([np.full(len(task.support_labels), "support"), np.where(right, "right", "wrong")])
    for zorder, kind in enumerate(_MARKS, start=3):
        for k in np.unique(labels[kinds == kind]):
            drawn = places[(kinds == kind) & (labels == k)]
            axes.plot(*drawn.T, **_mark(*mark_look(k), kind), zorder=zorder, clip_on=False)


def _mark(colour: str, marker: str, kind: str) -> dict[str, Any]:
    names = ("markersize", "markerfacecolor", "markeredgecolor", "markeredgewidth")
    looks = {
        "support": (6.5, colour, "black", 0.8),
        "right": (3.6, colour, "white", 0.3),
        "wrong": (4.2, "white", colour, 1.0),
    }
    return {"linestyle": "", "marker": marker, **dict(zip(names, looks[kind], strict=True))}


def _legend(task: WatchedTask) -> list[Line2D]:
    """The three classes with their numbers of queries, then what the three marks mean."""
    counts = np.bincount(task.query_labels, minlength=len(task.class_names))
    names = [f"{short_name(name)} ({count})" for name, count in zip(task.class_names, counts, strict=True)]
    classes = [Line2D([], [], **_mark(*mark_look(k), "right"), label=name) for k, name in enumerate(names)]
    return [*classes, *(Line2D([], [], **_mark("0.4", "o", kind), label=words) for kind, words in _MARKS.items())]


def _triangle(axes: Axes, task: WatchedTask, step: int) -> None:
    """The simplex, its regions of equal answers, and at every corner how many queries get its class."""
    axes.fill(*CORNERS.T, facecolor="0.97", edgecolor="0.3", linewidth=0.8, zorder=0)
    centre = CORNERS.mean(axis=0)
    for k in range(3):
        middle = (CORNERS[k - 1] + CORNERS[k - 2]) / 2
        axes.plot(*np.stack([centre, middle]).T, color="0.55", linewidth=0.8, linestyle=":", zorder=1)
    answers, right = task.query_probabilities[step].argmax(axis=1), task.right(step)
    for k, (x, y) in enumerate(CORNERS):
        mine = right[answers == k]
        words = f"{mine.sum()} correct,\n{(~mine).sum()} wrong"
        axes.annotate(words, (x, y), (0, 10 if y else -10), textcoords="offset points", ha="center",
                      va="bottom" if y else "top")  # fmt: skip
    axes.set(xlim=(-0.14, 1.14), ylim=(-0.12, 0.98), aspect="equal")
    axes.set_axis_off()
