from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image

from fsbench.data import pixels as module
from fsbench.data.pixels import (
    decode_into_file,
    decode_into_memory,
    normalised,
    open_pixels,
    pixel_cache,
    stored_pixels,
)
from fsbench.data.published_transforms import transform_for, transform_names
from fsbench.data.scan import find_datasets, load_own, other_folders
from fsbench.data.transforms import EvalTransform
from fsbench.errors import FsbenchError
from fsbench.reporter import Reporter
from tests.images import SPLITS, write_images

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.data.dataset import ImageSplit

QUIET = Reporter(silent=True)
SMALL = transform_for("simpleshot", None, 20)  # by PIL to 36, centre 32


def novel(root: Path, seed: int = 0) -> ImageSplit:
    return load_own(write_images(root / "photos", SPLITS, seed=seed)).splits["novel"]


@pytest.fixture
def split(tmp_path: Path) -> ImageSplit:
    return novel(tmp_path)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of images of every set that is decoded as a whole."""
    calls: list[int] = []
    original = module._decode

    def counting(split: ImageSplit, *rest: Any) -> Any:
        calls.append(len(split))
        return original(split, *rest)

    monkeypatch.setattr(module, "_decode", counting)
    return calls


def only_file(cache: Path) -> Path:
    (found,) = cache.iterdir()
    return found


@pytest.mark.parametrize("name", transform_names())
@pytest.mark.parametrize("side", [20, None])
def test_pixels_are_those_of_the_transform(tmp_path: Path, name: str, side: int | None) -> None:
    transform = transform_for(name, None, side)
    for size in ((20, 31), (120, 97), (32, 32)):
        array = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
        image = Image.fromarray(array)
        expected = transform(image)
        found = normalised(torch.from_numpy(transform.pixels(image)), transform)
        assert found.dtype == torch.float32
        if transform.on == "pil":
            assert torch.equal(found, expected)
        else:
            step = 0.5001 / 255 / min(transform.std)
            assert (found - expected).abs().max() <= step


def test_tensors_beyond_black_and_white_are_clipped() -> None:
    transform = EvalTransform("exact", 40, 40, (0, 0, 0), (1, 1, 1), "bicubic", "tensor", antialias=False)
    edge = np.zeros((8, 8, 3), dtype=np.uint8)
    edge[:, 4:] = 255
    assert transform(Image.fromarray(edge)).max() > 1
    found = transform.pixels(Image.fromarray(edge))
    assert found[0, 0, 0] == 0
    assert (found[:, -1] == 255).all()
    assert (np.diff(found[0, :, 0].astype(int)).cumsum()[15:25] >= 0).all()  # nothing wraps around from 255 to 0


def test_rows_are_in_the_order_of_the_split(split: ImageSplit, tmp_path: Path) -> None:
    found = open_pixels(split, SMALL, tmp_path / "cache", QUIET)
    assert found.shape == (12, 32, 32, 3)
    for row in range(12):
        batch = torch.from_numpy(found)[None, [row]]
        assert torch.equal(normalised(batch, SMALL)[0, 0], SMALL(split.open(row)))


def test_blocks_follow_one_another(split: ImageSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = open_pixels(split, SMALL, None, QUIET)
    monkeypatch.setattr(module, "_AT_ONCE", 5)
    assert np.array_equal(open_pixels(split, SMALL, None, QUIET), expected)
    assert np.array_equal(open_pixels(split, SMALL, tmp_path / "cache", QUIET), expected)


def test_a_file_is_made_once_and_mapped(split: ImageSplit, tmp_path: Path, decoded: list[int]) -> None:
    cache = tmp_path / "cache"
    assert stored_pixels(split, SMALL, cache) is None
    first = open_pixels(split, SMALL, cache, QUIET)
    again = open_pixels(split, replace(SMALL, mean=(0, 0, 0)), cache, QUIET)  # no part of the geometry
    stored = stored_pixels(split, SMALL, cache)
    assert decoded == [12]
    assert isinstance(again, np.memmap)
    assert stored is not None
    assert np.array_equal(first, again)
    assert np.array_equal(first, stored)
    assert only_file(cache).name.startswith("photos-novel-32px-")
    assert np.array_equal(np.load(only_file(cache)), first)  # a plain npy file for others


def test_a_large_file_is_mentioned(
    split: ImageSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_pixels(split, SMALL, tmp_path / "cache", Reporter())
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(module, "_WORTH_A_NOTE", 12 * 32 * 32 * 3)
    open_pixels(split, SMALL, tmp_path / "other", Reporter())
    assert f"Keeping the decoded images in {only_file(tmp_path / 'other')} (0 MB)." in capsys.readouterr().err


def test_writing_into_the_pixels_leaves_the_file_alone(split: ImageSplit, tmp_path: Path, decoded: list[int]) -> None:
    tensor = torch.from_numpy(open_pixels(split, SMALL, tmp_path / "cache", QUIET))  # a warning would be an error
    tensor[0] = 77
    assert not (open_pixels(split, SMALL, tmp_path / "cache", QUIET)[0] == 77).all()
    assert decoded == [12]


def test_sizes_are_those_on_disk(tmp_path: Path, decoded: list[int]) -> None:
    root = write_images(tmp_path / "photos", {"novel": ["a", "b"]}, images=1)
    Image.new("RGB", (30, 50)).save(root / "novel" / "b" / "001.png")
    split = load_own(root).splits["novel"]
    expected = decode_into_memory(split, SMALL, QUIET)
    assert expected.sizes.tolist() == [[20, 20], [20, 20], [30, 50]]
    for _ in range(2):
        found = decode_into_file(split, SMALL, tmp_path / "cache", QUIET)
        assert found is not None
        assert np.array_equal(found.sizes, expected.sizes)
        assert np.array_equal(found.pixels, expected.pixels)
    assert decoded == [3, 3]


@pytest.mark.parametrize("change", [{"size": 40}, {"crop": 30}, {"interpolation": "bicubic"}, {"on": "tensor"}])
def test_another_geometry_is_another_file(split: ImageSplit, tmp_path: Path, change: dict[str, Any]) -> None:
    cache = tmp_path / "cache"
    open_pixels(split, SMALL, cache, QUIET)
    other = replace(SMALL, **change)
    assert stored_pixels(split, other, cache) is None
    found = open_pixels(split, other, cache, QUIET)
    assert np.array_equal(found[3], other.pixels(split.open(3)))
    assert len(list(cache.iterdir())) == 2


def test_more_images_are_another_file(tmp_path: Path) -> None:
    open_pixels(novel(tmp_path), SMALL, tmp_path / "cache", QUIET)
    Image.new("RGB", (20, 20)).save(tmp_path / "photos" / "novel" / "n0" / "extra.png")
    split = load_own(tmp_path / "photos").splits["novel"]
    assert len(open_pixels(split, SMALL, tmp_path / "cache", QUIET)) == 13


def test_other_images_with_the_same_names_and_sizes_are_noticed(tmp_path: Path, decoded: list[int]) -> None:
    def save(seed: int) -> ImageSplit:
        for name in ("a", "b"):
            (tmp_path / "plain" / "novel" / name).mkdir(parents=True, exist_ok=True)
            array = np.random.default_rng(seed).integers(0, 256, (9, 9, 3), dtype=np.uint8)
            Image.fromarray(array).save(tmp_path / "plain" / "novel" / name / "0.bmp")  # always as many bytes
        return load_own(tmp_path / "plain").splits["novel"]

    first = np.array(open_pixels(save(0), SMALL, tmp_path / "cache", QUIET))
    second = open_pixels(save(1), SMALL, tmp_path / "cache", QUIET)
    assert not np.array_equal(first, second)
    assert decoded == [2, 2]
    only_file(tmp_path / "cache")


def flip_a_bit(content: bytes) -> bytes:
    return content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]


@pytest.mark.parametrize(
    "damage",
    [
        flip_a_bit,
        lambda content: content[:-1],
        lambda content: content[:9000],
        lambda content: b"",
        lambda content: b"\x80\x04" + content[2:],
        lambda content: content.replace(b"(12, 32", b"(12, 31"),
    ],
    ids=["bit", "end", "half", "empty", "start", "header"],
)
def test_a_damaged_file_is_made_again(split: ImageSplit, tmp_path: Path, decoded: list[int], damage: Any) -> None:
    expected = np.array(open_pixels(split, SMALL, tmp_path / "cache", QUIET))
    file = only_file(tmp_path / "cache")
    content = file.read_bytes()
    file.write_bytes(damage(content))
    assert stored_pixels(split, SMALL, tmp_path / "cache") is None
    assert np.array_equal(open_pixels(split, SMALL, tmp_path / "cache", QUIET), expected)
    assert decoded == [12, 12]
    assert only_file(tmp_path / "cache").read_bytes() == content


def test_without_a_cache_nothing_is_written(split: ImageSplit, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    open_pixels(split, SMALL, None, QUIET)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("trouble", ["file in the way", "full"])
def test_no_place_for_the_file(
    split: ImageSplit,
    tmp_path: Path,
    trouble: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cache = tmp_path / "cache"
    if trouble == "full":
        monkeypatch.setattr(shutil, "disk_usage", lambda place: type("Usage", (), {"free": 1000}))
    else:
        cache.write_text("no folder")
    found = open_pixels(split, SMALL, cache, Reporter(quiet=True))
    assert np.array_equal(found, open_pixels(split, SMALL, None, QUIET))
    said = " ".join(capsys.readouterr().err.split())
    assert "The decoded images of photos novel are not kept." in said
    assert "is a file" in said or "needs 0 MB for decoded images" in said


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_serves_what_it_has(split: ImageSplit, tmp_path: Path, decoded: list[int]) -> None:
    cache = tmp_path / "cache"
    open_pixels(split, SMALL, cache, QUIET)
    cache.chmod(0o500)
    try:
        assert isinstance(open_pixels(split, SMALL, cache, QUIET), np.memmap)
        assert decoded == [12]
        open_pixels(split, replace(SMALL, crop=30), cache, QUIET)
    finally:
        cache.chmod(0o700)
    only_file(cache)


def test_a_broken_image_is_named_and_leaves_nothing(split: ImageSplit, tmp_path: Path) -> None:
    (tmp_path / "photos" / "novel" / "n1" / "002.png").write_bytes(b"\x89PNG no more")
    for cache in (None, tmp_path / "cache"):
        with pytest.raises(FsbenchError, match=r"n1/002\.png"):
            open_pixels(split, SMALL, cache, QUIET)
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_image_of_a_refused_size_is_named(split: ImageSplit) -> None:
    with pytest.raises(FsbenchError, match=r"novel/n0/000\.png cannot be used: Expected images of 84×84 pixels"):
        open_pixels(split, EvalTransform("none", 84, 84, (0, 0, 0), (1, 1, 1)), None, QUIET)


def test_the_cache_is_no_data_set(tmp_path: Path) -> None:
    split = novel(tmp_path)
    open_pixels(split, SMALL, pixel_cache(tmp_path), QUIET)
    assert pixel_cache(tmp_path).is_dir()
    assert find_datasets(tmp_path) == []
    assert other_folders(tmp_path) == ["photos"]
    open_pixels(split, SMALL, pixel_cache(tmp_path / "photos"), QUIET)
    again = load_own(tmp_path / "photos")
    assert len(again.splits["novel"]) == len(split)
    assert again.ignored == ()
