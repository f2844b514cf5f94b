"""Files of `torch.save`, new and old, read as weights only."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fsbench.errors import FsbenchError
from fsbench.exchange.found import Opened, reading
from fsbench.io.torch_files import is_legacy, read_torch

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

CONTAINER = "a torch file"


def recognise(path: Path, start: bytes) -> bool:
    """A zip archive with an index of tensors, or the mark of old torch files."""
    if is_legacy(start):
        return True
    if not start.startswith(b"PK\x03\x04"):
        return False
    with reading(path, "a zip archive"), zipfile.ZipFile(path) as archive:
        return any(name.endswith("/data.pkl") for name in archive.namelist())


def read(path: Path) -> Opened:
    """Whatever was saved, with tensors as arrays."""
    with reading(path, CONTAINER):
        room = path.stat().st_size
        return Opened(path, CONTAINER, plain(read_torch(path), Arrays(room), {}), room)


class Arrays:
    """Turns the tensors of a file into arrays, which take no more memory than the file can hold."""

    def __init__(self, room: int) -> None:
        self.left = room

    def of(self, tensor: Tensor) -> NDArray[Any]:
        """A dense tensor of real numbers as an array; numpy knows no bfloat16."""
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_complex() or tensor.is_meta:
            raise FsbenchError("It holds a tensor that is not a plain one of real numbers.", "Save it dense.")
        if tensor.dtype.is_floating_point and tensor.dtype not in {torch.float16, torch.float32, torch.float64}:
            self.left -= tensor.numel() * tensor.element_size()  # the others share the memory of their file
            if self.left < 0:
                raise FsbenchError("It claims tensors of more bytes than a file of its size can hold.")
            tensor = tensor.float()
        array: NDArray[Any] = tensor.detach().cpu().numpy()
        return array


def plain(value: object, arrays: Arrays, done: dict[int, object]) -> object:
    """Replace tensors by arrays; `done` keeps what is shared from being gone through twice."""
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, Tensor):
        done[id(value)] = arrays.of(value)
    elif isinstance(value, dict):
        pairs: dict[object, object] = {}
        done[id(value)] = pairs
        pairs.update({key: plain(item, arrays, done) for key, item in value.items()})
    elif isinstance(value, list | tuple):
        items: list[object] = []
        done[id(value)] = items
        items.extend(plain(item, arrays, done) for item in value)
    else:
        return np.asarray(value) if isinstance(value, np.number) else value
    return done[id(value)]
