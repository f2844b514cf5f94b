"""The look of all figures: true size on paper, colour-blind-safe, readable in grey, labelled."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from fsbench.errors import FsbenchError
from fsbench.io.files import whole_file
from fsbench.reporter import printable

# Okabe and Ito's colours, ordered so that neighbours differ in lightness too.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
LINES = ("-", "--", "-.", ":")
INK = "#1d2026"  # of text and lines; a page in dark colours replaces it, so nothing else has this colour
Width = Literal["column", "page"]
WIDTHS = {"column": 3.25, "page": 6.75}  # inches: a column and the text block of the usual two-column layouts
ENDINGS = (".png", ".pdf", ".svg")
_STYLE: dict[Any, Any] = {
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.7),
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"), INK
    ),
    "hatch.linewidth": 0.6,
    "lines.linewidth": 1.1,
    "pdf.fonttype": 42,  # letters stay letters
    "text.parse_math": False,  # names may hold dollar signs
    "svg.hashsalt": "fsbench",
}
_SIZES = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize",
          "legend.title_fontsize", "figure.titlesize")  # fmt: skip


class Paper:
    """The width of a figure, and what follows from it: the size of letters in points, the height of a line."""

    def __init__(self, width: Width) -> None:
        self.width = width
        self.inches = WIDTHS[width]
        self.points = _points(self.inches)
        self.line = 1.5 * self.points / 72

    def grid(self, panels: int, most: int = 4) -> tuple[int, int]:
        """Rows and columns of panels: at most so many side by side, in a column two."""
        across = min(most if self.width == "page" else 2, panels)
        return math.ceil(panels / across), across

    def wrapped(self, text: str, inches: float | None = None) -> str:
        """A text in lines that fit into a width; letters are about 0.6 of their size wide."""
        letters = int(72 * (self.inches - 0.2 if inches is None else inches) / (0.6 * self.points))
        return "\n".join(line for part in text.split("\n") for line in textwrap.wrap(part, max(letters, 8)) or [""])

    @contextmanager
    def figure(self, height: float, title: str = "", note: str = "") -> Iterator[Figure]:
        """A figure to draw on in the style of the paper; lines of title and note are added to its height."""
        title, note = self.wrapped(title), self.wrapped(note)
        lines = sum(1 + text.count("\n") for text in (title, note) if text)
        with mpl.rc_context(_style(self.inches)):
            figure = Figure(figsize=(self.inches, height + lines * self.line), layout="constrained")
            cast(Any, figure.get_layout_engine()).set(h_pad=0.07)  # inches, so that captions touch nothing
            if title:
                figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
            if note:
                figure.supxlabel(note, x=0.01, ha="left", fontsize=self.points)
            yield figure


def _points(inches: float) -> float:
    return 7.0 if inches < 5 else 8.0


def _style(inches: float) -> dict[Any, Any]:
    return {**_STYLE, **dict.fromkeys(_SIZES, _points(inches))}


def line_look(number: int) -> dict[str, Any]:
    """Colour and dashes of a line, another pair for each of 32."""
    cycle, place = divmod(number, len(COLOURS))
    return {"color": COLOURS[place], "linestyle": LINES[(place + cycle) % len(LINES)]}


def faint_grid(axes: Axes, along: Literal["x", "y", "both"] = "both") -> None:
    """Grid lines behind what is drawn."""
    axes.grid(axis=along, color=INK, alpha=0.1, linewidth=0.6)
    axes.set_axisbelow(True)


def short_name(name: str, longest: int = 24) -> str:
    """A name, cut in the middle where a legend has no space for it."""
    half = longest // 2
    return name if len(name) <= longest else f"{name[: half - 1]}…{name[-half:]}"


def check_ending(path: Path) -> None:
    """Refuse a file name that does not end as a figure's."""
    if path.suffix.lower() not in ENDINGS:
        raise FsbenchError(f"A figure file ends in {', '.join(ENDINGS)}, got {path.name!r}.")


def save(figure: Figure, path: Path) -> None:
    """Write a figure atomically, at its true size; the same figure gives the same bytes."""
    kind = path.suffix.removeprefix(".").lower()
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    with mpl.rc_context(_style(figure.get_figwidth())), whole_file(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # names in other scripts are drawn as boxes
        figure.savefig(temporary, format=kind, dpi=300, metadata=metadata)


def svg_text(figure: Figure) -> str:
    """A figure as SVG text for a web page: letters stay letters, the background is transparent."""
    stream = io.StringIO()
    style = {**_style(figure.get_figwidth()), "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        FigureCanvasSVG(figure)  # so that the layout is measured with the letters that are written
        if engine := figure.get_layout_engine():
            engine.execute(figure)
            figure.set_layout_engine(None)  # else savefig draws everything twice, once for the layout alone
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
    return printable(stream.getvalue())  # so that no name makes it ill-formed
