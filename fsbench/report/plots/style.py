"""The look of all pictures: colour-blind-safe, readable in grey, labelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl

from fsbench.errors import FsbenchError
from fsbench.files import whole_file

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

# Okabe and Ito's colours, ordered so that neighbours differ in lightness too; hatches tell them apart in grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo", "---", "+++")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "fsbench",
}


ENDINGS = (".png", ".pdf", ".svg")


def check_ending(path: Path) -> None:
    """Refuse a picture file whose ending names no known kind."""
    if path.suffix.lower() not in ENDINGS:
        raise FsbenchError(f"A picture ends in {', '.join(ENDINGS)}, got {path.name!r}.")


def save(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all, the same bytes for the same figure."""
    check_ending(path)
    kind = path.suffix.removeprefix(".").lower()
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    with mpl.rc_context(STYLE), whole_file(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=160, metadata=metadata)
