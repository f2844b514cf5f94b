"""Reading a picture file as RGB, the way the code bases of this field do it.

They all call PIL's ``convert("RGB")``, and so does this module:

* grey is repeated, CMYK is converted, a palette is looked up;
* transparency is dropped and the colour below it is kept, nothing is composited;
* the EXIF orientation is ignored (torchvision's folder loader ignores it too), so features stay comparable.

It departs where that call would give a wrong picture: 16-bit grey is scaled to 8 bits (PIL clips it at 255).
Only plain picture formats are decoded, because some others (EPS) would start an external program.
"""

from __future__ import annotations

import errno
import math
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from PIL import Image

from fsbench.errors import FsbenchError, system_trouble

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from torch import Tensor

    Sent = TypeVar("Sent")


PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".webp", ".tif", ".tiff")
_OUT_OF_REACH = {errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENODEV, errno.ENXIO}
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "WEBP", "TIFF")


class OutOfReachError(FsbenchError):
    """A picture that is not broken, but gone: so may be all others, and none of them may be left out for it."""


def is_picture(name: str) -> bool:
    """Whether a file name is that of a picture and not of a desktop's or archive's left-over."""
    return not name.startswith(".") and name.lower().endswith(PICTURE_SUFFIXES)


def open_image(path: Path) -> Image.Image:
    """Read a picture file as an RGB image.

    Raises:
        FsbenchError: The file is missing, truncated, not a picture, or suspiciously large.
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
            f"Expected a picture of at most {limit:,} pixels, found more in {path}.",
            "A small file that unpacks to a huge picture can exhaust the memory. Shrink it, or remove it.",
        ) from error
    except FileNotFoundError as error:
        raise OutOfReachError(f"The picture {path} is missing.", "Copy the data set again.") from error
    except Exception as error:  # PIL's decoders raise errors of many kinds on damaged bytes
        if isinstance(error, OSError) and error.errno in _OUT_OF_REACH:
            told = system_trouble(f"Could not read the picture {path}", error)
            raise OutOfReachError(told.message, told.hint) from error
        raise FsbenchError(
            f"Could not read the picture {path}: {error}",
            "The file is damaged or is not a picture. Copy it again, or remove it.",
        ) from error


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image to 8-bit RGB.

    Raises:
        ValueError: The image holds 32-bit numbers, for which black and white are not defined.
    """
    image.load()
    if image.mode.startswith("I") or image.mode == "F":
        image = _grey_from_16_bits(image)
    image.info.pop("transparency", None)
    return image.convert("RGB")


def _grey_from_16_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey to 8 bits: 65535 becomes 255."""
    values = np.asarray(image)
    # Mode "I" holds 32 bits in a TIFF, but 16 in a PGM, and in a PNG read by an older PIL.
    if image.mode == "F" or (image.mode == "I" and image.format not in {"PNG", "PPM"}):
        raise ValueError(f"its pixels are 32-bit numbers (mode {image.mode}), only 8 and 16 bits are defined")
    return Image.fromarray(np.round(values / 257).astype(np.uint8))


_REMEDY = "Read images without other processes, --workers 0, or enlarge the shared memory (docker: --shm-size)."


def share(tensor: Tensor) -> Tensor:
    """Put a tensor where the main process finds it, if this is a worker.

    Left to torch, that happens in a thread whose errors nobody sees, and the main process would wait for ever.
    """
    from torch.utils.data import get_worker_info

    if get_worker_info() is None:
        return tensor
    try:
        tensor.share_memory_()
    except RuntimeError as error:
        raise FsbenchError(f"The shared memory has no room for images: {error}", _REMEDY) from error
    return tensor


def while_workers_live(batches: Iterable[Sent]) -> Iterator[Sent]:
    """The same batches; a worker that was killed is an error for people."""
    try:
        yield from batches
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        told = str(error).partition("\n")[0]
        raise FsbenchError(f"A process that reads images has ended: {told}", _REMEDY) from error
