"""The built-in data set: characters of many typefaces, distorted and drawn on first use.

An image is a function of (character, index) and matplotlib's font files, the same on every machine: random numbers are
raw Philox uniforms, whose stream numpy keeps fixed, and the arithmetic is sums, products, quotients and square roots
of float64 arrays, element by element, which IEEE 754 defines to the last bit. There is no sine, exponential or matrix
product, whose last bits vary with the library. x counts to the right, y downwards, the image spans 0 to SIZE on both.
"""

from __future__ import annotations

import importlib.util
import io
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fontTools.pens.basePen import BasePen  # type: ignore[import-untyped]
from fontTools.ttLib import TTFont  # type: ignore[import-untyped]
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import convolve1d

from fsbench.data.catalog import EMBEDDED, dataset_info
from fsbench.errors import system_trouble
from fsbench.io.files import only_writer
from fsbench.reporter import Reporter

Floats = NDArray[np.float64]

FACES = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique",
    "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique",
    "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic",
    "STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta",
)  # fmt: skip
IMAGES_PER_CLASS, SIZE = 80, 32  # images; pixels per side
FINE = 4  # samples per pixel and axis when an outline is filled
_STEPS = (0.25, 0.5, 0.75, 1.0)  # ends of straight pieces of each line or curve, so that straight strokes can bend

Outline = tuple["Floats", "NDArray[np.intp]"]  # corners (P, 2), and the index of the next one on its contour (P,)


def ensure_glyphs(root: Path, reporter: Reporter) -> Path:
    """Return the data set's folder under the data root; draw it first if it is not there."""
    folder, scratch, split_of = root / EMBEDDED, root / f".{EMBEDDED}", dataset_info(EMBEDDED).split_of
    if folder.is_dir():
        return folder
    try:
        with (
            only_writer(root / f"{EMBEDDED}.json", reporter.warn),
            reporter.bar(f"drawing {EMBEDDED}", len(split_of) * IMAGES_PER_CLASS) as advance,
        ):
            if folder.is_dir():
                return folder
            shutil.rmtree(scratch, ignore_errors=True)  # of a run that was killed
            for name, images in zip(split_of, draw_classes(list(split_of)), strict=True):
                place = scratch / split_of[name] / name
                place.mkdir(parents=True)
                for index, image in enumerate(images):
                    Image.fromarray(image).save(place / f"{index:03d}.png", compress_level=1)
                advance(len(images))
            scratch.rename(folder)
    except OSError as error:
        raise system_trouble(f"Could not draw the glyphs data set into {folder}", error) from error
    return folder


def draw_classes(names: Sequence[str], count: int = IMAGES_PER_CLASS) -> Iterator[NDArray[np.uint8]]:
    """Draw classes one after the other (count, SIZE, SIZE, 3); clutter comes from the base classes only."""
    base = [_code_point(name) for name in dataset_info(EMBEDDED).classes("base")]
    outlines = read_outlines([*base, *map(_code_point, names)])
    clutter = [outline for character in base for outline in outlines[character]]
    for character in map(_code_point, names):
        yield np.stack([_draw(outlines[character], clutter, character, index) for index in range(count)])


def _code_point(name: str) -> int:
    return int(name.partition("_")[0], 16)


