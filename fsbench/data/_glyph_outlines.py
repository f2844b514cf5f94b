"""Outlines of characters, read from the font files that matplotlib carries.

Only the integer coordinates of the font files are used, never a font rasteriser, so that the shapes do not depend on
a FreeType build. Matplotlib itself is not imported: the folder of its fonts is found from the package's location.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fontTools.pens.basePen import BasePen
from fontTools.ttLib import TTFont, TTLibError

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
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


class Typefaces:
    """The typefaces of the data set, opened when first needed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fonts: dict[str, TTFont] = {}
        self._outlines: dict[tuple[int, str], Outline | None] = {}

    def outlines(self, code_point: int) -> list[Outline]:
        """The outlines of a character in every typeface that has it, in the order of ``FACES``."""
        found = [self._outline(code_point, face) for face in FACES]
        return [outline for outline in found if outline is not None]

    def _outline(self, code_point: int, face: str) -> Outline | None:
        key = (code_point, face)
        if key not in self._outlines:
            font = self._font(face)
            name = font.getBestCmap().get(code_point)
            self._outlines[key] = None if name is None else _flatten(font.getGlyphSet(), name)
        return self._outlines[key]

    def _font(self, face: str) -> TTFont:
        if face not in self._fonts:
            path = self._directory / f"{face}.ttf"
            try:
                self._fonts[face] = TTFont(path, lazy=True)
            except (OSError, TTLibError) as error:
                raise FsbenchError(
                    f"The glyphs data set is drawn from matplotlib's fonts; {path} could not be read: {error}.",
                    "Reinstall matplotlib from PyPI: pip install --force-reinstall matplotlib",
                ) from error
        return self._fonts[face]


def find_typefaces() -> Typefaces:
    """The typefaces in the installed matplotlib, found without importing it."""
    spec = importlib.util.find_spec("matplotlib")
    if spec is None or spec.origin is None:
        raise FsbenchError(
            "The glyphs data set is drawn from the fonts of matplotlib, which is not installed.",
            "pip install matplotlib",
        )
    return Typefaces(Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf")


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
