"""The look of all figures: colour-blind-safe, readable in grey, labelled."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

from fsbench.errors import FsbenchError
from fsbench.io.files import whole_file
from fsbench.reporter import printable

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

# Okabe and Ito's colours, ordered so that neighbours differ in lightness too.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
LINES = ("-", "--", "-.", ":")
INK = "#1d2026"  # of text and lines; a page in dark colours replaces it, so nothing else has this colour
STYLE: dict[Any, Any] = {
    **dict.fromkeys(("font.size", "axes.titlesize"), 9),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.7),
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"), INK
    ),
    "hatch.linewidth": 0.6,
    "text.parse_math": False,  # names may hold dollar signs
    "svg.hashsalt": "fsbench",
}
ENDINGS = (".png", ".pdf", ".svg")


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
    """Refuse a file name that does not end as a figure's."""
    if path.suffix.lower() not in ENDINGS:
        raise FsbenchError(f"A figure file ends in {', '.join(ENDINGS)}, got {path.name!r}.")


def save(figure: Figure, path: Path) -> None:
    """Write a figure atomically; the same figure gives the same bytes."""
    check_ending(path)
    kind = path.suffix.removeprefix(".").lower()
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    with mpl.rc_context(STYLE), whole_file(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # names in other scripts are drawn as boxes
        figure.savefig(temporary, format=kind, dpi=160, metadata=metadata)


def svg_text(figure: Figure) -> str:
    """A figure as SVG text for a web page: letters stay letters, the background is transparent."""
    stream = io.StringIO()
    style = {**STYLE, "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
    return printable(stream.getvalue())  # so that no name makes it ill-formed