class _Flattener(BasePen):  # type: ignore[misc]
    """A pen that turns lines and quadratic curves into short straight pieces."""

    def __init__(self, glyphs: Any) -> None:
        super().__init__(glyphs)
        self.contours: list[list[tuple[float, float]]] = []

    def _moveTo(self, point: tuple[float, float]) -> None:  # noqa: N802 (named by fontTools)
        self.contours.append([point])

    def _lineTo(self, point: tuple[float, float]) -> None:  # noqa: N802
        (x0, y0), (x1, y1) = self._getCurrentPoint(), point
        self.contours[-1] += [(x0 + t * (x1 - x0), y0 + t * (y1 - y0)) for t in _STEPS]

    def _qCurveToOne(self, control: tuple[float, float], point: tuple[float, float]) -> None:  # noqa: N802
        (x0, y0), (xc, yc), (x1, y1) = self._getCurrentPoint(), control, point
        weights = [((1 - t) * (1 - t), 2 * t * (1 - t), t * t) for t in _STEPS]
        self.contours[-1] += [(a * x0 + b * xc + c * x1, a * y0 + b * yc + c * y1) for a, b, c in weights]

    def _closePath(self) -> None:  # noqa: N802
        self._lineTo(self.contours[-1][0])  # fonts leave the last side of a contour unsaid


def read_outlines(characters: Iterable[int]) -> dict[int, list[Outline]]:
    """For each character its outlines in the typefaces that have it, in the order of FACES.

    Outlines are centred, and the longer side of their box is 1.
    """
    outlines: dict[int, list[Outline]] = {character: [] for character in characters}
    folder = Path(importlib.util.find_spec("matplotlib").origin).parent / "mpl-data/fonts/ttf"  # type: ignore
    for face in FACES:
        font = TTFont(io.BytesIO((folder / f"{face}.ttf").read_bytes()), lazy=True)
        names, glyphs = font.getBestCmap(), font.getGlyphSet()
        for character in outlines.keys() & names.keys():
            pen = _Flattener(glyphs)
            glyphs[names[character]].draw(pen)
            ends = np.cumsum([len(contour) for contour in pen.contours])
            following = np.arange(1, ends[-1] + 1)
            following[ends - 1] = [0, *ends[:-1]]
            points = np.array([point for contour in pen.contours for point in contour]) * (1.0, -1.0)
            low, high = points.min(axis=0), points.max(axis=0)
            outlines[character].append(((points - (low + high) / 2) / (high - low).max(), following))
    return outlines


