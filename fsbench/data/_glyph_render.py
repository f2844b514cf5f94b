"""Draw one image of the glyphs data set: a pure function of (seed, character, index) and the font files.

The pixels are meant to be the same on every machine. Random numbers are raw Philox uniforms, whose stream
numpy keeps fixed. The arithmetic is sums, products, quotients, square roots and comparisons of float64
arrays, element by element, which IEEE 754 defines to the last bit. There is no sine, exponential or matrix
product, whose last bits vary with the library.

Points and pixels share one frame: x to the right, y downwards, the image spanning 0 to ``SIZE`` on both axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fsbench.data.glyphs import Outline

    Floats = NDArray[np.float64]

SIZE = 32  # pixels per side
FINE = 4  # samples per pixel and axis when an outline is filled
GRID = 5  # control points per axis of the elastic deformation
BEFORE = (0, *range(SIZE - 1))  # neighbours of each pixel; at the border the pixel itself
AFTER = (*range(1, SIZE), SIZE - 1)


class Draws:
    """The random numbers of one image, all of them made of raw uniforms."""

    def __init__(self, seed: int, code_point: int, index: int) -> None:
        key = np.array([seed, (code_point << 32) | index], dtype=np.uint64)
        self._generator = np.random.Generator(np.random.Philox(key=key))

    def uniform(self, low: float, high: float) -> float:
        """One number between two bounds."""
        return low + (high - low) * self._generator.random()

    def array(self, *shape: int) -> Floats:
        """An array of numbers between 0 and 1."""
        return self._generator.random(shape)

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self._generator.random() < probability

    def below(self, count: int) -> int:
        """A whole number from 0 to ``count - 1``."""
        return int(self._generator.random() * count)


def draw_glyph(
    faces: Sequence[Outline], clutter: Sequence[Outline], *, seed: int, code_point: int, index: int
) -> NDArray[np.uint8]:
    """Draw one image (SIZE, SIZE, 3).

    Args:
        faces: The character in every typeface that has it.
        clutter: Outlines of which fragments may appear in the background.
        seed: The random seed of the data set.
        code_point: The character.
        index: The number of the image within its class.
    """
    draws = Draws(seed, code_point, index)
    ground, ink, contrast = _two_colours(draws)
    canvas = _background(ground, draws)
    for _ in range(1 + draws.below(3)):
        canvas = _add_clutter(canvas, clutter[draws.below(len(clutter))], draws)
    glyph = faces[draws.below(len(faces))]
    shape = _coverage(_restroke(_fill(_place(glyph, draws), glyph.following), draws))
    canvas = _blend(canvas, shape, ink + _texture(draws, draws.uniform(0.0, 0.3)))
    if draws.chance(0.5):
        canvas = _occlude(canvas, draws)
    canvas = _blur(canvas, draws) + _noise(draws, draws.uniform(0.0, 0.5) * contrast)
    return np.floor(np.clip(canvas, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)


def _place(outline: Outline, draws: Draws) -> Floats:
    """Slant, stretch, turn, tilt, bend and shift an outline into the frame of the image (P, 2)."""
    x, y = outline.points[:, 0], outline.points[:, 1]
    x = x * draws.uniform(0.7, 1.35) + y * draws.uniform(-0.35, 0.35)
    tilt = 1.0 + x * draws.uniform(-0.35, 0.35) + y * draws.uniform(-0.35, 0.35)
    cosine, sine = _direction(draws.uniform(-0.25, 0.25))  # up to 28 degrees either way
    size = draws.uniform(15.0, 26.0)
    turned = np.stack(((cosine * x - sine * y) / tilt, (sine * x + cosine * y) / tilt), axis=1) * size
    centre = SIZE / 2 + (draws.array(2) - 0.5) * 6.0
    bend = (draws.array(GRID, GRID, 2) - 0.5) * draws.uniform(4.0, 14.0)
    return turned + centre + _spline(bend, turned + SIZE / 2)


def _direction(half_tangent: float) -> tuple[float, float]:
    """Cosine and sine of an angle from the tangent of its half, without trigonometric functions."""
    square = half_tangent * half_tangent
    return (1.0 - square) / (1.0 + square), 2.0 * half_tangent / (1.0 + square)


def _spline(control: Floats, points: Floats) -> Floats:
    """Read a smooth field, the cubic B-spline of a square of control values spanning the image, at points.

    Args:
        control: Control values (C, C, channels), rows from top to bottom.
        points: Where to read (P, 2); beyond the image the values of its border continue.

    Returns:
        Values (P, channels).
    """
    column, across = _spline_weights(points[:, 0], len(control))
    row, down = _spline_weights(points[:, 1], len(control))
    value = np.zeros((len(points), control.shape[2]))
    for i in range(4):
        for j in range(4):
            value += (down[i] * across[j])[:, None] * control[row + i, column + j]
    return value


def _spline_everywhere(control: Floats) -> Floats:
    """Read the field of ``_spline`` at the centres of all pixels (SIZE, SIZE, channels)."""
    first, weights = _spline_weights(np.arange(SIZE, dtype=np.float64) + 0.5, len(control))
    rows = np.zeros((SIZE, *control.shape[1:]))  # (SIZE, C, channels)
    for i in range(4):
        rows += weights[i][:, None, None] * control[first + i]
    value = np.zeros((SIZE, SIZE, control.shape[2]))
    for j in range(4):
        value += weights[j][:, None] * rows[:, first + j]
    return value


def _spline_weights(position: Floats, count: int) -> tuple[NDArray[np.intp], tuple[Floats, ...]]:
    """The first of the four control points around each position (P,) and the weights of the four."""
    cells = count - 3
    scaled = np.clip(position * (cells / SIZE), 0.0, cells)
    first = np.minimum(scaled.astype(np.intp), cells - 1)
    t = scaled - first
    s = 1.0 - t
    near, far = 4.0 - 6.0 * t * t + 3.0 * t * t * t, 4.0 - 6.0 * s * s + 3.0 * s * s * s
    return first, (s * s * s / 6.0, near / 6.0, far / 6.0, t * t * t / 6.0)


def _fill(points: Floats, following: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Fill closed contours, given as in `Outline`, by the non-zero winding rule.

    Returns:
        Whether each sample is inside, FINE by FINE samples per pixel (FINE·SIZE, FINE·SIZE).
    """
    side = FINE * SIZE
    x0, y0 = points[:, 0] * FINE, points[:, 1] * FINE
    x1, y1 = x0[following], y0[following]
    first = _sample_after(np.minimum(y0, y1))  # the first line that an edge meets
    beyond = _sample_after(np.maximum(y0, y1))  # the first line that it no longer meets
    edge = np.repeat(np.arange(len(points)), beyond - first)
    line = np.arange(len(edge)) - np.repeat(np.cumsum(beyond - first) - beyond, beyond - first)
    slope = (x1[edge] - x0[edge]) / (y1[edge] - y0[edge])
    column = _sample_after(x0[edge] + (line + 0.5 - y0[edge]) * slope)
    turn = np.where(y0[edge] < y1[edge], 1.0, -1.0)
    turns = np.bincount(line * (side + 1) + column, turn, side * (side + 1)).reshape(side, side + 1)
    return np.not_equal(np.cumsum(turns, axis=1)[:, :side], 0.0)


