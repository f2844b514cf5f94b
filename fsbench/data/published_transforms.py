"""The evaluation transforms of the field, by the code base that uses them and the data set.

A recipe is what one code base does at evaluation, on every data set it was published for. Which recipe a backbone
family was trained with is in `fsbench.backbones.families`; any other can be chosen by name. All are bilinear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fsbench.data.catalog import dataset_info
from fsbench.data.transforms import CropTransform, EvalTransform, Triple
from fsbench.errors import FsbenchError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fsbench.data.catalog import DatasetInfo
    from fsbench.data.transforms import Resize

_SMALL = 40  # images up to this side are treated like CIFAR's

_Norm = tuple[Triple, Triple]


def _of_255(mean: Triple, std: Triple) -> _Norm:
    return (mean[0] / 255, mean[1] / 255, mean[2] / 255), (std[0] / 255, std[1] / 255, std[2] / 255)


_IMAGENET: _Norm = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_EASY = _of_255((125.3, 123.0, 113.9), (63.0, 62.1, 66.7))
_METAOPTNET = _of_255((120.39586422, 115.59361427, 104.54012653), (70.68188272, 68.27635443, 72.54505529))
_METAOPTNET_CIFAR = _of_255((129.37731888, 124.10583864, 112.47758569), (68.20947949, 65.43124043, 70.45866994))
_RFS_CIFAR: _Norm = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))


def _pil(resize: Resize, size: int, crop: int, norm: _Norm = _IMAGENET) -> EvalTransform:
    return EvalTransform(resize, size, crop, *norm)


def _tensor(resize: Resize, size: int, crop: int, norm: _Norm = _IMAGENET) -> EvalTransform:
    """EASY resizes float tensors, and did so without antialiasing when its features were published."""
    return EvalTransform(resize, size, crop, *norm, on="tensor", antialias=False)


@dataclass(frozen=True)
class Recipe:
    """The evaluation transforms of one code base."""

    source: str
    usual: EvalTransform  # for images of ordinary size, data sets unknown to the code base included
    small: EvalTransform  # for images of about 32 pixels
    # For single data sets, by their name or the name of their images.
    special: Mapping[str, EvalTransform] = field(default_factory=dict)


_EASY_RECIPE = Recipe(
    "EASY as published: tensors resized without antialiasing",
    _tensor("shorter", 92, 84, _EASY),
    _tensor("exact", 36, 32),
    {"fc100": _tensor("shorter", 92, 84), "cub": _tensor("exact", 96, 84)},
)


def _array_recipe(source: str, cifar: _Norm) -> Recipe:
    """MetaOptNet and its heirs take arrays of the final size; other images are resized as FEAT does."""
    array = _pil("none", 84, 84, _METAOPTNET)
    special = {"mini": array, "tiered": array, "cifar100": _pil("none", 32, 32, cifar)}
    return Recipe(source, _pil("shorter", 92, 84, _METAOPTNET), _pil("exact", 36, 32, cifar), special)


def _antialiased(recipe: Recipe, source: str) -> Recipe:
    special = {name: replace(transform, antialias=True) for name, transform in recipe.special.items()}
    usual, small = (replace(transform, antialias=True) for transform in (recipe.usual, recipe.small))
    return Recipe(source, usual, small, special)


_RECIPES = {
    "easy": _EASY_RECIPE,
    "easy-antialias": _antialiased(_EASY_RECIPE, "EASY as its code runs today: tensors resized with antialiasing"),
    "simpleshot": Recipe(
        "SimpleShot with --enlarge, LaplacianShot, TIM, Veilleux et al.", _pil("shorter", 96, 84), _pil("exact", 36, 32)
    ),
    "simpleshot-84": Recipe("SimpleShot without --enlarge", _pil("shorter", 84, 84), _pil("exact", 36, 32)),
    "s2m2": Recipe("S2M2", _pil("exact", 92, 80), _pil("exact", 36, 32)),
    "ptmap": Recipe("PT-MAP", _pil("exact", 96, 84), _pil("exact", 36, 32)),
    "closerlook": Recipe("CloserLook", _pil("exact", 257, 224), _pil("exact", 257, 224)),
    "torchvision": Recipe("torchvision, ImageNet", _pil("shorter", 256, 224), _pil("shorter", 256, 224)),
    "metaoptnet": _array_recipe("MetaOptNet", _METAOPTNET_CIFAR),
    "rfs": _array_recipe("RFS", _RFS_CIFAR),
    "metabaseline": Recipe("Meta-Baseline", _pil("shorter", 80, 80), _pil("shorter", 80, 80)),
    "feat": Recipe("FEAT", _pil("shorter", 92, 84, _METAOPTNET), _pil("shorter", 92, 84, _METAOPTNET)),
    "deepemd": Recipe("DeepEMD", _pil("exact", 92, 84, _EASY), _pil("exact", 92, 84, _EASY)),
    "libfewshot": Recipe(
        "LibFewShot at 84 pixels", _pil("exact", 96, 84, _METAOPTNET), _pil("exact", 96, 84, _METAOPTNET)
    ),
}

_CROP_AREAS = {"cub": (0.14, 1.0), "cifar100": (0.14, 1.0)}
_USUAL_CROP_AREA = (0.08, 1.0)


def transform_names() -> dict[str, str]:
    """The recipes that can be chosen by name, with the code bases they come from."""
    return {name: recipe.source for name, recipe in _RECIPES.items()}


def transform_for(
    recipe: str, dataset: str | None, image_size: int | None = None, network_size: int | None = None
) -> EvalTransform:
    """The evaluation transform of a recipe on a data set.

    Args:
        recipe: Its name, such as ``easy``.
        dataset: A name of the catalog; any other name, or None, stands for a user's own data.
        image_size: The side of the images of a user's own data, if they share one.
        network_size: The side that the network was trained on, if it is known.

    Raises:
        FsbenchError: The recipe is unknown.
    """
    if recipe not in _RECIPES:
        raise unknown_name("transform", recipe, _RECIPES)
    chosen, info = _RECIPES[recipe], _info_or_none(dataset)
    side = info.image_size if info else image_size
    published = chosen.small if side is not None and side <= _SMALL else chosen.usual
    if info:
        published = chosen.special.get(info.name) or chosen.special.get(info.images_of) or published
    if network_size is None or network_size == published.crop:
        return published
    if network_size == chosen.small.crop:
        return chosen.small
    return replace(published, size=round(published.size * network_size / published.crop), crop=network_size)


def crops_for(transform: EvalTransform, dataset: str | None, seed: int = 0) -> CropTransform:
    """The random crops that replace a transform when features of several crops are averaged.

    Published for EASY's ResNet12 ("AS"); size, normalisation and antialiasing are those of the transform.
    Names of data sets mean the same as for `transform_for`.
    """
    info = _info_or_none(dataset)
    area = _CROP_AREAS.get(info.images_of, _USUAL_CROP_AREA) if info else _USUAL_CROP_AREA
    return CropTransform(transform.crop, area, transform.mean, transform.std, antialias=transform.antialias, seed=seed)


def timm_transform(config: Mapping[str, Any]) -> EvalTransform:
    """The evaluation transform that timm's data config of a model stands for.

    Args:
        config: With ``input_size`` (3, side, side), ``mean``, ``std``, ``interpolation``, ``crop_pct`` and
            possibly ``crop_mode``.

    Raises:
        FsbenchError: The model takes images that are not square, not RGB, or padded with a border.
    """
    channels, height, width = config["input_size"]
    mode = config.get("crop_mode") or "center"
    if channels != 3 or height != width or mode not in {"center", "squash"}:
        raise FsbenchError(
            f"Expected a model for square RGB images, centred or squashed; found {channels}×{height}×{width}, {mode}.",
            "Choose another timm model.",
        )
    resize: Resize = "exact" if mode == "squash" else "shorter"
    # As timm does: the image is resized to floor(side / share) and the centre is cut out.
    size = math.floor(height / (config.get("crop_pct") or 0.875))
    mean, std = _triple(config["mean"]), _triple(config["std"])
    return EvalTransform(resize, size, height, mean, std, config["interpolation"])


def _info_or_none(dataset: str | None) -> DatasetInfo | None:
    """The catalog entry of that name or alias, None if there is none."""
    try:
        return dataset_info(dataset) if dataset else None
    except FsbenchError:
        return None


def _triple(values: Sequence[float]) -> Triple:
    red, green, blue = (float(value) for value in values)
    return red, green, blue
