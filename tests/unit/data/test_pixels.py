"""Images: every mode becomes RGB, and decoded pixels are those of the transform, from a file made once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fsbench.data import pixels as module
from fsbench.data.dataset import BrokenImageError, FolderImages, ImageSplit, OutOfReachError, content_hash, open_image
from fsbench.data.pixels import decode, normalised
from fsbench.data.scan import OwnData
from fsbench.data.transforms import RECIPES, transform_for
from fsbench.errors import FsbenchError
from fsbench.features.image_hashes import hashed
from fsbench.reporter import Reporter
from tests.images import SPLITS, write_images
from tests.watching import watch

QUIET = Reporter(silent=True)
SMALL = transform_for("simpleshot", None, 20)  # by PIL to 36, centre 32


@pytest.fixture
def split(tmp_path: Path) -> ImageSplit:
    return OwnData(write_images(tmp_path / "photos", SPLITS)).load().splits["novel"]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of images of every set that is decoded as a whole."""
    return watch(monkeypatch, module, "_decode", lambda split, *rest: len(split))


def only_file(cache: Path) -> Path:
    (path,) = cache.iterdir()
    return path


@pytest.mark.parametrize("name", RECIPES)
def test_pixels_are_those_of_the_transform(name: str) -> None:
    for side, size in ((20, (20, 31)), (None, (120, 97)), (32, (32, 32))):
        transform = transform_for(name, None, side)
        image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8))
        expected = transform(image)
        found = normalised(torch.from_numpy(transform.pixels(image)), transform)
        tolerance = 0 if transform.on == "pil" else 0.5001 / 255 / min(transform.std)
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def test_rows_are_in_the_order_of_the_split(split: ImageSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 5)  # images of a block
    for cache in (None, tmp_path / "cache"):
        found = decode(split, SMALL, cache, QUIET).pixels
        assert found.shape == (12, 32, 32, 3)
        for row in range(12):
            batch = torch.from_numpy(found)[None, [row]]
            assert torch.equal(normalised(batch, SMALL)[0, 0], SMALL(split.open(row)))


def test_a_file_is_made_once_and_not_written_into(split: ImageSplit, tmp_path: Path, decoded: list[int]) -> None:
    cache = tmp_path / "cache"
    first = decode(split, SMALL, cache, QUIET).pixels
    copy = np.array(first)
    torch.from_numpy(first)[0] = 77  # a warning would be an error
    again = decode(split, replace(SMALL, mean=(0, 0, 0)), cache, QUIET).pixels  # no part of the geometry
    assert decoded == [12]
    assert np.array_equal(copy, again)
    assert np.array_equal(np.load(only_file(cache))["pixels"], copy)  # a plain npy file for others
    other = replace(SMALL, crop=30)
    assert np.array_equal(decode(split, other, cache, QUIET).pixels[3], other.pixels(split.open(3)))
    assert len(list(cache.iterdir())) == 2


def test_other_images_with_the_same_names_and_sizes_have_a_file_of_their_own(tmp_path: Path) -> None:
    def save(seed: int) -> ImageSplit:
        root = write_images(tmp_path / "plain", {"novel": ["a", "b"]}, seed=seed, ending="bmp")  # as many bytes
        return hashed(OwnData(root).load(), None, QUIET).splits["novel"]

    first = np.array(decode(save(0), SMALL, tmp_path / "cache", QUIET).pixels)
    assert not np.array_equal(first, decode(save(1), SMALL, tmp_path / "cache", QUIET).pixels)


def test_a_damaged_file_is_made_again(split: ImageSplit, tmp_path: Path, decoded: list[int]) -> None:
    expected = np.array(decode(split, SMALL, tmp_path / "cache", QUIET).pixels)
    file = only_file(tmp_path / "cache")
    content = file.read_bytes()
    file.write_bytes(content[:5000] + bytes([content[5000] ^ 1]) + content[5001:])
    assert np.array_equal(decode(split, SMALL, tmp_path / "cache", QUIET).pixels, expected)
    assert decoded == [12, 12]
    assert only_file(tmp_path / "cache").read_bytes() == content


def test_no_place_for_the_file(split: ImageSplit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cache").write_text("no folder")
    found = decode(split, SMALL, tmp_path / "cache", Reporter(quiet=True)).pixels
    assert np.array_equal(found, decode(split, SMALL, None, QUIET).pixels)
    assert "The decoded images of photos novel are not stored." in " ".join(capsys.readouterr().err.split())


def test_a_broken_image_is_named_and_leaves_nothing(split: ImageSplit, tmp_path: Path) -> None:
    (tmp_path / "photos" / "novel" / "n1" / "002.png").write_bytes(b"\x89PNG no more")
    for cache in (None, tmp_path / "cache"):
        with pytest.raises(FsbenchError, match=r"n1/002\.png"):
            decode(split, SMALL, cache, QUIET)
    assert list((tmp_path / "cache").iterdir()) == []


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
