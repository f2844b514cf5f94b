"""One task seen three ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.patches import Ellipse

from fsbench.report.plots.marks import draw_queries, draw_support, three_panels
from fsbench.report.plots.style import class_mark

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fsbench.evaluation.views import View
    from fsbench.evaluation.watch import WatchedTask

_FILLED = 7  # more ellipses than these are drawn as outlines
NOTE = (
    "(b) and (c): the space of the centroids that the method ends with. An accuracy is that of the named method on all "
    "features, not in the plane.\n"
    "Ellipses: two standard deviations of the true classes, support included. In brackets: queries of the class."
)


def draw_task(task: WatchedTask, views: tuple[View, View, View], path: Path) -> None:
    """The three views side by side, each with the accuracy of the method that works in its space."""
    with three_panels(task, NOTE, path) as panels:
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
