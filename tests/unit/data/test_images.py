from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from fsbench.data.images import is_image, open_image
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from pathlib import Path


def save(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)  # type: ignore[arg-type]
    return path


def pixels(path: Path) -> np.ndarray:
    image = open_image(path)
    assert image.mode == "RGB"
    return np.asarray(image)


def test_grey_is_repeated(tmp_path: Path) -> None:
    ramp = np.arange(64, dtype=np.uint8).reshape(8, 8)
    found = pixels(save(Image.fromarray(ramp), tmp_path / "grey.png"))
    assert (found == ramp[:, :, None]).all()


def test_colour_is_kept(tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert (pixels(save(Image.fromarray(array), tmp_path / "a.png")) == array).all()


def test_cmyk_jpeg_becomes_rgb(tmp_path: Path) -> None:
    path = save(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), tmp_path / "a.jpg", quality=100)
    red, green, blue = pixels(path)[4, 4]
    assert red > 240
    assert green < 15
    assert blue < 15


def test_alpha_is_dropped_and_the_colour_below_kept(tmp_path: Path) -> None:
    path = save(Image.new("RGBA", (4, 4), (200, 100, 50, 0)), tmp_path / "a.png")
    assert (pixels(path) == (200, 100, 50)).all()


def test_grey_with_alpha(tmp_path: Path) -> None:
    assert (pixels(save(Image.new("LA", (4, 4), (77, 3)), tmp_path / "a.png")) == 77).all()


@pytest.mark.parametrize("transparency", [0, b"\x00\x80"])
def test_palette_with_transparency_reads_without_warning(tmp_path: Path, transparency: int | bytes) -> None:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([1, 2, 3, 40, 50, 60])
    path = save(image, tmp_path / "a.png", transparency=transparency)
    assert (pixels(path) == (40, 50, 60)).all()


def test_one_bit_images(tmp_path: Path) -> None:
    assert (pixels(save(Image.new("1", (4, 4), 1), tmp_path / "a.png")) == 255).all()


@pytest.mark.parametrize("suffix", ["png", "tiff", "pgm"])
def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 257, 300, 32896], [65535, 65400, 1, 128 * 257]], dtype=np.uint16)
    path = tmp_path / f"a.{suffix}"
    if suffix == "pgm":  # older Pillows read it and cannot write it
        path.write_bytes(b"P5 4 2 65535\n" + values.astype(">u2").tobytes())
    else:
        save(Image.fromarray(values), path)
    found = pixels(path)
    assert found[:, :, 0].tolist() == [[0, 1, 1, 128], [255, 254, 0, 128]]


def test_big_endian_sixteen_bit_grey(tmp_path: Path) -> None:
    values = np.array([[0, 25700]], dtype=">u2")
    assert pixels(save(Image.fromarray(values), tmp_path / "a.tif"))[0, :, 1].tolist() == [0, 100]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_thirty_two_bit_images_are_refused(tmp_path: Path, dtype: type) -> None:
    path = save(Image.fromarray(np.ones((4, 4), dtype=dtype)), tmp_path / "a.tif")
    with pytest.raises(FsbenchError, match=r"a\.tif.*32-bit"):
        open_image(path)


def test_exif_orientation_is_ignored(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(Image.new("RGB", (12, 5)), tmp_path / "a.jpg", exif=exif)
    assert open_image(path).size == (12, 5)


def test_wrong_suffix_does_not_matter(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (3, 3), (9, 8, 7)).save(buffer, "png")
    (tmp_path / "a.JPEG").write_bytes(buffer.getvalue())
    assert (pixels(tmp_path / "a.JPEG") == (9, 8, 7)).all()


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "bmp", "tif", "webp"])
def test_truncated_file_is_named(tmp_path: Path, suffix: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    path = save(Image.fromarray(noise), tmp_path / f"half.{suffix}")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(FsbenchError, match=rf"half\.{suffix}"):
        open_image(path)


@pytest.mark.parametrize("content", [b"", b"no image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"])
def test_what_is_no_image_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.jpg").write_bytes(content)
    with pytest.raises(FsbenchError, match=r"x\.jpg"):
        open_image(tmp_path / "x.jpg")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match=r"gone\.jpg is missing"):
        open_image(tmp_path / "gone.jpg")


@pytest.mark.parametrize("limit", [399, 150])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    path = save(Image.new("RGB", (20, 20)), tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    assert open_image(path).size == (20, 20)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(FsbenchError, match=rf"at most {limit} pixels, found more in .*bomb\.png"):
        open_image(path)


def test_first_picture_of_a_two_image_jpeg(tmp_path: Path) -> None:
    first, second = Image.new("RGB", (4, 4), (200, 200, 200)), Image.new("RGB", (4, 4))
    path = save(first, tmp_path / "a.jpg", format="MPO", save_all=True, append_images=[second])
    assert (pixels(path) == 200).all()


def test_first_frame_of_an_animation(tmp_path: Path) -> None:
    first, second = Image.new("P", (4, 4), 0), Image.new("P", (4, 4), 1)
    for image in (first, second):
        image.putpalette([5, 6, 7, 40, 50, 60])
    path = save(first, tmp_path / "a.gif", save_all=True, append_images=[second])
    assert (pixels(path) == (5, 6, 7)).all()


@pytest.mark.parametrize("name", ["a.jpg", "b.JPEG", "c.png", "n01_1.JPEG", "x.webp"])
def test_image_names(name: str) -> None:
    assert is_image(name)


@pytest.mark.parametrize("name", [".DS_Store", "._a.jpg", "Thumbs.db", "a.txt", "a", "a.jpg.part", "desktop.ini"])
def test_other_names(name: str) -> None:
    assert not is_image(name)