def _draw(faces: Sequence[Outline], clutter: Sequence[Outline], character: int, index: int) -> NDArray[np.uint8]:
    """Draw one image (SIZE, SIZE, 3): ground, fragments of other characters, the character, a bar or disc, noise."""
    random = np.random.Generator(np.random.Philox(key=np.array([0, (character << 32) | index], dtype=np.uint64)))
    ground, ink, contrast = _two_colours(random)
    canvas = _background(ground, random)
    for _ in range(1 + _below(random, 3)):
        canvas = _add_clutter(canvas, clutter[_below(random, len(clutter))], random)
    points, following = faces[_below(random, len(faces))]
    shape = _coverage(_restroke(_fill(_place(points, random), following), random))
    canvas += shape * (ink + _texture(random, _between(random, 0.0, 0.3)) - canvas)
    if random.random() < 0.5:
        canvas = _occlude(canvas, random)
    for axis in (0, 1, 0, 1):  # blur
        low, high = (np.take(canvas, np.arange(SIZE) + step, axis, mode="clip") for step in (-1, 1))
        canvas = canvas + _between(random, 0.0, 0.5) * ((low + high) / 2 - canvas)
    strength = _between(random, 0.0, 0.5) * contrast
    first, second, third, fourth = random.random((4, SIZE, SIZE, 3))
    noisy: Floats = canvas + (first + second + third + fourth - 2.0) * strength
    return np.floor(np.clip(noisy, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)


def _between(random: Generator, low: float, high: float) -> float:
    return low + (high - low) * random.random()


def _below(random: Generator, count: int) -> int:
    return int(random.random() * count)


def _colours(random: Generator, count: int) -> Floats:
    """Colours between grey and vivid (count, 3)."""
    return 0.5 * random.random((count, 1)) + 0.5 * random.random((count, 3))


def _two_colours(random: Generator) -> tuple[Floats, Floats, float]:
    """Colours (3,) of ground and ink, the ink mostly darker, and how much they differ in brightness."""
    colours = _colours(random, 17)
    brightness = 0.3 * colours[:, 0] + 0.6 * colours[:, 1] + 0.1 * colours[:, 2]
    difference = brightness - brightness[0]
    enough = np.flatnonzero(np.abs(difference) >= _between(random, 0.2, 0.4))
    other = enough[0] if len(enough) else np.abs(difference).argmax()
    light, dark = colours[[other, 0] if difference[other] > 0.0 else [0, other]]
    ground, ink = (light, dark) if random.random() < 0.9 else (dark, light)
    return ground, ink, abs(float(difference[other]))


def _background(ground: Floats, random: Generator) -> Floats:
    """Flat, graded or textured ground (SIZE, SIZE, 3)."""
    canvas, kind = np.broadcast_to(ground, (SIZE, SIZE, 3)), _below(random, 3)
    if kind == 1:
        slope = (random.random((2, 3)) - 0.5) * 0.5
        steps = ((np.arange(SIZE) + 0.5) / SIZE - 0.5)[:, None]
        canvas = canvas + (steps * slope[0])[:, None] + (steps * slope[1])[None, :]
    return canvas + _texture(random, _between(random, 0.25, 0.75)) if kind == 2 else canvas


def _texture(random: Generator, strength: float) -> Floats:
    """A cloudy field around 0 (SIZE, SIZE, 3): a cubic B-spline, read at the centres of all pixels."""
    count = 5 + _below(random, 8)
    control = (random.random((count, count, 3)) - 0.5) * strength
    first, weights = _spline_weights(np.arange(SIZE, dtype=np.float64) + 0.5, count)
    rows = sum((weights[i][:, None, None] * control[first + i] for i in range(4)), np.zeros(1))
    return sum((weights[j][:, None] * rows[:, first + j] for j in range(4)), np.zeros(1))


def _spline_weights(position: Floats, count: int) -> tuple[NDArray[np.intp], tuple[Floats, ...]]:
    """The first of the four control points around each position (P,) and the weights of the four."""
    scaled = np.clip(position * ((count - 3) / SIZE), 0.0, count - 3)
    first = np.minimum(scaled.astype(np.intp), count - 4)
    t = scaled - first
    s = 1.0 - t
    near, far = 4.0 - 6.0 * t * t + 3.0 * t * t * t, 4.0 - 6.0 * s * s + 3.0 * s * s * s
    return first, (s * s * s / 6.0, near / 6.0, far / 6.0, t * t * t / 6.0)


def _direction(half_tangent: float) -> tuple[float, float]:
    """Cosine and sine of an angle from the tangent of its half, without trigonometric functions."""
    square = half_tangent * half_tangent
    return (1.0 - square) / (1.0 + square), 2.0 * half_tangent / (1.0 + square)


def _place(points: Floats, random: Generator) -> Floats:
    """Slant, stretch, turn, tilt, bend and shift an outline into the frame of the image (P, 2)."""
    x, y = points.T
    x = x * _between(random, 0.7, 1.35) + y * _between(random, -0.35, 0.35)
    tilt = 1.0 + x * _between(random, -0.35, 0.35) + y * _between(random, -0.35, 0.35)
    cosine, sine = _direction(_between(random, -0.25, 0.25))  # up to 28 degrees either way
    size = _between(random, 15.0, 26.0)
    turned = np.stack(((cosine * x - sine * y) / tilt, (sine * x + cosine * y) / tilt), axis=1) * size
    centre = SIZE / 2 + (random.random(2) - 0.5) * 6.0
    bend = (random.random((5, 5, 2)) - 0.5) * _between(random, 4.0, 14.0)
    (column, across), (row, down) = (_spline_weights(turned[:, axis] + SIZE / 2, 5) for axis in (0, 1))
    corners = ((i, j, (down[i] * across[j])[:, None]) for i in range(4) for j in range(4))
    bent = sum((weight * bend[row + i, column + j] for i, j, weight in corners), np.zeros(1))
    return turned + centre + bent


def _fill(points: Floats, following: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which of FINE by FINE samples per pixel lie inside closed contours, by the non-zero winding rule."""

    def sample_after(position: Floats) -> NDArray[np.intp]:  # the first whose centre is at or after it on one axis
        return np.clip(np.ceil(position - 0.5), 0, side).astype(np.intp)

    side = FINE * SIZE
    x0, y0 = points[:, 0] * FINE, points[:, 1] * FINE
    x1, y1 = x0[following], y0[following]
    first, beyond = sample_after(np.minimum(y0, y1)), sample_after(np.maximum(y0, y1))  # lines that an edge meets
    edge = np.repeat(np.arange(len(points)), beyond - first)
    line = np.arange(len(edge)) - np.repeat(np.cumsum(beyond - first) - beyond, beyond - first)
    slope = (x1[edge] - x0[edge]) / (y1[edge] - y0[edge])
    column = sample_after(x0[edge] + (line + 0.5 - y0[edge]) * slope)
    turn = np.where(y0[edge] < y1[edge], 1.0, -1.0)
    turns = np.bincount(line * (side + 1) + column, turn, side * (side + 1)).reshape(side, side + 1)
    return np.not_equal(np.cumsum(turns, axis=1)[:, :side], 0.0)


def _restroke(filled: NDArray[np.bool_], random: Generator) -> NDArray[np.bool_]:
    """Thicken, thin or hollow the strokes by counting the filled samples in a window around each."""
    width = 2 * (1 + _below(random, 4)) + 1
    share, hollow = _between(random, 0.05, 0.6), random.random() < 0.12
    rows = convolve1d(filled.astype(np.int32), np.ones(width), axis=0, mode="constant")
    count = convolve1d(rows, np.ones(width), axis=1, mode="constant")
    stroke = count > share * width**2
    if hollow:
        stroke &= count < 0.8 * width**2
    return filled if stroke.sum() < 0.6 * filled.sum() else stroke  # fine strokes must not get lost


def _coverage(filled: NDArray[np.bool_]) -> Floats:
    """The filled share of each pixel (SIZE, SIZE, 1)."""
    share: Floats = filled.reshape(SIZE, FINE, SIZE, FINE, 1).mean(axis=(1, 3))
    return share


def _add_clutter(canvas: Floats, outline: Outline, random: Generator) -> Floats:
    """Let a fragment of another character show faintly near the border."""
    cosine, sine = _direction(_between(random, -1.0, 1.0))
    away = np.array(_direction(_between(random, -1.0, 1.0)))
    side = -1.0 if random.random() < 0.5 else 1.0
    away *= _between(random, 10.0, 19.0) * side
    (x, y), following = outline[0].T, outline[1]
    turned = np.stack((cosine * x - sine * y, sine * x + cosine * y), axis=1) * _between(random, 12.0, 30.0)
    share = _coverage(_fill(turned + SIZE / 2 + away, following)) * _between(random, 0.3, 0.8)
    covered: Floats = canvas + share * (_colours(random, 1) - canvas)
    return covered


def _occlude(canvas: Floats, random: Generator) -> Floats:
    """Cover a part of the image by a bar or a disc of some colour."""
    right, down = (random.random(2) - 0.5) * 24.0
    y, x = np.indices((SIZE, SIZE)) + 0.5 - SIZE / 2
    x, y = x - right, y - down
    if random.random() < 0.5:
        cosine, sine = _direction(_between(random, -1.0, 1.0))
        inside = _between(random, 1.0, 2.5) - np.abs(cosine * x + sine * y)
    else:
        inside = _between(random, 3.0, 6.0) - np.sqrt(x * x + y * y)
    share: Floats = np.clip(inside + 0.5, 0.0, 1.0)[:, :, None]
    return canvas + share * (_colours(random, 1) - canvas)
