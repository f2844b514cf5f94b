"""From a file of unknown kind to the rows in it, or to a message that names what it is instead."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fsbench.backbones.checkpoints import FOREIGN_STARTS
from fsbench.data.images import is_image
from fsbench.errors import FsbenchError, missing_file
from fsbench.exchange.arrays import HDF5, NPY, NPZ
from fsbench.exchange.classes import BY_CLASS, SIMPLESHOT, STACKED
from fsbench.exchange.content import Opened, Recognised, count_items, reading, text_of
from fsbench.exchange.rows import ROWS
from fsbench.exchange.tables import PARQUET, TEXT
from fsbench.exchange.tensors import PICKLE, SAFETENSORS, TORCH

if TYPE_CHECKING:
    from pathlib import Path

CONTAINERS = (HDF5, TORCH, NPZ, NPY, PARQUET, SAFETENSORS, PICKLE, TEXT)  # in the order in which they are tried
LAYOUTS = (ROWS, SIMPLESHOT, BY_CLASS, STACKED)
_START = 4096
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF")
_EXPECTED = (
    "Known are: rows with labels (npz, HDF5, csv, parquet, dicts of tensors), vectors by class (pickles of S2M2, "
    "PT-MAP, SimpleShot), and tensors (classes, images, D) as EASY's."
)
_EXTRACT = "Extract features first: fsbench extract --data FOLDER."
_WEIGHT_ENDS = (".weight", ".bias", ".running_mean", "num_batches_tracked")


def open_file(path: Path) -> tuple[str, Opened]:
    """What kind of file it is, with its article, and its content by the container that recognises it."""
    try:
        with path.open("rb") as file:
            start = file.read(_START)
    except IsADirectoryError:
        raise FsbenchError(f"{path} is a folder.", "Name the files in it.") from None
    except FileNotFoundError:
        raise missing_file(path, "Check the path.") from None
    except OSError as error:
        raise FsbenchError(f"{path} cannot be read: {error.strerror or error}.") from error
    for container in CONTAINERS:
        if container.recognise(path, start):
            with reading(path, container.name):
                return container.name, container.read(path)
    raise _foreign_file(path, start)


def read_file(path: Path, dataset: str, split: str = "") -> tuple[str, Recognised]:
    """What a file is, in words, and the rows in it.

    The data set tells how stacked classes divide; `split` is the user's word on which split the file holds, if any.
    """
    container, opened = open_file(path)
    with reading(path, container):
        opened.check_room(count_items(opened.content, {}), "values")  # an item that is not shared takes a byte
        _refuse_checkpoint(opened)
        for layout in LAYOUTS:
            if layout.recognise(opened.content):
                rows = layout.read(opened, dataset, split)
                kind = f"{container.partition(' ')[2]}: {layout.name}"
                return kind, replace(rows, remarks=opened.remarks + rows.remarks)
        raise _foreign_content(path, container, opened.content)


def _refuse_checkpoint(opened: Opened) -> None:
    """Refuse the weights of a network: their tables look like features."""
    content = opened.content
    inner = content.values() if isinstance(content, Mapping) else ()
    for candidate in (content, *inner):
        keys = [text_of(key) or "" for key in candidate] if isinstance(candidate, Mapping) else []
        if any(key.endswith(_WEIGHT_ENDS) for key in keys):
            raise FsbenchError(
                f"{opened.path} is a checkpoint: the weights of a network, not features.",
                f"Extract features with it: fsbench extract --weights {opened.path}.",
            )


def _foreign_content(path: Path, container: str, content: object) -> FsbenchError:
    """The error for a readable file in which no layout was recognised."""
    if isinstance(content, np.ndarray):
        what = f"one array of {content.dtype}, shape {content.shape}"
        return FsbenchError(f"{path} holds {'images: ' if _is_images(content) else ''}{what}.", _EXPECTED)
    if isinstance(content, list):
        if len(content) == 2 and all(map(_is_mean, content)):
            return FsbenchError(f"{path} holds means of base features alone.", "Give the output.plk beside it.")
        return FsbenchError(f"{path} holds a list of {len(content)}, not a known layout of features.", _EXPECTED)
    if not isinstance(content, Mapping):
        return FsbenchError(f"{path} holds a {type(content).__name__}, not features.", _EXPECTED)
    names = [str(text_of(key) or key) for key in content]
    if {"image_data", "fine_labels", "coarse_labels"} & set(names) or any(map(_is_images, content.values())):
        return FsbenchError(f"{path} holds images ({', '.join(names[:4])}), not features.", _EXTRACT)
    listed = ", ".join(names[:6]) or "nothing"
    return FsbenchError(f"{path} is {container} without features that fsbench knows; it holds {listed}.", _EXPECTED)


def _is_mean(value: object) -> bool:
    return isinstance(value, float | int | np.ndarray) and np.ndim(value) < 2


def _is_images(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim >= 2


def _foreign_file(path: Path, start: bytes) -> FsbenchError:
    """The error for a file that no container recognises."""
    if not start:
        return FsbenchError(f"{path} is empty.", "Download or copy it again.")
    if start.startswith(_IMAGES):
        return FsbenchError(f"{path} is an image.", _EXTRACT)
    if start.lstrip()[:9].lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return FsbenchError(f"{path} is a web page, saved in place of the file.", "Download it in a browser.")
    if start.startswith(b"PK") or tarfile.is_tarfile(path):
        return _archive(path)
    for magic, (what, hint) in FOREIGN_STARTS.items():
        if start.startswith(magic):
            return FsbenchError(f"{path} is {what}.", hint)
    if start.lstrip()[:1] in {b"{", b"["}:
        return FsbenchError(f"{path} is JSON text, not features.", _EXPECTED)
    return FsbenchError(f"{path} is not a feature file that fsbench knows; it starts with {start[:12]!r}.", _EXPECTED)


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
        return FsbenchError(f"{path} is an archive of images.", f"Unpack it. {_EXTRACT}")
    listed = ", ".join(names[:3]) or "nothing"
    return FsbenchError(f"{path} is an archive that contains {listed}.", "Unpack it, and name the files in it.")
