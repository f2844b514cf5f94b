"""Figures of one task: its three projections, and the paths of its queries through the probability simplex."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse

from fsbench.errors import FsbenchError
from fsbench.report.plots.style import COLOURS, MARKERS, WIDTHS, Width, font_size, short_name, style_of, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fsbench.evaluation.task_views import View, WatchedTask

_CLASS_COLOURS = tuple(colour for colour in COLOURS if colour != "#F0E442")  # too pale for hollow marks on white
MOST_CLASSES = len(_CLASS_COLOURS) * len(MARKERS)


def class_mark(number: int) -> tuple[str, str]:
    """Colour and shape of a class, another pair for each of 56: in grey the shapes tell 8 apart."""
    return _CLASS_COLOURS[number % len(_CLASS_COLOURS)], MARKERS[number % len(MARKERS)]


def _three_panels(task: WatchedTask, note: str, width: Width, title_lines: int) -> tuple[Figure, list[Axes]]:
    """A figure with title, legend and note, and its three panels to draw on: a row, or in a column a stack."""
    inches = WIDTHS[width]
    ways = len(task.class_names)
    if ways > MOST_CLASSES:
        raise FsbenchError(f"At most {MOST_CLASSES} classes can be drawn, the task has {ways}.", "Use fewer --ways.")
    entries, columns = _legend(task, inches)
    rows = -(-len(entries) // columns)
    title, note = (wrapped(text, inches - 0.2) for text in (short_name(task.title, longest=400), note))
    line = 1.3 * font_size(inches) / 72
    across = 3 if width == "page" else 1
    panels = (
        (3 // across) * (0.92 * inches / across + line * title_lines) if across == 3 else 3 * (2.3 + line * title_lines)
    )
    figure = Figure(
        figsize=(inches, panels + line * (3 + rows + title.count("\n") + note.count("\n"))), layout="constrained"
    )
    figure.suptitle(title)
    by_rows = [entries[i] for column in range(columns) for i in range(column, len(entries), columns)]
    figure.legend(
        handles=by_rows, loc="outside lower center", ncols=columns, frameon=False, handletextpad=0.3, title=note,
    )  # fmt: skip
    return figure, [figure.add_subplot(3 // across, across, number) for number in (1, 2, 3)]


def _draw_samples(axes: Axes, task: WatchedTask, points: NDArray[np.float64], right: NDArray[np.bool_]) -> None:
    """Samples (N, 2): the support, on it the queries, on top those with a wrong answer."""
    labels = np.concatenate([task.support_labels, task.query_labels])
    kinds = np.concatenate([np.full(len(task.support_labels), "support"), np.where(right, "right", "wrong")])
    for zorder, kind in enumerate(("support", "right", "wrong"), start=3):
        for k in np.unique(labels[kinds == kind]):
            drawn = points[(kinds == kind) & (labels == k)]
            axes.plot(*drawn.T, **_mark(*class_mark(k), kind), zorder=zorder, clip_on=False)


def _mark(colour: str, marker: str, kind: str) -> dict[str, Any]:
    size, face, edge, width = {  # sizes in points
        "support": (6.5, colour, "black", 0.8),
        "right": (3.6, colour, "white", 0.3),
        "wrong": (4.2, "white", colour, 1.0),
    }[kind]
    return {
        "linestyle": "", "marker": marker, "markersize": size, "markerfacecolor": face, "markeredgecolor": edge,
        "markeredgewidth": width,
    }  # fmt: skip


def _legend(task: WatchedTask, inches: float) -> tuple[list[Line2D], int]:
    """The classes with their numbers of queries, in rows of their own what the marks mean; and entries per row."""
    counts = np.bincount(task.query_labels, minlength=len(task.class_names))
    names = [f"{short_name(name)} ({count})" for name, count in zip(task.class_names, counts, strict=True)]
    classes = [Line2D([], [], **_mark(*class_mark(k), "right"), label=name) for k, name in enumerate(names)]
    meanings = {"support": "support", "right": "query, correct", "wrong": "query, wrong"}
    marks = [Line2D([], [], **_mark("0.4", "o", kind), label=label) for kind, label in meanings.items()]
    longest = max(len(label) for label in (*names, *meanings.values()))
    letters = int(72 * inches / (0.55 * font_size(inches)))  # beside each other
    columns = max(1, min(max(len(classes), len(marks)), letters // (6 + longest)))
    blank = [Line2D([], [], linestyle="", label=" ")] * (-len(classes) % columns)
    return classes + blank + marks, columns


CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]])  # of an equilateral triangle, one per class
SIMPLEX_NOTE = (
    "A query is drawn at its probabilities of the three classes; its answer changes at the dotted lines. Lines "
    "are paths since the panel before.\n"
    "Nearest class mean: softmax(−T_km d²), the first step of Soft-KMEANS. In brackets: queries of the class."
)
SOFTENED = (
    "\nDrawn is p^(1/{root}), made to add up to 1, so that nearly certain queries do not all fall into the corners; "
    "corners, edges and dotted lines stay."
)


def in_triangle(probabilities: NDArray[np.float64], root: int) -> NDArray[np.float64]:
    """Probabilities p (…, 3) as points of the triangle (…, 2), its corners weighted with p^(1/root)."""
    softened = probabilities ** (1 / root)
    points: NDArray[np.float64] = softened / softened.sum(axis=-1, keepdims=True) @ CORNERS
    return points


def draw_simplex(task: WatchedTask, root: int, width: Width = "page") -> Figure:
    """Nearest class mean, then the paths from there through Soft-KMEANS, then from there through BAVARDAGE."""
    ends = task.last_steps
    stages = (
        ("(a) nearest class mean", ends["NCM"], ends["NCM"]),
        ("(b) Soft-KMEANS", ends["NCM"], ends["Soft-KMEANS"]),
        ("(c) BAVARDAGE", ends["Soft-KMEANS"], ends["BAVARDAGE"]),
    )
    note = SIMPLEX_NOTE + (SOFTENED.format(root=root) if root != 1 else "")
    colours = [class_mark(label)[0] for label in task.query_labels]
    with mpl.rc_context(style_of(WIDTHS[width])):
        figure, panels = _three_panels(task, note, width, 5)
        for axes, (name, first, last) in zip(panels, stages, strict=True):
            axes.set_title(f"{name}\n{100 * task.right(last).mean():.1f} % correct", pad=20)
            _triangle(axes, task, last)
            points = in_triangle(task.query_probabilities[first : last + 1], root)  # (T, Q, 2)
            axes.add_collection(LineCollection([*points.swapaxes(0, 1)], colors=colours, linewidths=0.8, alpha=0.55))
            _draw_samples(axes, task, np.concatenate([CORNERS[task.support_labels], points[-1]]), task.right(last))
    return figure


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


_FILLED = 7  # more ellipses than these are drawn as outlines
TASK_NOTE = (
    "(a): the plane of the samples' largest spread. (b) and (c): that of the centroids the method ends with. "
    "An accuracy is that of the named method on all features, not in the plane.\n"
    "Ellipses: two standard deviations of the true classes, support included. In brackets: queries of the class."
)


def draw_task(task: WatchedTask, views: tuple[View, ...], width: Width = "page") -> Figure:
    """The three views side by side, each with the accuracy of the method that works in its space."""
    with mpl.rc_context(style_of(WIDTHS[width])):
        figure, panels = _three_panels(task, TASK_NOTE, width, 3)
        for letter, axes, view in zip("abc", panels, views, strict=True):
            axes.set_title(f"({letter}) {view.title}\n{view.method}: {100 * view.right.mean():.1f} % correct")
            _draw_view(axes, task, view)
    return figure


def covariance_ellipse(points: NDArray[np.float64]) -> Ellipse | None:
    """The curve two standard deviations around the mean of points (n, 2); None for fewer than three."""
    if len(points) < 3:
        return None
    variances, axes = np.linalg.eigh(np.cov(points.T))
    width, height = 4 * np.sqrt(np.maximum(variances[::-1], 0.0))
    angle = np.degrees(np.arctan2(axes[1, 1], axes[0, 1]))
    return Ellipse(tuple(points.mean(axis=0)), width, height, angle=angle)


def _draw_view(axes: Axes, task: WatchedTask, view: View) -> None:
    labels = np.concatenate([task.support_labels, task.query_labels])
    classes = np.unique(labels)
    for k in classes:
        if ellipse := covariance_ellipse(view.points[labels == k]):
            colour = class_mark(k)[0]
            face = to_rgba(colour, 0.1) if len(classes) <= _FILLED else "none"
            ellipse.set(facecolor=face, edgecolor=colour, linewidth=1.0, zorder=1)
            axes.add_patch(ellipse)
    for name, share, axis in zip(("first", "second"), view.shares, (axes.xaxis, axes.yaxis), strict=True):
        axis.set_label_text(f"{name} axis: {100 * share:.0f} % of\nthe {view.spread}' spread")
    _draw_samples(axes, task, view.points, view.right)
    box = axes.dataLim  # the same scale on both axes, with a margin around all points
    half = 0.54 * max(box.width, box.height, 1e-12)
    x, y = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
    axes.set(xticks=[], yticks=[], xlim=(x - half, x + half), ylim=(y - half, y + half), box_aspect=1)
