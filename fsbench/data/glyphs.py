"""The built-in data set: characters of many typefaces, rendered on first use, and the outlines they come from."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fontTools.pens.basePen import BasePen  # type: ignore[import-untyped]
from fontTools.ttLib import TTFont, TTLibError  # type: ignore[import-untyped]
from PIL import Image

from fsbench.data._glyph_render import SIZE, draw_glyph
from fsbench.data.catalog import EMBEDDED, dataset_info
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray


FACES = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique",
    "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique",
    "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic",
    "STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta",
)  # fmt: skip
PIECES = 4  # straight pieces per line or curve of the outline, so that straight strokes can bend too


@dataclass(frozen=True)
class Outline:
    """The closed contours of one character in one typeface."""

    # Corners (P, 2), x to the right and y downwards, centred; the longer side of the box is 1.
    points: NDArray[np.float64]
    following: NDArray[np.intp]  # for each corner the index of the next one on its contour (P,)


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
    """For each character its outlines in the typefaces that have it, in the order of ``FACES``."""
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
            "The glyphs data set needs the fonts of matplotlib, which is not installed.", "pip install matplotlib"
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


VERSION = 1  # rises whenever a pixel changes
SEED = 0
IMAGES_PER_CLASS = 80
MANIFEST = "glyphs.json"
SCRATCH_PREFIX = ".glyphs-"
SCRATCH_LIFETIME = 86400.0  # seconds after which a scratch folder must belong to a run that was killed
OWN_FILE = re.compile(r"(base|val|novel)/[0-9a-f]{4,6}_[0-9a-z_]+/[0-9]{3}\.png|glyphs\.json")


def glyph_classes() -> dict[str, list[str]]:
    """The class folders of each split, in order."""
    return {split: list(classes) for split, classes in dataset_info(EMBEDDED).splits.items()}


def ensure_glyphs(root: Path, *, progress: Callable[[int, int], None] | None = None) -> Path:
    """Make sure that the data set is under the data root, complete and unaltered, and draw it if it is not.

    The folder, which is returned, appears under its name only when it is complete. A damaged one is replaced; one
    that holds files which fsbench did not write is left alone and reported. Progress is told by the number of images
    drawn so far and in total.
    """
    folder = root / EMBEDDED
    if _is_intact(folder):
        return folder
    try:
        _refuse_foreign_files(folder)
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root)
        with tempfile.TemporaryDirectory("", SCRATCH_PREFIX, root, ignore_cleanup_errors=True) as scratch:
            fresh = Path(scratch) / EMBEDDED
            _write(fresh, progress)
            _swap_in(fresh, folder, Path(scratch))
    except OSError as error:
        raise FsbenchError(
            f"The glyphs data set could not be written to {folder}: {error}.",
            "Free some space (about 35 MB) or choose another data root.",
        ) from error
    return folder


def _draw(names: list[str], count: int) -> Iterator[NDArray[np.uint8]]:
    """Draw classes one after the other (count, SIZE, SIZE, 3); clutter comes from the base classes only."""
    base = [_code_point(name) for name in glyph_classes()["base"]]
    outlines = read_outlines([*base, *map(_code_point, names)])
    clutter = [outline for code_point in base for outline in outlines[code_point]]
    for code_point in map(_code_point, names):
        faces = outlines[code_point]
        yield np.stack([draw_glyph(faces, clutter, seed=SEED, code_point=code_point, index=i) for i in range(count)])


def _code_point(name: str) -> int:
    return int(name.partition("_")[0], 16)


def _write(folder: Path, progress: Callable[[int, int], None] | None) -> None:
    """Draw everything into a new folder; the manifest comes last."""
    places = [f"{split}/{name}" for split, names in glyph_classes().items() for name in names]
    total = len(places) * IMAGES_PER_CLASS
    pixels = hashlib.sha256()
    drawn = _draw([place.partition("/")[2] for place in places], IMAGES_PER_CLASS)
    for done, (place, images) in enumerate(zip(places, drawn, strict=True), start=1):
        (folder / place).mkdir(parents=True)
        pixels.update(images.tobytes())
        for index, image in enumerate(images):
            Image.fromarray(image).save(folder / place / f"{index:03d}.png", compress_level=1)
        if progress is not None:
            progress(done * IMAGES_PER_CLASS, total)
    manifest = {**_identity(), "pixels": pixels.hexdigest(), "files": _digest(folder, _expected_images())}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _identity() -> dict[str, Any]:
    return {"name": EMBEDDED, "version": VERSION, "seed": SEED, "images": IMAGES_PER_CLASS, "size": SIZE}


def _expected_images() -> list[str]:
    return [
        f"{split}/{name}/{index:03d}.png"
        for split, names in glyph_classes().items()
        for name in names
        for index in range(IMAGES_PER_CLASS)
    ]


def _found_files(folder: Path) -> list[str]:
    """The files in a folder, relative to it, without hidden ones."""
    found = []
    for place, folders, names in os.walk(folder):  # which passes over what another process has just moved
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name).relative_to(folder).as_posix() for name in names if not name.startswith(".")]
    return found


def _digest(folder: Path, names: list[str]) -> str:
    """The sha256 of the names and bytes of files."""
    digest = hashlib.sha256()
    for name in names:
        content = (folder / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _is_intact(folder: Path) -> bool:
    """Whether the folder holds exactly what its manifest says and what this version would draw."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        images = _expected_images()
        return (
            isinstance(manifest, dict)
            and {key: manifest.get(key) for key in _identity()} == _identity()
            and set(_found_files(folder)) == {*images, MANIFEST}
            and _digest(folder, images) == manifest.get("files")
        )
    except (OSError, ValueError):
        return False


def _refuse_foreign_files(folder: Path) -> None:
    """Stop before anything is replaced that fsbench did not write."""
    if folder.exists() and not folder.is_dir():
        raise FsbenchError(f"Expected a folder for the glyphs data set, found the file {folder}.", "Move it.")
    foreign = [name for name in _found_files(folder) if not OWN_FILE.fullmatch(name)]
    if foreign:
        raise FsbenchError(
            f"{folder} is not the glyphs data set as fsbench draws it, and it holds {len(foreign)} file(s) "
            f"that fsbench did not write, such as {min(foreign)}.",
            "Move these files away, or choose another data root; the data set is then drawn again.",
        )


def _sweep(root: Path) -> None:
    """Remove the scratch folders that killed runs have left."""
    for scratch in root.glob(f"{SCRATCH_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):  # a process that has just ended removes its own
            if time.time() - scratch.stat().st_mtime > SCRATCH_LIFETIME:
                shutil.rmtree(scratch, ignore_errors=True)


def _swap_in(fresh: Path, folder: Path, scratch: Path) -> None:
    """Give the fresh folder its name, unless another process was faster; move a damaged one aside."""
    for attempt in range(10):
        try:
            fresh.rename(folder)
            return
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        if _is_intact(folder):
            return
        try:
            folder.rename(scratch / f"damaged-{attempt}")
        except FileNotFoundError:
            continue  # another process has just moved it
    raise OSError(errno.EBUSY, "other processes keep writing to it", str(folder))
