"""The look of all figures: true size on paper, colour-blind-safe, readable in grey, labelled."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.text import Text

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
Width = Literal["column", "page"]
WIDTHS = {"column": 3.25, "page": 6.75}  # inches: a column and the text block of the usual two-column layouts
_STYLE: dict[Any, Any] = {
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.7),
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"), INK
    ),
    "hatch.linewidth": 0.6,
    "lines.linewidth": 1.1,
    "mathtext.fontset": "stix",
    "pdf.fonttype": 42,  # letters stay letters
    "text.parse_math": False,  # names may hold dollar signs
    "svg.hashsalt": "fsbench",
}
ENDINGS = (".png", ".pdf", ".svg")
_SIZES = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize",
          "legend.title_fontsize", "figure.titlesize")  # fmt: skip


def style_of(inches: float) -> dict[Any, Any]:
    """The style of a figure of this width: letters of 7 points in a column, of 8 on a page."""
    return {**_STYLE, **dict.fromkeys(_SIZES, font_size(inches))}


def font_size(inches: float) -> float:
    """Points."""
    return 7.0 if inches < 5 else 8.0


def wrapped(text: str, inches: float, size: float | None = None) -> str:
    """A text in lines that fit into a width; letters are about 0.6 of their size wide."""
    letters = int(72 * inches / (0.6 * (size or font_size(inches))))
    return "\n".join(line for part in text.split("\n") for line in textwrap.wrap(part, max(letters, 8)) or [""])


_MATH = {
    "T_km": r"T_\mathrm{km}", "T_vb": r"T_\mathrm{vb}", "s_max": r"s_\mathrm{max}", "S_w": "S_w", "α_o": r"\alpha_o",
    "β_o": r"\beta_o", "α*": r"\alpha^*", "α": r"\alpha", "τ": r"\tau", "σ": r"\sigma", "λ": r"\lambda",
    "√λ": r"\sqrt{\lambda}", "d²": "d^2",
}  # fmt: skip
_SYMBOLS = re.compile("|".join(map(re.escape, sorted(_MATH, key=len, reverse=True))))


def mathematics(text: str) -> str:
    """A text with its symbols, and numbers that they equal, in mathematical type; names with dollar signs stay."""
    if "$" in text or "\\" in text:
        return text
    found = _SYMBOLS.sub(lambda match: f"${_MATH[match[0]]}$", text)
    return re.sub(r"\$( ?= ?)(\d[\d.]*)", lambda match: f" = {match[2]}$", found)


def _typeset(figure: Figure) -> None:
    """Set symbols in mathematical type."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if (changed := mathematics(text.get_text())) != text.get_text():
            text.set_text(changed)
            text.set_parse_math(True)


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
    """Write a figure atomically, at its true size; the same figure gives the same bytes."""
    check_ending(path)
    kind = path.suffix.removeprefix(".").lower()
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    _typeset(figure)
    with mpl.rc_context(style_of(figure.get_figwidth())), whole_file(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # names in other scripts are drawn as boxes
        figure.savefig(temporary, format=kind, dpi=300, metadata=metadata)


def svg_text(figure: Figure) -> str:
    """A figure as SVG text for a web page: letters stay letters, the background is transparent."""
    stream = io.StringIO()
    style = {**style_of(figure.get_figwidth()), "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        FigureCanvasSVG(figure)  # so that the layout is measured with the letters that are written
        if engine := figure.get_layout_engine():
            engine.execute(figure)
            figure.set_layout_engine(None)  # else savefig draws everything twice, once for the layout alone
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
    return printable(stream.getvalue())  # so that no name makes it ill-formed
