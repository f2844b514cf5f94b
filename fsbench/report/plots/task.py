"""The way of a 3-way task through the probability simplex."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Ellipse

from fsbench.report.plots.style import class_mark, draw_queries, draw_support, three_panels

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fsbench.evaluation.task_views import View, WatchedTask


CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]])  # of an equilateral triangle, one per class
SIMPLEX_NOTE = (
    "A query stands where its probabilities of the three classes put it; its answer changes at the dotted lines. Lines "
    "are the ways since the panel before.\n"
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


def draw_simplex(task: WatchedTask, root: int, path: Path) -> None:
    """Nearest class mean, then the ways from there through Soft-KMEANS, then from there through BAVARDAGE."""
    ends = task.last_steps
    stages = (
        ("(a) nearest class mean", ends["NCM"], ends["NCM"]),
        ("(b) Soft-KMEANS", ends["NCM"], ends["Soft-KMEANS"]),
        ("(c) BAVARDAGE", ends["Soft-KMEANS"], ends["BAVARDAGE"]),
    )
    note = SIMPLEX_NOTE + (SOFTENED.format(root=root) if root != 1 else "")
    with three_panels(task, note, path) as panels:
        for axes, (name, first, last) in zip(panels, stages, strict=True):
            axes.set_title(f"{name}: {100 * task.right(last).mean():.1f} % correct")
            _triangle(axes, task, last)
            _ways(axes, task, in_triangle(task.query_probabilities[first : last + 1], root), last)


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
        words = f"{mine.sum()} correct, {(~mine).sum()} wrong"
        axes.annotate(words, (x, y), (0, 10 if y else -10), textcoords="offset points", ha="center",
                      va="bottom" if y else "top", fontsize="small")  # fmt: skip
    axes.set(xlim=(-0.14, 1.14), ylim=(-0.12, 0.98), aspect="equal")
    axes.set_axis_off()


def _ways(axes: Axes, task: WatchedTask, points: NDArray[np.float64], last: int) -> None:
    """Every query's way (T, Q, 2), with a mark at its end; the support in its corners."""
    colours = [class_mark(label)[0] for label in task.query_labels]
    axes.add_collection(LineCollection(list(points.swapaxes(0, 1)), colors=colours, linewidths=0.8, alpha=0.55))
    draw_support(axes, CORNERS[task.support_labels], task.support_labels)
    draw_queries(axes, points[-1], task.query_labels, task.right(last))


_FILLED = 7  # more ellipses than these are drawn as outlines
TASK_NOTE = (
    "(b) and (c): the space of the centroids that the method ends with. An accuracy is that of the named method on all "
    "features, not in the plane.\n"
    "Ellipses: two standard deviations of the true classes, support included. In brackets: queries of the class."
)


def draw_task(task: WatchedTask, views: tuple[View, View, View], path: Path) -> None:
    """The three views side by side, each with the accuracy of the method that works in its space."""
    with three_panels(task, TASK_NOTE, path) as panels:
        for letter, axes, view in zip("abc", panels, views, strict=True):
            axes.set_title(f"({letter}) {view.title}\n{view.method}: {100 * view.right.mean():.1f} % correct")
            _draw_view(axes, task, view)


def covariance_ellipse(points: NDArray[np.float64]) -> Ellipse | None:
    """The curve two standard deviations around the mean of points (n, 2); None for fewer than three."""
    if len(points) < 3:
        return None
    variances, axes = np.linalg.eigh(np.cov(points.T))
    width, height = 4 * np.sqrt(np.maximum(variances[::-1], 0.0))
    angle = np.degrees(np.arctan2(axes[1, 1], axes[0, 1]))
    return Ellipse(tuple(points.mean(axis=0)), width, height, angle=angle)


def _draw_view(axes: Axes, task: WatchedTask, view: View) -> None:
    support = len(task.support_labels)
    if view.shares:
        _ellipses(axes, view.points, np.concatenate([task.support_labels, task.query_labels]))
        for name, share, axis in zip(("first", "second"), view.shares, (axes.xaxis, axes.yaxis), strict=True):
            axis.set_label_text(f"{name} axis: {100 * share:.0f} % of the centroids' spread", fontsize="small")
    draw_support(axes, view.points[:support], task.support_labels)
    draw_queries(axes, view.points[support:], task.query_labels, view.right)
    axes.set(xticks=[], yticks=[])
    _square(axes)


def _square(axes: Axes) -> None:
    """The same scale on both axes, everything inside, some air around it."""
    box = axes.dataLim
    half = 0.54 * max(box.width, box.height, 1e-12)
    x, y = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
    axes.set(xlim=(x - half, x + half), ylim=(y - half, y + half), box_aspect=1)


def _ellipses(axes: Axes, points: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
    classes = np.unique(labels)
    for k in classes:
        ellipse = covariance_ellipse(points[labels == k])
        if ellipse:
            colour = class_mark(k)[0]
            face = to_rgba(colour, 0.1) if len(classes) <= _FILLED else "none"
            ellipse.set(facecolor=face, edgecolor=colour, linewidth=1.0, zorder=1)
            axes.add_patch(ellipse)
