"""From a file of unknown kind to the rows in it, or to a message that names what it is instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fsbench.errors import FsbenchError
from fsbench.exchange.classes import BY_CLASS, SIMPLESHOT, STACKED
from fsbench.exchange.containers import EXTRACT, Recognised, open_file, reading, text_of
from fsbench.exchange.rows import ROWS

if TYPE_CHECKING:
    from pathlib import Path

LAYOUTS = (ROWS, SIMPLESHOT, BY_CLASS, STACKED)
_EXPECTED = (
    "Recognised are: rows with labels (npz, dicts of tensors, S2M2's HDF5), vectors by class (pickles of S2M2, "
    "PT-MAP, SimpleShot), and tensors (classes, images, D) as EASY's."
)
_WEIGHT_ENDS = (".weight", ".bias", ".running_mean", "num_batches_tracked")


def read_file(path: Path, dataset: str, split: str = "") -> tuple[str, Recognised]:
    """What a file is, in words, and the rows in it.

    The data set tells how stacked classes divide; `split` is the user's word on which split the file holds, if any.
    """
    container, content = open_file(path)
    with reading(path, container):
        _refuse_checkpoint(path, content)
        for layout in LAYOUTS:
            if layout.recognise(content):
                return f"{container.partition(' ')[2]}: {layout.name}", layout.read(content, dataset, split)
        raise _foreign_content(path, container, content)


def _refuse_checkpoint(path: Path, content: object) -> None:
    """Refuse the weights of a network: their tables look like features."""
    inner = content.values() if isinstance(content, Mapping) else ()
    for candidate in (content, *inner):
        keys = [text_of(key) or "" for key in candidate] if isinstance(candidate, Mapping) else []
        if any(key.endswith(_WEIGHT_ENDS) for key in keys):
            message = f"{path} is a checkpoint: the weights of a network, not features."
            raise FsbenchError(message, f"Extract features with it: fsbench extract --weights {path}.")


def _foreign_content(path: Path, container: str, content: object) -> FsbenchError:
    """The error for a readable file in which no layout was recognised."""
    if isinstance(content, np.ndarray):
        what = f"one array of {content.dtype}, shape {content.shape}"
        return FsbenchError(f"{path} holds {'images: ' if _is_images(content) else ''}{what}.", _EXPECTED)
    if isinstance(content, list):
        if len(content) == 2 and all(map(_is_mean, content)):
            return FsbenchError(f"{path} holds means of base features alone.", "Give the output.plk beside it.")
        return FsbenchError(f"{path} holds a list of {len(content)}, not a recognised layout of features.", _EXPECTED)
    if not isinstance(content, Mapping):
        return FsbenchError(f"{path} holds a {type(content).__name__}, not features.", _EXPECTED)
    names = [str(text_of(key) or key) for key in content]
    if {"image_data", "fine_labels", "coarse_labels"} & set(names) or any(map(_is_images, content.values())):
        return FsbenchError(f"{path} holds images ({', '.join(names[:4])}), not features.", EXTRACT)
    listed = ", ".join(names[:6]) or "nothing"
    message = f"{path} is {container} without features that fsbench recognises; it holds {listed}."
    return FsbenchError(message, _EXPECTED)


def _is_mean(value: object) -> bool:
    return isinstance(value, float | int | np.ndarray) and np.ndim(value) < 2


def _is_images(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim >= 2
