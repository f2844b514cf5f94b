"""The images of a split as one array of bytes, decoded once and kept in a memory-mapped file.

Methods that work on images, training and extraction share these files. They lie in the hidden folder `.pixels` of the
data root and can be deleted at any time: they are made again.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.lib import format as npy

from fsbench.data.folders import PIXEL_FOLDER
from fsbench.data.transforms import normalise
from fsbench.devices import cpu_share
from fsbench.errors import FsbenchError
from fsbench.io.files import only_writer, readable_part, require_writable, whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from fsbench.data.dataset import ImageSplit
    from fsbench.data.transforms import EvalTransform
    from fsbench.reporter import Reporter

_AT_ONCE = 256  # images
_WORTH_A_NOTE = 100_000_000  # bytes
_COMPARED = 8  # images that are decoded again when a file is opened


class Decoded(NamedTuple):
    """The M images of a split: pixels (M, S, S, 3), and the width and height (M, 2) that they have on disk."""

    pixels: NDArray[np.uint8]
    sizes: NDArray[np.int32]


def pixel_cache(data_root: Path) -> Path:
    """The folder for the decoded images of the data sets under a data root. No data set is looked for in it."""
    return data_root / PIXEL_FOLDER


def open_pixels(
    split: ImageSplit, transform: EvalTransform, cache: Path | None, reporter: Reporter
) -> NDArray[np.uint8]:
    """All images of a split, resized and cropped as the transform does it, in the order of the split.

    Normalisation is left out, see `normalised`. A transform that resizes tensors is rounded to bytes, so that its
    pixels differ from those of the transform by up to half a step of 255.

    Args:
        split: The images.
        transform: Mean and standard deviation do not matter.
        cache: Folder of the file, which is made if it is missing, damaged or of other images. None, and a folder
            without room or rights: the images are decoded into memory.
        reporter: For the progress bar and warnings.

    Returns:
        Bytes (M, crop, crop, 3), memory-mapped copy-on-write: what is written into them stays in memory.

    Raises:
        FsbenchError: An image, which is named, cannot be read or is refused by the transform.
    """
    kept = None if cache is None else decode_into_file(split, transform, cache, reporter)
    return (kept or decode_into_memory(split, transform, reporter)).pixels


def decode_into_file(split: ImageSplit, transform: EvalTransform, cache: Path, reporter: Reporter) -> Decoded | None:
    """The images from their file in the cache, which is made if need be; None if there is no place for it."""
    path = cache / _file_name(split, transform)
    if (found := _read(path, split, transform)) is not None:
        return found
    if reason := _no_place(cache, len(split) * transform.crop**2 * 3):
        reporter.warn(f"{reason} The decoded images of {split.dataset} {split.name} are not kept.")
        return None
    with only_writer(path, reporter.warn):
        if (found := _read(path, split, transform)) is None:  # else written by the process waited for
            try:
                _write(path, split, transform, reporter)
            except FsbenchError as error:
                if type(error) is not FsbenchError or not isinstance(error.__cause__, OSError):
                    raise  # an image, not the disk
                reporter.warn(f"{error.message} The decoded images of {split.dataset} {split.name} are not kept.")
                return None
            found = _read(path, split, transform)
    if found is None:
        raise FsbenchError(f"{path} differs from what was written.", "Check the disk, and remove the file.")
    return found


def decode_into_memory(split: ImageSplit, transform: EvalTransform, reporter: Reporter) -> Decoded:
    """The images, decoded now."""
    pixels = np.empty((len(split), transform.crop, transform.crop, 3), dtype=np.uint8)
    sizes = np.empty((len(split), 2), dtype=np.int32)
    start = 0
    for block in _decode(split, transform, reporter):
        stop = start + len(block.pixels)
        pixels[start:stop], sizes[start:stop] = block
        start = stop
    return Decoded(pixels, sizes)


def stored_pixels(split: ImageSplit, transform: EvalTransform, cache: Path) -> NDArray[np.uint8] | None:
    """The pixels of `open_pixels` if there is a file of them already."""
    found = _read(cache / _file_name(split, transform), split, transform)
    return None if found is None else found.pixels


def normalised(pixels: Tensor, transform: EvalTransform) -> Tensor:
    """Bytes (..., S, S, 3) → float32 (..., 3, S, S), normalised as the transform does it.

    For a transform on PIL images the result is that of the transform itself, bit for bit.
    """
    return normalise(pixels.movedim(-1, -3).contiguous().float() / 255, transform.mean, transform.std)


def _file_name(split: ImageSplit, transform: EvalTransform) -> str:
    geometry = {key: value for key, value in transform.describe().items() if key not in {"mean", "std"}}
    images = [[split.image_name(row), split.image_mark(row)] for row in range(len(split))]
    digest = hashlib.sha256(json.dumps([split.dataset, split.name, geometry, images]).encode()).hexdigest()
    return f"{readable_part(split.dataset)}-{split.name}-{transform.crop}px-{digest[:16]}.npy"


def _no_place(cache: Path, size: int) -> str:
    """Why a file of that many bytes cannot be written; empty if it can."""
    try:
        require_writable(cache)
    except FsbenchError as error:
        return error.message
    place = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    return "" if size < free else f"{cache} needs {size / 1e6:,.0f} MB for decoded images and has {free / 1e6:,.0f} MB."


def _decode(split: ImageSplit, transform: EvalTransform, reporter: Reporter) -> Iterator[Decoded]:
    """One block of images after another."""
    label = f"decoding {split.dataset} {split.name}"
    with reporter.bar(label, len(split)) as advance, ThreadPoolExecutor(cpu_share()) as pool:
        for start in range(0, len(split), _AT_ONCE):
            rows = range(start, min(start + _AT_ONCE, len(split)))
            pixels, sizes = zip(*pool.map(lambda row: _decode_one(split, row, transform), rows), strict=True)
            yield Decoded(np.stack(pixels), np.array(sizes, dtype=np.int32))
            advance(len(pixels))


def _decode_one(split: ImageSplit, row: int, transform: EvalTransform) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    image = split.open(row)
    try:
        return transform.pixels(image), image.size
    except FsbenchError as error:
        raise FsbenchError(f"The image {split.image_name(row)} cannot be used: {error.message}", error.hint) from error


def _write(path: Path, split: ImageSplit, transform: EvalTransform, reporter: Reporter) -> None:
    """Write the pixels as an npy file; after its end come the sizes and a checksum, as two more arrays.

    Blocks are written as they come: splits may be larger than the memory, and a full disk is an error, which it would
    not be in a mapped file.
    """
    shape, parts, checksum = (len(split), transform.crop, transform.crop, 3), [], 0
    with whole_file(path) as temporary, temporary.open("wb") as stream:
        npy.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for block in _decode(split, transform, reporter):
            stream.write(block.pixels.data)
            checksum = zlib.crc32(block.pixels.data, checksum)
            parts.append(block.sizes)
        sizes = np.concatenate(parts)
        end = io.BytesIO()  # numpy would keep to itself why a file could not be written
        np.save(end, sizes)
        np.save(end, np.array(zlib.crc32(sizes.data, checksum), dtype=np.uint32))
        stream.write(end.getvalue())
        path.unlink(missing_ok=True)  # a damaged file may begin as one of a kind that is not replaced
        if stream.tell() >= _WORTH_A_NOTE:
            reporter.say(f"Keeping the decoded images in {path} ({stream.tell() / 1e6:,.0f} MB).")


def _read(path: Path, split: ImageSplit, transform: EvalTransform) -> Decoded | None:
    """What a file holds; None if it is missing, damaged, or of other images with the same names and sizes.

    A few images are compared with the file: versions of Pillow may differ in how they decode and resize.
    """
    try:
        pixels = np.load(path, mmap_mode="c", allow_pickle=False)
        with path.open("rb") as stream:
            stream.seek(pixels.offset + pixels.nbytes)
            sizes, checksum = np.load(stream, allow_pickle=False), np.load(stream, allow_pickle=False)
        whole = zlib.crc32(sizes.data, zlib.crc32(pixels.data)) == checksum
        if not whole or pixels.shape != (len(split), transform.crop, transform.crop, 3) or len(sizes) != len(split):
            return None
        rows = np.linspace(0, len(split) - 1, min(_COMPARED, len(split)), dtype=int)
        same = all(np.array_equal(_decode_one(split, row, transform)[0], pixels[row]) for row in rows.tolist())
        return Decoded(pixels, sizes) if same else None
    except Exception:  # NumPy raises errors of many kinds on damaged bytes; an unreadable image is reported elsewhere
        return None
