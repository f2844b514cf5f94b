"""Files that hold no features, named for what they are."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fsbench.data.images import is_image
from fsbench.errors import FsbenchError
from fsbench.exchange.found import text_of

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.exchange.found import Opened

IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF")
EXPECTED = (
    "Known are: rows with labels (npz, HDF5, csv, parquet, dicts of tensors), vectors by class (pickles of S2M2, "
    "PT-MAP, SimpleShot), and tensors (classes, images, D) as EASY's."
)
EXTRACT = "Extract features first: fsbench extract --data FOLDER."
WEIGHT_ENDS = (".weight", ".bias", ".running_mean", "num_batches_tracked")


def refuse_checkpoint(opened: Opened) -> None:
    """Refuse the weights of a network: their tables look like features."""
    content = opened.content
    inner = content.values() if isinstance(content, Mapping) else ()
    for candidate in (content, *inner):
        keys = [text_of(key) or "" for key in candidate] if isinstance(candidate, Mapping) else []
        if any(key.endswith(WEIGHT_ENDS) for key in keys):
            raise FsbenchError(
                f"{opened.path} is a checkpoint: the weights of a network, not features.",
                f"Extract features with it: fsbench extract --weights {opened.path}.",
            )


def foreign_content(opened: Opened) -> FsbenchError:
    """The error for a readable file in which no layout was recognised."""
    path, content = opened.path, opened.content
    if isinstance(content, np.ndarray):
        what = f"one array of {content.dtype}, shape {content.shape}"
        return FsbenchError(f"{path} holds {'images: ' if _is_images(content) else ''}{what}.", EXPECTED)
    if isinstance(content, list):
        if len(content) == 2 and all(isinstance(item, float | int) or _is_vector(item) for item in content):
            return FsbenchError(
                f"{path} holds means of base features alone, no rows.", "Give the output.plk beside it."
            )
        return FsbenchError(f"{path} holds a list of {len(content)}, which is no known layout of features.", EXPECTED)
    if not isinstance(content, Mapping):
        return FsbenchError(f"{path} holds a {type(content).__name__}, not features.", EXPECTED)
    names = [str(text_of(key) or key) for key in content]
    if {"image_data", "fine_labels", "coarse_labels"} & set(names) or any(map(_is_images, content.values())):
        return FsbenchError(f"{path} holds images ({', '.join(names[:4])}), not features.", EXTRACT)
    listed = ", ".join(names[:6]) or "nothing"
    return FsbenchError(
        f"{path} is {opened.container} without features that fsbench knows; it holds {listed}.", EXPECTED
    )


def _is_vector(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1


def _is_images(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim >= 2


def foreign_file(path: Path, start: bytes) -> FsbenchError:
    """The error for a file that no container recognises."""
    from fsbench.backbones.checkpoints import FOREIGN_STARTS

    if not start:
        return FsbenchError(f"{path} is empty.", "Download or copy it again.")
    if start.startswith(IMAGES):
        return FsbenchError(f"{path} is an image.", EXTRACT)
    if start.lstrip()[:9].lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return FsbenchError(f"{path} is a web page, saved in place of the file.", "Download it in a browser.")
    if start.startswith(b"PK") or tarfile.is_tarfile(path):
        return _archive(path)
    for magic, (what, hint) in FOREIGN_STARTS.items():
        if start.startswith(magic):
            return FsbenchError(f"{path} is {what}.", hint)
    if start.lstrip()[:1] in {b"{", b"["}:
        return FsbenchError(f"{path} is JSON text, not features.", EXPECTED)
    return FsbenchError(f"{path} is no file of features that fsbench knows; it starts with {start[:12]!r}.", EXPECTED)


def _archive(path: Path) -> FsbenchError:
    """Names an archive by its members, without unpacking any."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
        else:
            with tarfile.open(path) as tar:
                names = [member.name for member in tar if member.isfile()]
    except Exception:  # what is left of a damaged archive is not worth telling apart
        return FsbenchError(f"{path} is a damaged archive.", "Copy it again.")
    if any(is_image(name.rpartition("/")[2]) for name in names):
        return FsbenchError(f"{path} is an archive of images.", f"Unpack it. {EXTRACT}")
    listed = ", ".join(names[:3]) or "nothing"
    return FsbenchError(f"{path} is an archive that contains {listed}.", "Unpack it, and name the files in it.")
