"""The look of all pictures: colour-blind-safe, readable in grey, labelled."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from fsbench.errors import FsbenchError
from fsbench.files import whole_file

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

# Okabe and Ito's colours, ordered so that neighbours differ in lightness too; hatches tell them apart in grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
LINES = ("-", "--", "-.", ":")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo", "---", "+++")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "fsbench",
}
FORMATS = ("png", "pdf", "svg")
_CLASS_COLOURS = tuple(colour for colour in COLOURS if colour != "#F0E442")  # too pale for hollow marks on white
MOST_CLASSES = len(_CLASS_COLOURS) * len(MARKERS)


def class_mark(number: int) -> tuple[str, str]:
    """Colour and shape of a class, another pair for each of 56: in grey the shapes tell 8 apart."""
    return _CLASS_COLOURS[number % len(_CLASS_COLOURS)], MARKERS[number % len(MARKERS)]


def line_look(number: int) -> dict[str, Any]:
    """Colour and dashes of a line, another pair for each of 32."""
    cycle, place = divmod(number, len(COLOURS))
    return {"color": COLOURS[place], "linestyle": LINES[(place + cycle) % len(LINES)]}


def plain_text(name: str, longest: int = 24) -> str:
    """A name as it is, not as a formula, and cut in the middle where a legend has no room for it."""
    half = longest // 2
    short = name if len(name) <= longest else f"{name[: half - 1]}…{name[-half:]}"
    return short.replace("$", r"\$")


def picture_format(path: Path) -> str:
    """The format that a file's ending asks for."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise FsbenchError(
            f"Pictures end in .png, .pdf or .svg, got {path.name!r}.", f"For example {path.stem or 'picture'}.png."
        )
    return kind


def save(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all, the same bytes for the same figure."""
    kind = picture_format(path)
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    with whole_file(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a class name in another script: seen as boxes
        figure.savefig(temporary, format=kind, dpi=160, metadata=metadata)