def _sample_after(position: Floats) -> NDArray[np.intp]:
    """The first sample whose centre lies at or after a position on one axis, at most FINE·SIZE."""
    return np.clip(np.ceil(position - 0.5), 0, FINE * SIZE).astype(np.intp)


def _restroke(filled: NDArray[np.bool_], draws: Draws) -> NDArray[np.bool_]:
    """Thicken, thin or hollow the strokes by counting the filled samples in a window around each."""
    reach = 1 + draws.below(4)
    share, hollow = draws.uniform(0.05, 0.6), draws.chance(0.12)
    area = (2 * reach + 1) ** 2
    count = _window_count(filled, reach)
    stroke = count > share * area
    if hollow:
        stroke &= count < 0.8 * area
    fine_strokes_lost = stroke.sum() < 0.6 * filled.sum()
    return filled if fine_strokes_lost else stroke


def _window_count(filled: NDArray[np.bool_], reach: int) -> NDArray[np.int32]:
    """How many samples are filled in the square window of the given reach around each sample."""
    side, width = len(filled), 2 * reach + 1
    sums = np.zeros((side + width, side + width), dtype=np.int32)
    sums[reach + 1 : reach + 1 + side, reach + 1 : reach + 1 + side] = filled
    np.cumsum(sums, axis=0, out=sums)
    rows = sums[width:] - sums[:-width]
    np.cumsum(rows, axis=1, out=rows)
    return rows[:, width:] - rows[:, :-width]


def _coverage(filled: NDArray[np.bool_]) -> Floats:
    """The filled share of each pixel (SIZE, SIZE)."""
    counts = np.zeros((SIZE, SIZE), dtype=np.uint8)
    for row in range(FINE):
        for column in range(FINE):
            counts += filled[row::FINE, column::FINE]
    return counts / np.float64(FINE * FINE)


def _blend(canvas: Floats, share: Floats, colour: Floats) -> Floats:
    """Lay a colour over the canvas where the share (SIZE, SIZE) says so."""
    return canvas + share[:, :, None] * (colour - canvas)


