from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fsbench.data.dataset import BrokenImageError, FolderImages, ImageSplit, OutOfReachError, content_hash, open_image
from fsbench.errors import FsbenchError


def save(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)  # type: ignore[arg-type]
    return path


PALETTE = Image.new("P", (4, 4), 1)
PALETTE.putpalette([1, 2, 3, 40, 50, 60])


@pytest.mark.parametrize(
    ("image", "name", "options", "colour"),
    [
        (Image.new("L", (4, 4), 77), "grey.png", {}, (77, 77, 77)),
        (Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "cmyk.jpg", {"quality": 100}, (254, 0, 0)),
        (Image.new("RGBA", (4, 4), (200, 100, 50, 0)), "alpha.png", {}, (200, 100, 50)),
        (PALETTE, "palette.png", {"transparency": b"\x00\x80"}, (40, 50, 60)),
    ],
)
def test_every_mode_becomes_rgb(tmp_path: Path, image: Image.Image, name: str, options: Any, colour: Any) -> None:
    """Transparency is dropped without a warning, and the colour below is kept."""
    opened = open_image(save(image, tmp_path / name, **options))
    assert opened.mode == "RGB"
    assert np.abs(np.asarray(opened).astype(int) - colour).max() <= (3 if name.endswith("jpg") else 0)


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_sixteen_bit_grey_is_scaled_and_thirty_two_bit_refused(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 257, 300, 32896], [65535, 65400, 1, 128 * 257]], dtype=np.uint16)
    found = np.asarray(open_image(save(Image.fromarray(values), tmp_path / f"a.{suffix}")))
    assert found[:, :, 0].tolist() == [[0, 1, 1, 128], [255, 254, 0, 128]]
    path = save(Image.fromarray(np.ones((4, 4), dtype=np.float32)), tmp_path / "a.tif")
    with pytest.raises(FsbenchError, match=r"a\.tif.*32-bit"):
        open_image(path)


def test_exif_orientation_is_ignored(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(Image.new("RGB", (12, 5)), tmp_path / "a.jpg", exif=exif)
    assert open_image(path).size == (12, 5)


def test_what_is_no_image_is_named(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    half = save(Image.fromarray(noise), tmp_path / "x.jpg").read_bytes()[:2000]
    for content in (half, b"", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"):
        (tmp_path / "x.jpg").write_bytes(content)
        with pytest.raises(BrokenImageError, match=r"x\.jpg"):
            open_image(tmp_path / "x.jpg")
    with pytest.raises(OutOfReachError, match=r"gone\.jpg is missing"):
        open_image(tmp_path / "gone.jpg")


def test_an_image_that_changes_after_it_was_listed_is_noticed(tmp_path: Path) -> None:
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for shade, path in enumerate(paths):
        Image.new("RGB", (4, 4), (shade, 0, 0)).save(path)
    hashes = tuple(content_hash(path.read_bytes()) for path in paths)
    images, reader = ("a.png", "b.png"), FolderImages(tmp_path)
    split = ImageSplit("novel", ("x",), np.zeros(2, np.int64), images, reader, "own", hashes)
    paths[0].write_bytes(paths[1].read_bytes())
    assert split.open(1).getpixel((0, 0)) == (1, 0, 0)
    with pytest.raises(OutOfReachError, match=r"a\.png of own has changed since it was listed"):
        split.open(0)
