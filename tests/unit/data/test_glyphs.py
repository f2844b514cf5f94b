"""The built-in data set: its classes, its pixels, and how it gets onto the disk."""

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.interpolate import BSpline

from fsbench.data import glyphs
from fsbench.data.catalog import dataset_info
from fsbench.reporter import Reporter

INFO = dataset_info("glyphs")
SAMPLE_DIGESTS = {
    "0041_latin_capital_letter_a": "f254a1d43d7ab057",
    "00a3_pound_sign": "7592fc40818cd0c4",
    "039e_greek_capital_letter_xi": "a6f3c9a35c384a7b",
    "0409_cyrillic_capital_letter_lje": "a0a78423f7b2c960",
    "2207_nabla": "c93c0bf591830def",
}
ALL_DIGEST = "52f715696231b2e758586b22f883655c26796fe0f193c2d5bdbd08eac0b73011"
QUIET = Reporter(silent=True)


def test_fill_agrees_with_winding_angles() -> None:
    generator = np.random.default_rng(0)
    points = generator.uniform(-4.0, 36.0, size=(14, 2))  # two self-crossing polygons that leave the frame
    following = np.array([1, 2, 3, 4, 5, 6, 0, 8, 9, 10, 11, 12, 13, 7])
    filled = glyphs._fill(points, following)
    centres = (np.arange(128) + 0.5) / 4
    x, y = np.meshgrid(centres, centres)
    angle = np.zeros_like(x)
    for here, there in zip(points, points[following], strict=True):
        turn = np.arctan2(there[1] - y, there[0] - x) - np.arctan2(here[1] - y, here[0] - x)
        angle += (turn + math.pi) % (2 * math.pi) - math.pi
    np.testing.assert_array_equal(filled, np.abs(angle) > 1.0)
    assert 0.1 < filled.mean() < 0.9


@pytest.mark.parametrize("count", [4, 5, 9])
def test_spline_weights_agree_with_scipy(count: int) -> None:
    position, cells = np.random.default_rng(count).uniform(0.0, 32.0, size=50), count - 3
    expected = BSpline.design_matrix(position * cells / 32, np.arange(-3, cells + 4, dtype=float), 3).toarray()
    first, weights = glyphs._spline_weights(position, count)
    for number, weight in enumerate(weights):
        np.testing.assert_allclose(weight, expected[np.arange(50), first + number], atol=1e-12)


def test_images_are_the_pinned_ones() -> None:
    for name, images in zip(SAMPLE_DIGESTS, glyphs.draw_classes(list(SAMPLE_DIGESTS), 4), strict=True):
        assert images.shape == (4, 32, 32, 3)
        assert hashlib.sha256(images.tobytes()).hexdigest()[:16] == SAMPLE_DIGESTS[name]


@pytest.mark.slow
def test_the_whole_data_set_is_the_pinned_one() -> None:
    digest = hashlib.sha256()
    for images in glyphs.draw_classes(list(INFO.split_of)):
        digest.update(images.tobytes())
    assert digest.hexdigest() == ALL_DIGEST


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Draw one plain image per class, without fonts; the classes drawn so far."""
    drawn: list[str] = []

    def draw(names: list[str]) -> Iterator[NDArray[np.uint8]]:
        for name in names:
            drawn.append(name)
            yield np.full((1, 32, 32, 3), len(name), np.uint8)

    monkeypatch.setattr(glyphs, "draw_classes", draw)
    return drawn


def test_is_drawn_once_into_split_and_class_folders(tmp_path: Path, plain: list[str]) -> None:
    (tmp_path / "new" / ".glyphs" / "base").mkdir(parents=True)  # left by a killed run
    for _ in range(2):
        folder = glyphs.ensure_glyphs(tmp_path / "new", QUIET)
    assert folder == tmp_path / "new" / "glyphs"
    assert sorted(plain) == sorted(INFO.split_of)
    assert {path.parent.relative_to(folder).as_posix() for path in folder.rglob("*.png")} == {
        f"{split}/{name}" for name, split in INFO.split_of.items()
    }
    with Image.open(folder / "val" / INFO.classes("val")[0] / "000.png") as image:
        assert (image.mode, image.size, image.getpixel((5, 5))) == ("RGB", (32, 32), (len(INFO.classes("val")[0]),) * 3)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["glyphs"]
