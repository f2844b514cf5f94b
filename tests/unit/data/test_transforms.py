"""Transforms against hand-computed sizes, PIL's own resize and other functions of torchvision."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data.transforms_factory import create_transform
from torchvision.transforms import functional as reference
from torchvision.transforms import v2

from fsbench.backbones.families import FAMILIES
from fsbench.data.transforms import RECIPES, CropTransform, EvalTransform, crops_for, timm_transform, transform_for
from fsbench.errors import FsbenchError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PLAIN: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def photo(width: int, height: int, seed: int = 0) -> Image.Image:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


@pytest.mark.parametrize("name", RECIPES)
def test_published_transforms_equal_torchvision_v2(name: str) -> None:
    """The newer functions of torchvision, which differ in the last digit where bytes become floats."""
    for size in ((500, 375), (84, 84), (101, 97), (32, 32)):
        transform = transform_for(name, None, size[0])
        image = photo(*size)
        picture: Any = (
            image if transform.on == "pil" else v2.functional.to_dtype(v2.functional.to_image(image), scale=True)
        )
        wanted = [transform.size] if transform.resize == "shorter" else [transform.size, transform.size]
        resized = v2.functional.resize(picture, wanted, antialias=transform.antialias)
        cropped = v2.functional.to_image(v2.functional.center_crop(resized, [transform.crop, transform.crop]))
        scaled = v2.functional.to_dtype(cropped, torch.float32, scale=transform.on == "pil")
        expected = v2.functional.normalize(scaled, list(transform.mean), list(transform.std))
        found = transform(image)
        assert (found.shape, found.dtype) == ((3, transform.crop, transform.crop), torch.float32)
        torch.testing.assert_close(found, torch.as_tensor(expected), rtol=0, atol=2e-6)


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


def test_antialiasing_matters_when_shrinking_and_not_when_enlarging() -> None:
    plain = EvalTransform("shorter", 92, 84, **PLAIN, on="tensor", antialias=False)
    smooth = replace(plain, antialias=True)
    large, small = photo(500, 375), photo(32, 32)
    assert (plain(large) - smooth(large)).abs().max() > 0.1
    torch.testing.assert_close(plain(small), smooth(small), rtol=0, atol=1e-6)


def test_none_keeps_every_pixel_and_refuses_other_sizes() -> None:
    image = photo(84, 84)
    transform = EvalTransform("none", 84, 84, **PLAIN)
    assert (np.round(transform(image).numpy() * 255) == np.asarray(image).transpose(2, 0, 1)).all()
    with pytest.raises(FsbenchError, match="Expected images of 84×84 pixels, found 500×375"):
        transform(photo(500, 375))
    with pytest.raises(FsbenchError, match="crop from 1 to the size 92, found 93"):
        EvalTransform("exact", 92, 93, **PLAIN)


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
    ("size", "expected"), [((1000, 10), (0, 493, 10, 13)), ((10, 1000), (493, 0, 13, 10)), ((1, 1), (0, 0, 1, 1))]
)
def test_strips_get_the_largest_centred_crop(size: tuple[int, int], expected: tuple[int, ...]) -> None:
    assert replace(CROPS, area=(0.99, 1.0)).box(size, "a.jpg", 0) == expected


IMAGENET = (MEAN, STD)
EASY = ((125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255))
META = (
    (120.39586422 / 255, 115.59361427 / 255, 104.54012653 / 255),
    (70.68188272 / 255, 68.27635443 / 255, 72.54505529 / 255),
)
META_CIFAR = (
    (129.37731888 / 255, 124.10583864 / 255, 112.47758569 / 255),
    (68.20947949 / 255, 65.43124043 / 255, 70.45866994 / 255),
)
RFS_CIFAR = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))

# What each code base does at evaluation: resize mode, size, crop, resized on, antialias, normalisation.
PUBLISHED: list[tuple[str, str, str | None, tuple[Any, ...]]] = [
    ("rn12-easy", "mini", None, ("shorter", 92, 84, "tensor", False, EASY)),
    ("rn12-easy", "tiered", None, ("shorter", 92, 84, "tensor", False, EASY)),
    ("rn12-easy", "fc100", None, ("shorter", 92, 84, "tensor", False, IMAGENET)),
    ("rn12-easy", "cub", None, ("exact", 96, 84, "tensor", False, IMAGENET)),
    ("rn12-easy", "cub-feat", None, ("exact", 96, 84, "tensor", False, IMAGENET)),
    ("rn12-easy", "cifarfs", None, ("exact", 36, 32, "tensor", False, IMAGENET)),
    ("rn12-easy", "cub", "easy-antialias", ("exact", 96, 84, "tensor", True, IMAGENET)),
    ("rn12-metaoptnet", "mini", None, ("none", 84, 84, "pil", True, META)),
    ("rn12-metaoptnet", "tiered", None, ("none", 84, 84, "pil", True, META)),
    ("rn12-metaoptnet", "cifarfs", None, ("none", 32, 32, "pil", True, META_CIFAR)),
    ("rn12-metaoptnet", "fc100", None, ("none", 32, 32, "pil", True, META_CIFAR)),
    ("rn12-metaoptnet", "fc100", "rfs", ("none", 32, 32, "pil", True, RFS_CIFAR)),
    ("rn12-metaoptnet", "mini", "feat", ("shorter", 92, 84, "pil", True, META)),
    ("rn12-metaoptnet", "cub", None, ("shorter", 92, 84, "pil", True, META)),
    ("rn12-metaoptnet", "cub", "deepemd", ("exact", 92, 84, "pil", True, EASY)),
    ("rn12-metaoptnet", "mini", "libfewshot", ("exact", 96, 84, "pil", True, META)),
    ("rn18-simpleshot", "mini", None, ("shorter", 96, 84, "pil", True, IMAGENET)),
    ("rn18-simpleshot", "tiered", None, ("shorter", 96, 84, "pil", True, IMAGENET)),
    ("rn18-simpleshot", "CUB", None, ("shorter", 96, 84, "pil", True, IMAGENET)),
    ("rn18-simpleshot", "mini", "simpleshot-84", ("shorter", 84, 84, "pil", True, IMAGENET)),
    ("wrn-simpleshot", "mini", None, ("shorter", 96, 84, "pil", True, IMAGENET)),
    ("rn18-closerlook", "cub", None, ("exact", 257, 224, "pil", True, IMAGENET)),
    ("rn18-closerlook", "cifarfs", None, ("exact", 257, 224, "pil", True, IMAGENET)),
    ("rn18-simpleshot", "mini", "ptmap", ("exact", 96, 84, "pil", True, IMAGENET)),
    ("rn18-simpleshot", "cifarfs", "ptmap", ("exact", 36, 32, "pil", True, IMAGENET)),
    ("rn12-metabaseline", "mini", None, ("shorter", 80, 80, "pil", True, IMAGENET)),
    ("rn12-metabaseline", "tiered", None, ("shorter", 80, 80, "pil", True, IMAGENET)),
    ("rn18-easy", "mini", None, ("shorter", 92, 84, "tensor", False, EASY)),
    ("rn18-torchvision", "cub", None, ("shorter", 256, 224, "pil", True, IMAGENET)),
    ("wrn-easy", "cub", None, ("exact", 96, 84, "tensor", False, IMAGENET)),
    ("wrn-libfewshot", "mini", None, ("exact", 96, 84, "pil", True, META)),
    ("wrn-s2m2", "mini", None, ("exact", 92, 80, "pil", True, IMAGENET)),
    ("wrn-s2m2", "tiered", None, ("exact", 92, 80, "pil", True, IMAGENET)),
    ("wrn-s2m2", "cifar-fs", None, ("exact", 36, 32, "pil", True, IMAGENET)),
    ("wrn-s2m2", "cub", "ptmap", ("exact", 96, 84, "pil", True, IMAGENET)),
]


@pytest.mark.parametrize(("family", "dataset", "override", "expected"), PUBLISHED)
def test_published_transforms(family: str, dataset: str, override: str | None, expected: tuple[Any, ...]) -> None:
    found = transform_for(override or FAMILIES[family].transform, dataset)
    norm = (found.mean, found.std)
    assert (found.resize, found.size, found.crop, found.on, found.antialias, norm) == expected
    assert found.interpolation == "bilinear"


@pytest.mark.parametrize(
    ("family", "side", "expected"),
    [
        ("rn12-easy", None, ("shorter", 92, 84)),
        ("rn12-easy", 32, ("exact", 36, 32)),
        ("rn12-easy", 64, ("shorter", 92, 84)),
        ("rn12-metaoptnet", None, ("shorter", 92, 84)),
        ("rn12-metaoptnet", 28, ("exact", 36, 32)),
        ("wrn-s2m2", None, ("exact", 92, 80)),
        ("rn18-simpleshot", 32, ("exact", 36, 32)),
        ("rn18-closerlook", 32, ("exact", 257, 224)),
    ],
)
@pytest.mark.parametrize("dataset", ["holiday-photos", None])
def test_own_data(family: str, side: int | None, expected: tuple[Any, ...], dataset: str | None) -> None:
    found = transform_for(FAMILIES[family].transform, dataset, image_size=side)
    assert (found.resize, found.size, found.crop) == expected


@pytest.mark.parametrize("size", [(500, 375), (64, 64)])
@pytest.mark.parametrize(
    "config",
    [
        {"input_size": (3, 224, 224), "interpolation": "bicubic", "crop_pct": 0.9, "crop_mode": "center"},
        {"input_size": (3, 96, 96), "interpolation": "bilinear", "crop_pct": 0.875, "crop_mode": "center"},
        {"input_size": (3, 64, 64), "interpolation": "bicubic", "crop_pct": 1.0, "crop_mode": "squash"},
    ],
)
def test_timm_config_gives_the_transform_that_timm_builds(config: dict[str, Any], size: tuple[int, int]) -> None:
    config = {**config, "mean": (0.5, 0.4, 0.3), "std": (0.5, 0.6, 0.7)}
    image = photo(*size)
    expected = create_transform(**config)(image)
    torch.testing.assert_close(timm_transform(config)(image), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "change", [{"input_size": (3, 224, 192)}, {"input_size": (1, 28, 28)}, {"crop_mode": "border"}]
)
def test_unfit_timm_models_are_refused(change: dict[str, Any]) -> None:
    config = {"input_size": (3, 224, 224), "mean": (0, 0, 0), "std": (1, 1, 1), "interpolation": "bicubic"}
    with pytest.raises(FsbenchError, match="square RGB images"):
        timm_transform({**config, **change})


@pytest.mark.parametrize(
    ("dataset", "network_size", "expected"),
    [
        ("fc100", None, ("shorter", 92, 84)),
        ("fc100", 84, ("shorter", 92, 84)),
        ("fc100", 32, ("exact", 36, 32)),  # a network trained on 32 pixels sees 32 pixels
        ("mini", 42, ("shorter", 46, 42)),
        ("cub", 42, ("exact", 48, 42)),
        ("cifarfs", 32, ("exact", 36, 32)),
    ],
)
def test_the_side_that_a_network_was_trained_on(
    dataset: str, network_size: int | None, expected: tuple[Any, ...]
) -> None:
    found = transform_for("easy", dataset, network_size=network_size)
    assert (found.resize, found.size, found.crop) == expected


def test_crop_areas() -> None:
    for dataset, area, size in (("mini", 0.08, 84), ("cub-feat", 0.14, 84), ("cifarfs", 0.14, 32), ("own", 0.08, 84)):
        transform = transform_for("easy", dataset)
        crops = crops_for(transform, dataset, seed=7)
        assert (crops.area, crops.size, crops.seed, crops.antialias) == ((area, 1.0), size, 7, False)
        assert (crops.mean, crops.std) == (transform.mean, transform.std)
    with pytest.raises(FsbenchError, match="Did you mean 'ptmap'"):
        transform_for("ptmpa", "mini")
