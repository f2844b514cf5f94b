from __future__ import annotations

from typing import Any

import pytest
import torch
from timm.data.transforms_factory import create_transform

from fsbench.backbones.families import FAMILIES
from fsbench.data.published_transforms import crops_for, timm_transform, transform_for, transform_names
from fsbench.errors import FsbenchError
from tests.unit.data.test_transforms import photo

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
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


def test_every_recipe_gives_a_square_tensor() -> None:
    for recipe in transform_names():
        transform = transform_for(recipe, "own")
        assert transform(photo(40, 30)).shape == (3, transform.crop, transform.crop)


def test_an_unknown_recipe_is_answered_with_the_nearest() -> None:
    with pytest.raises(FsbenchError, match="Did you mean 'ptmap'"):
        transform_for("ptmpa", "mini")


@pytest.mark.parametrize(
    ("dataset", "area", "size"),
    [
        ("mini", (0.08, 1.0), 84),
        ("tiered", (0.08, 1.0), 84),
        ("cub", (0.14, 1.0), 84),
        ("cub-feat", (0.14, 1.0), 84),
        ("fc100", (0.14, 1.0), 84),
        ("cifarfs", (0.14, 1.0), 32),
        ("own", (0.08, 1.0), 84),
    ],
)
def test_crop_areas(dataset: str, area: tuple[float, float], size: int) -> None:
    transform = transform_for("easy", dataset)
    crops = crops_for(transform, dataset, seed=7)
    assert (crops.area, crops.size, crops.seed, crops.antialias) == (area, size, 7, False)
    assert (crops.mean, crops.std) == (transform.mean, transform.std)


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
