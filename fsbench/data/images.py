"""Reading an image file as RGB, the way the code bases of this field do it.

They all call PIL's ``convert("RGB")``, and so does this module:

* grey is repeated, CMYK is converted, a palette is looked up;
* transparency is dropped and the colour below it is kept, nothing is composited;
* the EXIF orientation is ignored (torchvision's folder loader ignores it too), so features stay comparable.

It departs where that call would give a wrong image: 16-bit grey is scaled to 8 bits (PIL clips it at 255).
Only plain image formats are decoded, because some others (EPS) would start an external program.
"""

from __future__ import annotations

import errno
import math
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, UnidentifiedImageError

from fsbench.errors import FsbenchError, system_trouble

if TYPE_CHECKING:
    from pathlib import Path

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".webp", ".tif", ".tiff")
# Formats of photos and drawings that PIL does not read by itself, or that fsbench does not decode.
_OTHER_IMAGES = (
    ".heic", ".heif", ".avif", ".jxl", ".jp2", ".dng", ".raw", ".cr2", ".cr3", ".nef", ".arw", ".psd", ".svg", ".eps",
)  # fmt: skip
_OUT_OF_REACH = {errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENODEV, errno.ENXIO}
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "WEBP", "TIFF")


class OutOfReachError(FsbenchError):
    """An image that is not broken but out of reach, as all others may be: it must not be left out as broken."""


class BrokenImageError(FsbenchError):
    """An image that cannot be decoded; `reason` says why, without its name."""

    def __init__(self, message: str, hint: str = "", reason: str = "") -> None:
        super().__init__(message, hint)
        self.reason = reason or message


def is_image(name: str) -> bool:
    """Whether a file name is that of an image and not of a desktop's or archive's left-over."""
    return not name.startswith(".") and name.lower().endswith(IMAGE_SUFFIXES)


def looks_like_image(name: str) -> bool:
    """Whether a file name is that of an image in a format that fsbench does not read, such as HEIC."""
    return not name.startswith(".") and name.lower().endswith(_OTHER_IMAGES)


def open_image(path: Path) -> Image.Image:
    """Read an image file as an RGB image.

    Raises:
        FsbenchError: The file is missing, truncated, not an image, or suspiciously large.
    """
    try:
        with path.open("rb") as file, Image.open(file, formats=_FORMATS) as image:
            # PIL itself only warns up to twice the limit.
            if image.width * image.height > (Image.MAX_IMAGE_PIXELS or math.inf):
                raise Image.DecompressionBombError
            return to_rgb(image)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        limit = Image.MAX_IMAGE_PIXELS
        raise FsbenchError(
            f"Expected an image of at most {limit:,} pixels, found more in {path}.",
            "A small file that unpacks to a huge image can exhaust the memory. Shrink it, or remove it.",
        ) from error
    except FileNotFoundError as error:
        raise OutOfReachError(f"The image {path} is missing.", "Copy the data set again.") from error
    except Exception as error:  # PIL's decoders raise errors of many kinds on damaged bytes
        if isinstance(error, OSError) and error.errno in _OUT_OF_REACH:
            trouble = system_trouble(f"Could not read the image {path}", error)
            raise OutOfReachError(trouble.message, trouble.hint) from error
        reason = "it is not an image" if isinstance(error, UnidentifiedImageError) else str(error)
        hint = "The file is damaged or is not an image. Copy it again, or remove it."
        raise BrokenImageError(f"Could not read the image {path}: {reason}", hint, reason) from error


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image to 8-bit RGB.

    Raises:
        ValueError: The image holds 32-bit numbers, for which black and white are not defined.
    """
    image.load()
    # Mode "I" holds 32 bits in a TIFF, but 16 in a PGM, and in a PNG read by an older PIL.
    if image.mode == "F" or (image.mode == "I" and image.format not in {"PNG", "PPM"}):
        raise ValueError(f"its pixels are 32-bit numbers (mode {image.mode}), only 8 and 16 bits are defined")
    if image.mode.startswith("I"):  # 16-bit grey: 65535 becomes 255
        image = Image.fromarray(np.round(np.asarray(image) / 257).astype(np.uint8))
    image.info.pop("transparency", None)
    return image.convert("RGB")
