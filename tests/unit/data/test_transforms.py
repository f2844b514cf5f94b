"""Transforms against hand-computed sizes, PIL's own resize and other functions of torchvision."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data.transforms_factory import create_transform
from torchvision.transforms import RandomResizedCrop, v2
from torchvision.transforms import functional as reference

from fsbench.data.transforms import RECIPES, CropTransform, EvalTransform, crops_for, timm_transform, transform_for
from fsbench.errors import FsbenchError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PLAIN: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def photo(width: int, height: int, seed: int = 0) -> Image.Image:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


@pytest.mark.parametrize("name", RECIPES)
def test_published_transforms_equal_torchvision_v2(name: str) -> None:
    """The newer functions of torchvision, which differ in the last digit where bytes become floats.

    92·499/333 = 137.86: the longer side is cut off, not rounded, to 137.
    """
    for size in ((499, 333), (84, 84), (97, 101), (32, 32)):
        transform = transform_for(name, None, size[0])
        image = photo(*size)
        tensor = v2.functional.to_dtype(v2.functional.to_image(image), scale=True)
        picture: Any = image if transform.on == "pil" else tensor
        wanted = [transform.size] if transform.resize == "shorter" else [transform.size, transform.size]
        resized = v2.functional.resize(picture, wanted, antialias=transform.antialias)
        cropped = v2.functional.to_image(v2.functional.center_crop(resized, [transform.crop, transform.crop]))
        scaled = v2.functional.to_dtype(cropped, torch.float32, scale=transform.on == "pil")
        expected = v2.functional.normalize(scaled, list(transform.mean), list(transform.std))
        found = transform(image)
        assert (found.shape, found.dtype) == ((3, transform.crop, transform.crop), torch.float32)
        torch.testing.assert_close(found, torch.as_tensor(expected), rtol=0, atol=2e-6)


def test_none_keeps_every_pixel_and_refuses_other_sizes() -> None:
    image = photo(84, 84)
    transform = EvalTransform("none", 84, 84, **PLAIN)
    assert (np.round(transform(image).numpy() * 255) == np.asarray(image).transpose(2, 0, 1)).all()
    with pytest.raises(FsbenchError, match="Expected images of 84×84 pixels, found 500×375"):
        transform(photo(500, 375))


CROPS = CropTransform(84, (0.08, 1.0), MEAN, STD, seed=3)


def test_crops_are_the_resized_boxes_however_many_and_wherever_they_start() -> None:
    image = photo(200, 150)
    found = CROPS(image, "a/b.jpg", crops=4)
    assert found.shape == (4, 3, 84, 84)
    for number in range(4):
        top, left, height, width = CROPS.box((200, 150), "a/b.jpg", number)
        tensor = reference.resized_crop(reference.to_tensor(image), top, left, height, width, [84, 84], antialias=False)
        expected = reference.normalize(tensor, list(MEAN), list(STD))
        torch.testing.assert_close(found[number], expected, rtol=0, atol=1e-6)
    parts = [CROPS(image, "a/b.jpg", crops=2, start=start) for start in (0, 2)]
    assert torch.equal(found, torch.cat(parts))


def test_boxes_differ_between_names_numbers_and_seeds_and_never_change() -> None:
    boxes = {
        CROPS.box((500, 375), "a.jpg", 0),
        CROPS.box((500, 375), "b.jpg", 0),
        CROPS.box((500, 375), "a.jpg", 1),
        replace(CROPS, seed=4).box((500, 375), "a.jpg", 0),
        replace(CROPS, seed=3).box((500, 375), "a.jpg", 0),
    }
    assert len(boxes) == 4
    pinned = [(17, 19, 354, 390), (15, 32, 346, 362), (50, 54, 259, 236)]  # an interrupted extraction must fit the rest
    assert [replace(CROPS, seed=0).box((500, 375), "n01/x.jpg", number) for number in range(3)] == pinned
    top, left, height, width = np.array([CROPS.box((500, 375), "a.jpg", number) for number in range(2000)]).T
    assert min(top.min(), left.min()) >= 0
    assert (top + height).max() <= 375
    assert (left + width).max() <= 500


def test_boxes_are_distributed_like_those_of_torchvision() -> None:
    torch.manual_seed(0)
    blank = torch.zeros(3, 60, 100)
    drawn = [RandomResizedCrop.get_params(blank, [0.14, 1.0], [3 / 4, 4 / 3]) for _ in range(3000)]
    theirs = np.array(drawn, dtype=float)
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
PUBLISHED: dict[tuple[str, str], tuple[Any, ...]] = {
    ("easy", "mini"): ("shorter", 92, 84, "tensor", False, EASY),
    ("easy", "fc100"): ("shorter", 92, 84, "tensor", False, IMAGENET),
    ("easy", "cub-feat"): ("exact", 96, 84, "tensor", False, IMAGENET),
    ("easy", "cifarfs"): ("exact", 36, 32, "tensor", False, IMAGENET),
    ("easy-antialias", "cub"): ("exact", 96, 84, "tensor", True, IMAGENET),
    ("metaoptnet", "mini"): ("none", 84, 84, "pil", True, META),
    ("metaoptnet", "fc100"): ("none", 32, 32, "pil", True, META_CIFAR),
    ("metaoptnet", "cub"): ("shorter", 92, 84, "pil", True, META),
    ("rfs", "fc100"): ("none", 32, 32, "pil", True, RFS_CIFAR),
    ("feat", "mini"): ("shorter", 92, 84, "pil", True, META),
    ("deepemd", "cub"): ("exact", 92, 84, "pil", True, EASY),
    ("libfewshot", "mini"): ("exact", 96, 84, "pil", True, META),
    ("simpleshot", "CUB"): ("shorter", 96, 84, "pil", True, IMAGENET),
    ("simpleshot-84", "mini"): ("shorter", 84, 84, "pil", True, IMAGENET),
    ("closerlook", "cifarfs"): ("exact", 257, 224, "pil", True, IMAGENET),
    ("ptmap", "cifarfs"): ("exact", 36, 32, "pil", True, IMAGENET),
    ("metabaseline", "tiered"): ("shorter", 80, 80, "pil", True, IMAGENET),
    ("torchvision", "cub"): ("shorter", 256, 224, "pil", True, IMAGENET),
    ("s2m2", "mini"): ("exact", 92, 80, "pil", True, IMAGENET),
}


def test_published_transforms() -> None:
    for (recipe, dataset), expected in PUBLISHED.items():
        found = transform_for(recipe, dataset)
        norm = (found.mean, found.std)
        assert (found.resize, found.size, found.crop, found.on, found.antialias, norm) == expected, (recipe, dataset)
        assert found.interpolation == "bilinear"


@pytest.mark.parametrize(
    ("dataset", "sides", "expected"),
    [
        ("holiday-photos", {}, ("shorter", 92, 84)),
        (None, {"image_size": 28}, ("exact", 36, 32)),
        (None, {"image_size": 64}, ("shorter", 92, 84)),
        ("fc100", {"network_size": 84}, ("shorter", 92, 84)),
        ("fc100", {"network_size": 32}, ("exact", 36, 32)),  # a network trained on 32 pixels sees 32 pixels
        ("cub", {"network_size": 42}, ("exact", 48, 42)),
    ],
)
def test_own_data_and_the_side_that_a_network_was_trained_on(dataset: str | None, sides: Any, expected: Any) -> None:
    found = transform_for("easy", dataset, **sides)
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


def test_crop_areas() -> None:
    for dataset, area, size in (("mini", 0.08, 84), ("cub-feat", 0.14, 84), ("cifarfs", 0.14, 32), ("own", 0.08, 84)):
        transform = transform_for("easy", dataset)
        crops = crops_for(transform, dataset, seed=7)
        assert (crops.area, crops.size, crops.seed, crops.antialias) == ((area, 1.0), size, 7, False)
        assert (crops.mean, crops.std) == (transform.mean, transform.std)
    with pytest.raises(FsbenchError, match="Did you mean 'ptmap'"):
        transform_for("ptmpa", "mini")
