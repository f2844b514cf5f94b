"""The images of a split as one array of bytes, decoded once and stored in a memory-mapped file.

Methods that work on images, training and extraction share these files. They lie in the hidden folder `.pixels` of the
data root and can be deleted at any time: they are made again.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from fsbench.data.dataset import ImageSplit
from fsbench.data.transforms import EvalTransform, normalise
from fsbench.devices import cpu_share
from fsbench.errors import FsbenchError
from fsbench.io.files import only_writer, readable_part, whole_file
from fsbench.reporter import Reporter

_AT_ONCE = 256  # images

# M records with the fields `pixels` (S, S, 3), bytes, and `sizes` (2,), the image's width and height on disk.
Decoded = np.recarray[Any, Any]


def pixel_cache(data_root: Path) -> Path:
    """The folder for the decoded images of the data sets under a data root. No data set is looked for in it."""
    return data_root / ".pixels"


def decode(split: ImageSplit, transform: EvalTransform, cache: Path | None, reporter: Reporter) -> Decoded:
    """All images of a split, resized and cropped as the transform does it, in the order of the split.

    They come from a file in the cache, which is made if need be, memory-mapped copy-on-write: what is written into them
    stays in memory. Without a cache, or where it cannot be written, they are decoded into memory. Normalisation is left
    out, see `normalised`. Pixels of a transform that resizes tensors are rounded to bytes.
    """
    # The key of the content: the images and what decodes, resizes and crops them.
    geometry = {key: value for key, value in asdict(transform).items() if key not in {"mean", "std"}}
    content = [split.dataset, split.name, geometry, split.images, split.hashes, PIL.__version__]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    stored = None
    try:
        if cache is not None:
            path = cache / f"{readable_part(split.dataset)}-{split.name}-{transform.crop}px-{digest[:16]}.npy"
            stored = _read(path, split, transform)
            if stored is None:
                with only_writer(path, reporter.warn):
                    if _read(path, split, transform) is None:  # else written by the process that was waited for
                        _write(path, split, transform, reporter)
                    stored = _read(path, split, transform)
    except FsbenchError as error:
        if not isinstance(error.__cause__, OSError) or type(error) is not FsbenchError:
            raise  # an image, not the disk
        reporter.warn(f"{error.message} The decoded images of {split.dataset} {split.name} are not stored.")
    if stored is None:
        return np.concatenate([*_decode(split, transform, reporter)]).view(np.recarray)
    return stored


def normalised(pixels: Tensor, transform: EvalTransform) -> Tensor:
    """Bytes (..., S, S, 3) → float32 (..., 3, S, S), normalised as the transform does it.

    For a transform on PIL images the result is that of the transform itself, bit for bit.
    """
    return normalise(pixels.movedim(-1, -3).contiguous().float() / 255, transform.mean, transform.std)


def _record(transform: EvalTransform) -> np.dtype[np.void]:
    return np.dtype([("pixels", "u1", (transform.crop, transform.crop, 3)), ("sizes", "<i4", (2,))])


def _decode(split: ImageSplit, transform: EvalTransform, reporter: Reporter) -> Iterator[NDArray[np.void]]:
    """One block of images after another."""

    def pixels(row: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
        image = split.open(row)
        return transform.pixels(image), image.size

    label = f"decoding {split.dataset} {split.name}"
    with reporter.bar(label, len(split)) as advance, ThreadPoolExecutor(cpu_share()) as pool:
        for start in range(0, len(split), _AT_ONCE):
            rows = range(start, min(start + _AT_ONCE, len(split)))
            yield np.array([*pool.map(pixels, rows)], dtype=_record(transform))
            advance(len(rows))


def _write(path: Path, split: ImageSplit, transform: EvalTransform, reporter: Reporter) -> None:
    """Write an npy file with a checksum after its end, block by block: splits may be larger than the memory."""
    description = npy.dtype_to_descr(_record(transform))
    checksum = 0
    with whole_file(path) as temporary, temporary.open("wb") as stream:
        npy.write_array_header_1_0(stream, {"descr": description, "fortran_order": False, "shape": (len(split),)})
        for block in _decode(split, transform, reporter):
            stream.write(block.tobytes())
            checksum = zlib.crc32(block.tobytes(), checksum)
        stream.write(checksum.to_bytes(4, "little"))


def _read(path: Path, split: ImageSplit, transform: EvalTransform) -> Decoded | None:
    """What a file holds; None if it is missing or damaged."""
    try:
        stored = np.load(path, mmap_mode="c", allow_pickle=False)
        with path.open("rb") as stream:
            stream.seek(stored.offset + stored.nbytes)
            checksum = int.from_bytes(stream.read(), "little")
        fits = (stored.dtype, stored.shape) == (_record(transform), (len(split),))
        return stored.view(np.recarray) if fits and zlib.crc32(stored.view(np.uint8)) == checksum else None
    except Exception:  # NumPy raises errors of many kinds on damaged bytes
        return None
