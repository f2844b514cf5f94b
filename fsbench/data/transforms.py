"""Evaluation transforms described as data, from a PIL image to a normalised tensor.

A transform decides a good part of a feature, so it is a value: it can be printed, stored with the features
and compared. The steps are resize, centre crop, scale to [0, 1], normalise. The transforms of the field are in
:mod:`fsbench.data.published_transforms`.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from fsbench.errors import FsbenchError, unknown_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

Triple = tuple[float, float, float]
Resize = Literal["shorter", "exact", "none"]
Interpolation = Literal["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"]

_FILTERS = {resampling.name.lower(): resampling for resampling in Image.Resampling}
_LARGEST = 100_000_000  # pixels after resizing


@dataclass(frozen=True)
class EvalTransform:
    """A deterministic transform: resize, centre crop, normalise.

    Attributes:
        resize: ``shorter`` resizes the shorter side and keeps the aspect ratio, ``exact`` makes a square,
            ``none`` demands images of that size.
        size: The size of that step.
        crop: The side of the centre crop, at most the size.
        mean: Subtracted per channel, for values in [0, 1]; then ``std`` divides.
        interpolation: On tensors it is ``bilinear`` or ``bicubic``.
        on: Whether 8-bit PIL images or float tensors are resized.
        antialias: Whether shrinking averages over all pixels. PIL always does; tensors only if told to.
    """

    resize: Resize
    size: int
    crop: int
    mean: Triple
    std: Triple
    interpolation: Interpolation = "bilinear"
    on: Literal["pil", "tensor"] = "pil"
    antialias: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.crop <= self.size:
            raise FsbenchError(f"Expected a crop from 1 to the size {self.size}, found {self.crop}.")
        if self.interpolation not in _FILTERS:
            raise unknown_name("interpolation", self.interpolation, _FILTERS)
        if self.on == "tensor" and self.interpolation not in {"bilinear", "bicubic"}:
            raise FsbenchError(f"Tensors cannot be resized with the filter {self.interpolation!r}.")
        if self.on == "pil" and not self.antialias:
            raise FsbenchError("PIL images are always resized with antialiasing.", "Resize tensors instead.")

    def __call__(self, image: Image.Image) -> torch.Tensor:
        """Transform one RGB image into a float32 tensor (3, crop, crop).

        Raises:
            FsbenchError: The image has another size than the transform demands, or is a very long strip.
        """
        cropped = to_tensor(self._cropped_image(image)) if self.on == "pil" else self._cropped_tensor(image)
        return normalise(cropped, self.mean, self.std)

    def pixels(self, image: Image.Image) -> NDArray[np.uint8]:
        """One RGB image resized and cropped, before it is normalised, as bytes (crop, crop, 3).

        A transform on tensors gives fractions of a step, which are rounded.

        Raises:
            FsbenchError: As when the transform is called.
        """
        if self.on == "pil":
            return np.array(self._cropped_image(image), dtype=np.uint8)
        rounded = (self._cropped_tensor(image) * 255).round().clamp(0, 255)  # bicubic goes beyond black and white
        array: NDArray[np.uint8] = rounded.byte().permute(1, 2, 0).contiguous().numpy()
        return array

    def describe(self) -> dict[str, Any]:
        """The transform as plain data, in a stable order, for records."""
        return {**asdict(self), "mean": list(self.mean), "std": list(self.std)}

    def _cropped_image(self, image: Image.Image) -> Image.Image:
        width, height = self._resized(*image.size)
        top, left = self._corner(width, height)
        resized = image.resize((width, height), _FILTERS[self.interpolation])
        return resized.crop((left, top, left + self.crop, top + self.crop))

    def _cropped_tensor(self, image: Image.Image) -> torch.Tensor:
        width, height = self._resized(*image.size)
        top, left = self._corner(width, height)
        resized = resize_tensor(to_tensor(image), height, width, self.interpolation, self.antialias)
        return resized[:, top : top + self.crop, left : left + self.crop]  # (3, crop, crop)

    def _corner(self, width: int, height: int) -> tuple[int, int]:
        """Top and left of the centre crop."""
        return round((height - self.crop) / 2), round((width - self.crop) / 2)

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        if self.resize == "exact":
            return self.size, self.size
        if self.resize == "none":
            if (width, height) != (self.size, self.size):
                raise FsbenchError(
                    f"Expected images of {self.size}×{self.size} pixels, found {width}×{height}.",
                    "This transform takes images as they are. Choose one that resizes, for example --transform feat.",
                )
            return width, height
        longer = int(self.size * max(width, height) / min(width, height))
        if longer * self.size > _LARGEST:
            raise FsbenchError(
                f"An image of {width}×{height} pixels would become {longer} pixels long.",
                "Remove it, or resize it to a square.",
            )
        return (self.size, longer) if width < height else (longer, self.size)


@dataclass(frozen=True)
class CropTransform:
    """Random crops of an image, resized to a square; features of several crops are averaged.

    A crop covers a random share of the area with a random aspect ratio, both drawn as torchvision's
    RandomResizedCrop draws them. There is no flip and no change of colour. The draw depends on the seed, the
    image's name and the number of the crop alone, so neither workers nor batches nor the order matter.

    Attributes:
        size: The side of the result.
        area: The smallest and largest share of the image.
        ratio: The smallest and largest aspect ratio, width by height.
    """

    size: int
    area: tuple[float, float]
    mean: Triple
    std: Triple
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    antialias: bool = False
    seed: int = 0

    def __call__(self, image: Image.Image, name: str, crops: int, start: int = 0) -> torch.Tensor:
        """Take crops of one RGB image, by its name relative to the data set and the number of the first.

        Returns:
            A float32 tensor (crops, 3, size, size).
        """
        tensor = to_tensor(image)
        parts = []
        for number in range(start, start + crops):
            top, left, height, width = self.box(image.size, name, number)
            part = tensor[:, top : top + height, left : left + width]
            parts.append(resize_tensor(part, self.size, self.size, "bilinear", self.antialias))
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

    def describe(self) -> dict[str, Any]:
        """The transform as plain data, in a stable order, for records."""
        lists = {key: list(getattr(self, key)) for key in ("area", "mean", "std", "ratio")}
        return {**asdict(self), **lists}


def to_tensor(image: Image.Image) -> torch.Tensor:
    """An 8-bit RGB image as a float32 tensor (3, height, width) with values in [0, 1]."""
    array = np.array(image, dtype=np.uint8)  # (height, width, 3)
    return torch.from_numpy(array).permute(2, 0, 1).contiguous().float() / 255


def resize_tensor(tensor: torch.Tensor, height: int, width: int, interpolation: str, antialias: bool) -> torch.Tensor:
    """Resize a float tensor (3, ., .) to (3, height, width)."""
    resized = functional.interpolate(
        tensor[None], (height, width), mode=interpolation, align_corners=False, antialias=antialias
    )
    return resized[0]


def normalise(tensor: torch.Tensor, mean: Triple, std: Triple) -> torch.Tensor:
    """Subtract the mean and divide by the standard deviation, per channel of (..., 3, height, width)."""
    centre, scale = (tensor.new_tensor(values)[:, None, None] for values in (mean, std))
    return (tensor - centre) / scale
