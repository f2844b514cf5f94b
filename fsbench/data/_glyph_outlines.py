"""Outlines of characters, read from the font files that matplotlib carries.

Only the coordinates in the font files are used, never a font rasteriser, so that the shapes do not depend on
a FreeType build. Matplotlib itself is not imported: its location tells where the fonts are.
"""

from __future__ import annotations

import importlib.util
import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fontTools.pens.basePen import BasePen  # type: ignore[import-untyped]
from fontTools.ttLib import TTFont, TTLibError  # type: ignore[import-untyped]

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

FACES = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "STIXGeneralBolIta",
)
PIECES = 4  # straight pieces per line or curve of the outline, so that straight strokes can bend too


@dataclass(frozen=True)
class Outline:
    """The closed contours of one character in one typeface.

    Attributes:
        points: Corners (P, 2), x to the right and y downwards, centred; the longer side of the box is 1.
        following: For each corner the index of the next one on its contour (P,).
    """

    points: NDArray[np.float64]
    following: NDArray[np.intp]


class _Flattener(BasePen):  # type: ignore[misc]
    """A pen that turns lines and quadratic curves into short straight pieces."""

    def __init__(self, glyphs: Any) -> None:
        super().__init__(glyphs)
        self.contours: list[list[tuple[float, float]]] = []

    def _moveTo(self, point: tuple[float, float]) -> None:  # noqa: N802 (named by fontTools)
        self.contours.append([point])

    def _lineTo(self, point: tuple[float, float]) -> None:  # noqa: N802
        (x0, y0), (x1, y1) = self._getCurrentPoint(), point
        for piece in range(1, PIECES + 1):
            t = piece / PIECES
            self.contours[-1].append((x0 + t * (x1 - x0), y0 + t * (y1 - y0)))

    def _qCurveToOne(self, control: tuple[float, float], point: tuple[float, float]) -> None:  # noqa: N802
        (x0, y0), (xc, yc), (x1, y1) = self._getCurrentPoint(), control, point
        for piece in range(1, PIECES + 1):
            t = piece / PIECES
            a, b, c = (1 - t) * (1 - t), 2 * t * (1 - t), t * t
            self.contours[-1].append((a * x0 + b * xc + c * x1, a * y0 + b * yc + c * y1))

    def _closePath(self) -> None:  # noqa: N802
        self._lineTo(self.contours[-1][0])  # fonts leave the last side of a contour unsaid


def read_outlines(code_points: Iterable[int]) -> dict[int, list[Outline]]:
    """Read characters from all typefaces.

    Args:
        code_points: The characters.

    Returns:
        For each character its outlines in the typefaces that have it, in the order of ``FACES``.
    """
    directory = _font_directory()
    outlines: dict[int, list[Outline]] = {code_point: [] for code_point in code_points}
    for face in FACES:
        path = directory / f"{face}.ttf"
        try:
            font = TTFont(io.BytesIO(path.read_bytes()), lazy=True)
            names, glyphs = font.getBestCmap(), font.getGlyphSet()
            for code_point in outlines.keys() & names.keys():
                outlines[code_point].append(_flatten(glyphs, names[code_point]))
        except (AssertionError, OSError, TTLibError, LookupError, ValueError, struct.error) as error:
            raise FsbenchError(
                f"The glyphs data set needs the fonts of matplotlib; {path} could not be read: {error}.",
                "Reinstall matplotlib from PyPI: pip install --force-reinstall matplotlib",
            ) from error
    return outlines


def _font_directory() -> Path:
    spec = importlib.util.find_spec("matplotlib")
    if spec is None or spec.origin is None:
        raise FsbenchError(
            "The glyphs data set needs the fonts of matplotlib, which is not installed.",
            "pip install matplotlib",
        )
    return Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf"


def _flatten(glyphs: Any, name: str) -> Outline:
    pen = _Flattener(glyphs)
    glyphs[name].draw(pen)
    points: list[tuple[float, float]] = []
    following: list[int] = []
    for contour in pen.contours:
        start, end = len(points), len(points) + len(contour)
        points += contour
        following += [*range(start + 1, end), start]
    corners = np.array(points, dtype=np.float64) * (1.0, -1.0)  # fonts count y upwards
    low, high = corners.min(axis=0), corners.max(axis=0)
    return Outline((corners - (low + high) / 2) / (high - low).max(), np.array(following, dtype=np.intp))
