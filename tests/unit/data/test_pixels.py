"""Decoded images: the same pixels as the transform's, from a file that is made once and again when it is damaged."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fsbench.data import pixels as module
from fsbench.data.dataset import ImageSplit
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
