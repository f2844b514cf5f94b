"""The look of all pictures: colour-blind-safe, readable in grey, labelled."""

from __future__ import annotations

import io
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fsbench.errors import FsbenchError
from fsbench.io.files import whole_file
from fsbench.reporter import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fsbench.evaluation.task_views import WatchedTask


# Okabe and Ito's colours, ordered so that neighbours differ in lightness too; hatches tell them apart in grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
LINES = ("-", "--", "-.", ":")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo", "---", "+++")
INK = "#1d2026"  # of text and lines; a page in dark colours replaces it, so nothing else has this colour
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"), INK
    ),
    "hatch.linewidth": 0.6,
    "text.parse_math": False,  # names may hold dollar signs
    "svg.hashsalt": "fsbench",
}
ENDINGS = (".png", ".pdf", ".svg")
_CLASS_COLOURS = tuple(colour for colour in COLOURS if colour != "#F0E442")  # too pale for hollow marks on white
MOST_CLASSES = len(_CLASS_COLOURS) * len(MARKERS)


def class_mark(number: int) -> tuple[str, str]:
    """Colour and shape of a class, another pair for each of 56: in grey the shapes tell 8 apart."""
    return _CLASS_COLOURS[number % len(_CLASS_COLOURS)], MARKERS[number % len(MARKERS)]


def line_look(number: int) -> dict[str, Any]:
    """Colour and dashes of a line, another pair for each of 32."""
    cycle, place = divmod(number, len(COLOURS))
    return {"color": COLOURS[place], "linestyle": LINES[(place + cycle) % len(LINES)]}


def short_name(name: str, longest: int = 24) -> str:
    """A name, cut in the middle where a legend has no room for it."""
    half = longest // 2
    return name if len(name) <= longest else f"{name[: half - 1]}…{name[-half:]}"


def layers(colour: str, hatch: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """How to fill an area: draw it twice, tinted, then hatched. In SVG the tint's alpha would hold for hatches too."""
    tint = {"facecolor": colour, "edgecolor": "none", "linewidth": 0, "alpha": 0.4}
    return tint, {"facecolor": "none", "edgecolor": colour, "hatch": hatch, "linewidth": 0.7}


def check_ending(path: Path) -> None:
    """Refuse a picture file whose ending names no known kind."""
    if path.suffix.lower() not in ENDINGS:
        raise FsbenchError(f"A picture ends in {', '.join(ENDINGS)}, got {path.name!r}.")


def save(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all, the same bytes for the same figure."""
    check_ending(path)
    kind = path.suffix.removeprefix(".").lower()
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    with mpl.rc_context(STYLE), whole_file(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a class name in another script: seen as boxes
        figure.savefig(temporary, format=kind, dpi=160, metadata=metadata)


def svg_text(figure: Figure) -> str:
    """A figure as the text of an SVG for a web page: letters stay letters, and nothing is behind them."""
    stream = io.StringIO()
    style = {**STYLE, "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
    return printable(stream.getvalue())  # no name can make it ill-formed


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
