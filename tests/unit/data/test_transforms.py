"""Transforms against hand-computed sizes, PIL's own resize and torchvision's functions."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as reference

from fsbench.data.transforms import CropTransform, EvalTransform
from fsbench.errors import FsbenchError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PLAIN: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
SIZES = [(500, 375), (375, 500), (84, 84), (32, 32), (101, 97), (120, 333)]


def photo(width: int, height: int, seed: int = 0) -> Image.Image:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("resize", "target", "crop"), [("shorter", 96, 84), ("exact", 92, 80), ("exact", 36, 32)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_pil_transform_equals_torchvision(
    size: tuple[int, int], resize: Any, target: int, crop: int, interpolation: Any
) -> None:
    image = photo(*size)
    found = EvalTransform(resize, target, crop, MEAN, STD, interpolation)(image)
    wanted = target if resize == "shorter" else [target, target]
    resized = reference.resize(image, wanted, InterpolationMode(interpolation))
    tensor = reference.to_tensor(reference.center_crop(resized, [crop, crop]))
    expected = reference.normalize(tensor, list(MEAN), list(STD))
    assert found.shape == (3, crop, crop)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("resize", "target", "crop"), [("shorter", 92, 84), ("exact", 96, 84), ("exact", 36, 32)])
@pytest.mark.parametrize("antialias", [False, True])
def test_tensor_transform_equals_torchvision(
    size: tuple[int, int], resize: Any, target: int, crop: int, antialias: bool
) -> None:
    image = photo(*size)
    found = EvalTransform(resize, target, crop, MEAN, STD, on="tensor", antialias=antialias)(image)
    wanted = target if resize == "shorter" else [target, target]
    resized = reference.resize(reference.to_tensor(image), wanted, antialias=antialias)
    expected = reference.normalize(reference.center_crop(resized, [crop, crop]), list(MEAN), list(STD))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_shorter_side_by_hand() -> None:
    """375×500 with shorter side 96 becomes 96×128; a crop of 84 starts at 6 and at 22."""
    image = photo(375, 500)
    resized = np.asarray(image.resize((96, 128), Image.Resampling.BILINEAR))
    expected = resized[22 : 22 + 84, 6 : 6 + 84]
    found = EvalTransform("shorter", 96, 84, **PLAIN)(image)
    assert (np.round(found.numpy() * 255).astype(np.uint8) == expected.transpose(2, 0, 1)).all()


def test_longer_side_is_cut_off_not_rounded() -> None:
    """92·500/333 = 138.14 gives 138; 92·499/333 = 137.86 gives 137, crop offset round(26.5) = 26."""
    image = photo(499, 333)
    resized = np.asarray(image.resize((137, 92), Image.Resampling.BILINEAR))
    found = EvalTransform("shorter", 92, 84, **PLAIN)(image)
    expected = resized[4:88, 26:110]
    assert (np.round(found.numpy() * 255).astype(np.uint8) == expected.transpose(2, 0, 1)).all()
    upright = photo(333, 499)
    expected = np.asarray(upright.resize((92, 137), Image.Resampling.BILINEAR))[26:110, 4:88]
    found = EvalTransform("shorter", 92, 84, **PLAIN)(upright)
    assert (np.round(found.numpy() * 255).astype(np.uint8) == expected.transpose(2, 0, 1)).all()


def test_exact_ignores_the_aspect_ratio() -> None:
    image = photo(200, 50)
    resized = np.asarray(image.resize((92, 92), Image.Resampling.BILINEAR))[6:86, 6:86]
    found = EvalTransform("exact", 92, 80, **PLAIN)(image)
    assert (np.round(found.numpy() * 255).astype(np.uint8) == resized.transpose(2, 0, 1)).all()


def test_antialiasing_matters_when_shrinking_and_not_when_enlarging() -> None:
    plain = EvalTransform("shorter", 92, 84, **PLAIN, on="tensor", antialias=False)
    smooth = replace(plain, antialias=True)
    large, small = photo(500, 375), photo(32, 32)
    assert (plain(large) - smooth(large)).abs().max() > 0.1
    torch.testing.assert_close(plain(small), smooth(small), rtol=0, atol=1e-6)


def test_tensor_without_antialias_is_two_point_interpolation() -> None:
    """Halving a row without antialiasing averages the two middle pixels: 4 → 1 takes pixels 1 and 2 only."""
    row = np.zeros((4, 4, 3), np.uint8)
    row[:, 1], row[:, 2] = 100, 200
    found = EvalTransform("exact", 1, 1, **PLAIN, on="tensor", antialias=False)(Image.fromarray(row))
    assert found.flatten().tolist() == pytest.approx([150 / 255] * 3)


def test_normalisation_by_hand() -> None:
    image = Image.new("RGB", (84, 84), (255, 0, 51))
    found = EvalTransform("none", 84, 84, MEAN, STD)(image)
    expected = [(1 - 0.485) / 0.229, (0 - 0.456) / 0.224, (0.2 - 0.406) / 0.225]
    assert found[:, 10, 10].tolist() == pytest.approx(expected, abs=1e-6)


def test_none_keeps_every_pixel_and_refuses_other_sizes() -> None:
    image = photo(84, 84)
    transform = EvalTransform("none", 84, 84, **PLAIN)
    assert (np.round(transform(image).numpy() * 255) == np.asarray(image).transpose(2, 0, 1)).all()
    with pytest.raises(FsbenchError, match="Expected images of 84×84 pixels, found 500×375"):
        transform(photo(500, 375))


def test_endless_strip_is_refused() -> None:
    with pytest.raises(FsbenchError, match="1×30000"):
        EvalTransform("shorter", 96, 84, **PLAIN)(Image.new("RGB", (1, 30000)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": 93}, "crop from 1 to the size 92, found 93"),
        ({"crop": 0}, "crop from 1"),
        ({"interpolation": "bilinaer"}, "Did you mean 'bilinear'"),
        ({"interpolation": "lanczos", "on": "tensor"}, "cannot be resized"),
        ({"antialias": False}, "always resized with antialiasing"),
    ],
)
def test_impossible_transforms_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FsbenchError, match=message):
        EvalTransform(**{"resize": "exact", "size": 92, "crop": 84, **PLAIN, **options})


def test_description_is_stable_plain_data() -> None:
    transform = EvalTransform("shorter", 92, 84, MEAN, STD, on="tensor", antialias=False)
    text = json.dumps(transform.describe())
    assert text == (
        '{"resize": "shorter", "size": 92, "crop": 84, "mean": [0.485, 0.456, 0.406], '
        '"std": [0.229, 0.224, 0.225], "interpolation": "bilinear", "on": "tensor", "antialias": false}'
    )


CROPS = CropTransform(84, (0.08, 1.0), MEAN, STD, seed=3)


def test_crop_is_the_resized_box() -> None:
    image = photo(200, 150)
    found = CROPS(image, "a/b.jpg", crops=4)
    assert found.shape == (4, 3, 84, 84)
    for number in range(4):
        top, left, height, width = CROPS.box((200, 150), "a/b.jpg", number)
        tensor = reference.resized_crop(reference.to_tensor(image), top, left, height, width, [84, 84], antialias=False)
        expected = reference.normalize(tensor, list(MEAN), list(STD))
        torch.testing.assert_close(found[number], expected, rtol=0, atol=1e-6)


def test_crops_do_not_depend_on_how_many_or_where_they_start() -> None:
    image = photo(100, 90)
    whole = CROPS(image, "x.jpg", crops=6)
    parts = torch.cat([CROPS(image, "x.jpg", crops=2, start=start) for start in (0, 2, 4)])
    assert torch.equal(whole, parts)


def test_crops_differ_between_names_numbers_and_seeds() -> None:
    boxes = {
        CROPS.box((500, 375), "a.jpg", 0),
        CROPS.box((500, 375), "b.jpg", 0),
        CROPS.box((500, 375), "a.jpg", 1),
        replace(CROPS, seed=4).box((500, 375), "a.jpg", 0),
        replace(CROPS, seed=3).box((500, 375), "a.jpg", 0),
    }
    assert len(boxes) == 4


def test_boxes_never_change() -> None:
    """Pinned: features of an interrupted extraction must fit the rest."""
    assert [CropTransform(84, (0.08, 1.0), MEAN, STD).box((500, 375), "n01/x.jpg", i) for i in range(3)] == [
        (17, 19, 354, 390),
        (15, 32, 346, 362),
        (50, 54, 259, 236),
    ]


def test_boxes_stay_inside_and_cover_the_admitted_range() -> None:
    boxes = np.array([CROPS.box((500, 375), "a.jpg", number) for number in range(2000)])
    top, left, height, width = boxes.T
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= 375).all()
    assert (left + width <= 500).all()
    area, ratio = height * width / (500 * 375), width / height
    assert 0.079 < area.min() < 0.09
    assert area.max() > 0.9
    assert ratio.min() == pytest.approx(3 / 4, abs=0.02)
    assert ratio.max() == pytest.approx(4 / 3, abs=0.02)
    assert (top == 0).any()
    assert (top + height == 375).any()


def test_boxes_are_distributed_like_those_of_torchvision() -> None:
    from torchvision.transforms import RandomResizedCrop

    torch.manual_seed(0)
    blank = torch.zeros(3, 60, 100)
    theirs = np.array(
        [RandomResizedCrop.get_params(blank, [0.14, 1.0], [3 / 4, 4 / 3]) for _ in range(3000)], dtype=float
    )
    crops = replace(CROPS, area=(0.14, 1.0))
    ours = np.array([crops.box((100, 60), f"{i}.jpg", 0) for i in range(3000)], dtype=float)
    error = np.sqrt(theirs.var(0) / 3000 + ours.var(0) / 3000)
    assert (np.abs(theirs.mean(0) - ours.mean(0)) < 4 * error).all()
    assert ours.std(0) == pytest.approx(theirs.std(0), rel=0.06)


@pytest.mark.parametrize(
    ("size", "expected"),
    [((1000, 10), (0, 493, 10, 13)), ((10, 1000), (493, 0, 13, 10)), ((1, 1), (0, 0, 1, 1))],
)
def test_strips_get_the_largest_centred_crop(size: tuple[int, int], expected: tuple[int, ...]) -> None:
    assert replace(CROPS, area=(0.99, 1.0)).box(size, "a.jpg", 0) == expected


def test_crop_description_is_plain_data() -> None:
    content = json.loads(json.dumps(CROPS.describe()))
    assert content["area"] == [0.08, 1.0]
    assert content["seed"] == 3
    assert content["ratio"] == [3 / 4, 4 / 3]
    assert math.isclose(sum(content["mean"]), sum(MEAN))
