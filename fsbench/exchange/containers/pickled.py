"""Pickles of arrays and tensors, read without running anything that they ask for."""

from __future__ import annotations

import math
import pickle
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from fsbench.exchange.containers.torch_file import Arrays
from fsbench.exchange.found import Opened
from fsbench.io.pickles import Unfinished, checked_shape, read_plain_pickle
from fsbench.io.torch_files import is_legacy, read_embedded

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fsbench.io.pickles import Names

CONTAINER = "a pickle"
_TEXT_PROTOCOLS = (b"ccollections\n", b"(dp", b"(lp", b"(d.", b"(l.", b"}q", b"]q")


def recognise(path: Path, start: bytes) -> bool:
    """Protocols from 2 on have a mark; the older ones begin with what they hold."""
    return (start[:1] == b"\x80" and not is_legacy(start)) or start.startswith(_TEXT_PROTOCOLS)


def read(path: Path) -> Opened:
    """Dicts, lists, numbers, numpy arrays; tensors become arrays."""
    storages: dict[int, _Storage] = {}  # each holds on to its content, so that no number is given twice

    def storage(content: object) -> _Storage:
        return storages.setdefault(id(content), _Storage(path, content))

    names: Names = {
        ("torch._utils", "_rebuild_tensor_v2"): _Tensor,
        ("torch.storage", "_load_from_bytes"): storage,
    }
    return Opened(path, CONTAINER, read_plain_pickle(path, names), path.stat().st_size)


class _Storage(Unfinished):
    """Stands in for the data of tensors: a torch file of the old kind, inside the pickle."""

    def __init__(self, path: Path, content: object) -> None:
        if not isinstance(content, bytes):
            raise pickle.UnpicklingError(f"it has a {type(content).__name__} in the place of a tensor's data")
        self.path, self.content = path, content

    @cached_property
    def flat(self) -> NDArray[Any]:
        """All its numbers, read once for all tensors that share it."""
        stored: Any = read_embedded(self.path, self.content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # storages with a type are how old pickles write tensors
            tensor = torch.tensor([], dtype=stored.dtype).set_(stored.untyped())
        return Arrays(len(self.content)).of(tensor)


class _Tensor(Unfinished):
    """Stands in for a tensor that was pickled as it is."""

    def __init__(self, storage: object, offset: object, size: object, stride: object, *_: object) -> None:
        if not isinstance(storage, _Storage):
            raise pickle.UnpicklingError(f"it has a {type(storage).__name__} in the place of a tensor's data")
        self.storage, self.size, self.stride = storage, checked_shape(size), checked_shape(stride)
        (self.offset,) = checked_shape((offset,))

    def finished(self) -> NDArray[Any]:
        """The tensor as an array."""
        flat = self.storage.flat
        if math.prod(self.size) > flat.size:
            raise ValueError(f"a tensor of shape {self.size} has {flat.size} numbers")
        array: NDArray[Any] = torch.from_numpy(flat).as_strided(self.size, self.stride, self.offset).numpy()
        return array