def _two_colours(draws: Draws) -> tuple[Floats, Floats, float]:
    """Colours (3,) of ground and ink, the ink mostly darker, and how much they differ in brightness."""
    first, *others = _colours(draws, 17)
    difference = np.array([_brightness(other) - _brightness(first) for other in others])
    enough = np.flatnonzero(np.abs(difference) >= draws.uniform(0.2, 0.4))
    chosen = enough[0] if len(enough) else int(np.abs(difference).argmax())
    light, dark = (others[chosen], first) if difference[chosen] > 0.0 else (first, others[chosen])
    ground, ink = (light, dark) if draws.chance(0.9) else (dark, light)
    return ground, ink, abs(float(difference[chosen]))


def _colours(draws: Draws, count: int) -> Floats:
    """Colours between grey and vivid (count, 3)."""
    return 0.5 * draws.array(count, 1) + 0.5 * draws.array(count, 3)


def _brightness(colour: Floats) -> float:
    return float(0.3 * colour[0] + 0.6 * colour[1] + 0.1 * colour[2])


def _background(ground: Floats, draws: Draws) -> Floats:
    """Flat, graded or textured ground (SIZE, SIZE, 3)."""
    canvas = np.broadcast_to(ground, (SIZE, SIZE, 3))
    kind = draws.below(3)
    if kind == 1:
        slope = (draws.array(2, 3) - 0.5) * 0.5
        steps = ((np.arange(SIZE) + 0.5) / SIZE - 0.5)[:, None]
        canvas = canvas + (steps * slope[0])[:, None] + (steps * slope[1])[None, :]
    if kind == 2:
        canvas = canvas + _texture(draws, draws.uniform(0.25, 0.75))
    return canvas


def _texture(draws: Draws, strength: float) -> Floats:
    """A cloudy field around 0 (SIZE, SIZE, 3)."""
    return _spline_everywhere((draws.array(*[5 + draws.below(8)] * 2, 3) - 0.5) * strength)


def _pixels() -> Floats:
    """The centres of all pixels, row by row (SIZE·SIZE, 2)."""
    row, column = np.divmod(np.arange(SIZE * SIZE), SIZE)
    return np.stack((column + 0.5, row + 0.5), axis=1)


def _add_clutter(canvas: Floats, outline: Outline, draws: Draws) -> Floats:
    """Let a fragment of another character show faintly near the border."""
    cosine, sine = _direction(draws.uniform(-1.0, 1.0))
    away_cosine, away_sine = _direction(draws.uniform(-1.0, 1.0))
    side = -1.0 if draws.chance(0.5) else 1.0
    distance = draws.uniform(10.0, 19.0) * side
    x, y = outline.points[:, 0], outline.points[:, 1]
    turned = np.stack((cosine * x - sine * y, sine * x + cosine * y), axis=1) * draws.uniform(12.0, 30.0)
    points = turned + SIZE / 2 + np.array([away_cosine * distance, away_sine * distance])
    share = _coverage(_fill(points, outline.following)) * draws.uniform(0.3, 0.8)
    return _blend(canvas, share, _colours(draws, 1)[0])


def _occlude(canvas: Floats, draws: Draws) -> Floats:
    """Cover a part of the image by a bar or a disc of some colour."""
    pixels = _pixels() - SIZE / 2 - (draws.array(2) - 0.5) * 24.0
    x, y = pixels[:, 0], pixels[:, 1]
    if draws.chance(0.5):
        cosine, sine = _direction(draws.uniform(-1.0, 1.0))
        inside = draws.uniform(1.0, 2.5) - np.abs(cosine * x + sine * y)
    else:
        inside = draws.uniform(3.0, 6.0) - np.sqrt(x * x + y * y)
    share = np.clip(inside + 0.5, 0.0, 1.0).reshape(SIZE, SIZE)
    return _blend(canvas, share, _colours(draws, 1)[0])


def _blur(canvas: Floats, draws: Draws) -> Floats:
    """Smooth both axes, twice, by a random amount each time."""
    for axis in (0, 1, 0, 1):
        low, high = canvas.take(BEFORE, axis), canvas.take(AFTER, axis)
        canvas = canvas + draws.uniform(0.0, 0.5) * ((low + high) / 2 - canvas)
    return canvas


def _noise(draws: Draws, strength: float) -> Floats:
    """Bell-shaped noise around 0, the sum of four uniforms (SIZE, SIZE, 3)."""
    first, second, third, fourth = draws.array(4, SIZE, SIZE, 3)
    noise: Floats = (first + second + third + fourth - 2.0) * strength
    return noise
