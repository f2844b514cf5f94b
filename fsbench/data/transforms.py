"""Evaluation transforms described as data, from a PIL image to a normalised tensor.

A transform decides a good part of a feature, so it is a value: it can be printed, stored with the features
and compared. torchvision does the steps: resize, centre crop, scale to [0, 1], normalise.

A recipe is what one code base does at evaluation, on every data set it was published for. Which recipe a backbone
family was trained with is in `fsbench.backbones.families`; any other can be chosen by name. All are bilinear.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as steps

from fsbench.data.catalog import find_info
from fsbench.errors import FsbenchError, unknown_name

Triple = tuple[float, float, float]
Resize = Literal["shorter", "exact", "none"]
Interpolation = Literal["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"]


@dataclass(frozen=True)
class EvalTransform:
    """A deterministic transform: resize, centre crop, normalise."""

    resize: Resize  # the shorter side, keeping the aspect ratio; to an exact square; or none: images have that size
    size: int  # of that step
    crop: int  # side of the centre crop, at most the size
    mean: Triple  # subtracted per channel, for values in [0, 1]
    std: Triple  # divides afterwards
    interpolation: Interpolation = "bilinear"  # on tensors it is `bilinear` or `bicubic`
    on: Literal["pil", "tensor"] = "pil"  # whether 8-bit PIL images or float tensors are resized
    antialias: bool = True  # whether shrinking averages over all pixels; PIL always does, tensors only if told to

    def __call__(self, image: Image.Image) -> torch.Tensor:
        """Transform one RGB image into a float32 tensor (3, crop, crop)."""
        return normalise(self._cropped(image), self.mean, self.std)

    def pixels(self, image: Image.Image) -> NDArray[np.uint8]:
        """One RGB image resized and cropped, before it is normalised, as bytes (crop, crop, 3).

        A transform on tensors gives fractions of a step, which are rounded.
        """
        rounded = (self._cropped(image) * 255).round().clamp(0, 255)  # bicubic goes beyond black and white
        array: NDArray[np.uint8] = rounded.byte().permute(1, 2, 0).contiguous().numpy()
        return array

    def _cropped(self, image: Image.Image) -> torch.Tensor:
        """The centre crop as a tensor (3, crop, crop) with values in [0, 1]."""
        if self.resize == "none" and image.size != (self.size, self.size):
            message = f"Expected images of {self.size}×{self.size} pixels, found {image.width}×{image.height}."
            raise FsbenchError(message, "Choose a transform that resizes, for example --transform feat.")
        size = [self.size] if self.resize == "shorter" else [self.size, self.size]
        pixels = image if self.on == "pil" else steps.to_tensor(image)
        resized = steps.resize(pixels, size, InterpolationMode(self.interpolation), antialias=self.antialias)
        cropped = steps.center_crop(resized, [self.crop, self.crop])
        tensor: torch.Tensor = steps.to_tensor(cropped) if self.on == "pil" else cropped
        return tensor


@dataclass(frozen=True)
class CropTransform:
    """Random crops of an image, resized to a square; features of several crops are averaged.

    A crop covers a random share of the area with a random aspect ratio, both drawn as torchvision's
    RandomResizedCrop draws them. There is no flip and no change of colour. The draw depends on the seed, the
    image's name and the number of the crop alone, so neither workers nor batches nor the order matter.
    """

    size: int  # side of the result
    area: tuple[float, float]  # smallest and largest share of the image
    mean: Triple
    std: Triple
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # smallest and largest aspect ratio, width by height
    antialias: bool = False
    seed: int = 0

    def __call__(self, image: Image.Image, name: str, crops: int, start: int = 0) -> torch.Tensor:
        """Crops of one RGB image, named relative to the data set, from a number on: float32 (crops, 3, size, size)."""
        tensor, side = steps.to_tensor(image), [self.size, self.size]
        boxes = [self.box(image.size, name, number) for number in range(start, start + crops)]
        parts = [steps.resized_crop(tensor, *box, side, antialias=self.antialias) for box in boxes]
        return normalise(torch.stack(parts), self.mean, self.std)

    def box(self, size: tuple[int, int], name: str, number: int) -> tuple[int, int, int, int]:
        """Top, left, height and width of a crop of an image of that width and height.

        Into strips no draw may fit: they get the largest centred crop of an admitted aspect ratio.
        """
        key = hashlib.sha256(f"{self.seed}:{number}:{name}".encode(errors="surrogatepass")).digest()
        random = np.random.Generator(np.random.PCG64(int.from_bytes(key, "big")))
        width, height = size
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for share, shape, down, right in random.random((10, 4)):
            pixels = width * height * (self.area[0] + share * (self.area[1] - self.area[0]))
            aspect = math.exp(low + shape * (high - low))
            crop_width, crop_height = round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect))
            if 0 < crop_width <= width and 0 < crop_height <= height:
                top = int(down * (height - crop_height + 1))
                left = int(right * (width - crop_width + 1))
                return top, left, crop_height, crop_width
        crop_width = min(width, max(1, round(height * self.ratio[1])))
        crop_height = min(height, max(1, round(width / self.ratio[0])))
        return (height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width


def normalise(tensor: torch.Tensor, mean: Triple, std: Triple) -> torch.Tensor:
    """Subtract the mean and divide by the standard deviation, per channel of (..., 3, height, width)."""
    return (tensor - _per_channel(mean, tensor.device)).div_(_per_channel(std, tensor.device))


@functools.lru_cache(maxsize=16)  # torchvision copies them to a GPU for every batch, and asks whether one is zero
def _per_channel(values: Triple, device: torch.device) -> torch.Tensor:
    with torch.inference_mode(False):
        return torch.tensor(values, device=device)[:, None, None]


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


@dataclass(frozen=True)
class Recipe:
    """The evaluation transforms of one code base."""

    usual: EvalTransform  # for images of ordinary size, data sets unknown to the code base included
    small: EvalTransform  # for images of about 32 pixels
    # For single data sets, by their name or the name of their images.
    special: Mapping[str, EvalTransform] = field(default_factory=dict)


def _easy_recipe(antialias: bool) -> Recipe:
    """EASY resizes float tensors, and did so without antialiasing when its features were published."""

    def tensor(resize: Resize, size: int, crop: int, norm: _Norm = _IMAGENET) -> EvalTransform:
        return EvalTransform(resize, size, crop, *norm, on="tensor", antialias=antialias)

    special = {"fc100": tensor("shorter", 92, 84), "cub": tensor("exact", 96, 84)}
    return Recipe(tensor("shorter", 92, 84, _EASY), tensor("exact", 36, 32), special)


def _array_recipe(cifar: _Norm) -> Recipe:
    """MetaOptNet and its heirs take arrays of the final size; other images are resized as FEAT does."""
    array = _pil("none", 84, 84, _METAOPTNET)
    special = {"mini": array, "tiered": array, "cifar100": _pil("none", 32, 32, cifar)}
    return Recipe(_pil("shorter", 92, 84, _METAOPTNET), _pil("exact", 36, 32, cifar), special)


RECIPES = {
    "easy": _easy_recipe(antialias=False),  # as published
    "easy-antialias": _easy_recipe(antialias=True),  # as its code runs today
    "simpleshot": Recipe(_pil("shorter", 96, 84), _pil("exact", 36, 32)),  # with --enlarge; TIM, LaplacianShot too
    "simpleshot-84": Recipe(_pil("shorter", 84, 84), _pil("exact", 36, 32)),  # without --enlarge
    "s2m2": Recipe(_pil("exact", 92, 80), _pil("exact", 36, 32)),
    "ptmap": Recipe(_pil("exact", 96, 84), _pil("exact", 36, 32)),
    "closerlook": Recipe(_pil("exact", 257, 224), _pil("exact", 257, 224)),
    "torchvision": Recipe(_pil("shorter", 256, 224), _pil("shorter", 256, 224)),  # for ImageNet
    "metaoptnet": _array_recipe(_METAOPTNET_CIFAR),
    "rfs": _array_recipe(_RFS_CIFAR),
    "metabaseline": Recipe(_pil("shorter", 80, 80), _pil("shorter", 80, 80)),
    "feat": Recipe(_pil("shorter", 92, 84, _METAOPTNET), _pil("shorter", 92, 84, _METAOPTNET)),
    "deepemd": Recipe(_pil("exact", 92, 84, _EASY), _pil("exact", 92, 84, _EASY)),
    "libfewshot": Recipe(_pil("exact", 96, 84, _METAOPTNET), _pil("exact", 96, 84, _METAOPTNET)),  # at 84 pixels
}

_CROP_AREAS = {"cub": (0.14, 1.0), "cifar100": (0.14, 1.0)}
_USUAL_CROP_AREA = (0.08, 1.0)


def transform_for(
    recipe: str, dataset: str | None, image_size: int | None = None, network_size: int | None = None
) -> EvalTransform:
    """The evaluation transform of a recipe, such as `easy`, on a data set.

    A name that is not in the catalog, or None, stands for a user's own data, whose images have the side `image_size` if
    they share one. `network_size` is the side that the network was trained on, if it is known.
    """
    if recipe not in RECIPES:
        raise unknown_name("transform", recipe, RECIPES)
    chosen, info = RECIPES[recipe], find_info(dataset or "")
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
    info = find_info(dataset or "")
    area = _CROP_AREAS.get(info.images_of, _USUAL_CROP_AREA) if info else _USUAL_CROP_AREA
    return CropTransform(transform.crop, area, transform.mean, transform.std, antialias=transform.antialias, seed=seed)


def timm_transform(config: Mapping[str, Any]) -> EvalTransform:
    """The evaluation transform of timm's data config: `input_size` (3, side, side), `mean`, `crop_pct` and so on.

    A model that takes images which are not square, not RGB, or padded with a border is refused.
    """
    channels, height, width = config["input_size"]
    mode = config.get("crop_mode") or "center"
    if channels != 3 or height != width or mode not in {"center", "squash"}:
        message = f"Expected a model for square RGB images, not padded; found {channels}×{height}×{width}, {mode}."
        raise FsbenchError(message, "Choose another timm model.")
    resize: Resize = "exact" if mode == "squash" else "shorter"
    # As timm does: the image is resized to floor(side / share) and the centre is cut out.
    size = math.floor(height / (config.get("crop_pct") or 0.875))
    norm: Any = {key: tuple(map(float, config[key])) for key in ("mean", "std")}
    return EvalTransform(resize, size, height, **norm, interpolation=config["interpolation"])
