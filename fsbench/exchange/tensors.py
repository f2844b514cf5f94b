"""Files of tensors: `torch.save`, safetensors, and pickles, read without running anything that they ask for."""

from __future__ import annotations

import math
import pickle
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fsbench.errors import FsbenchError
from fsbench.exchange.content import Container, Opened, zip_members
from fsbench.io.pickles import Unfinished, checked_shape, read_plain_pickle, replaced
from fsbench.io.torch_files import is_legacy, is_safetensors, read_embedded, read_safetensors, read_torch

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.io.pickles import Names

_TEXT_PROTOCOLS = (b"ccollections\n", b"(dp", b"(lp", b"(d.", b"(l.", b"}q", b"]q")


def _is_torch(path: Path, start: bytes) -> bool:
    """A zip archive with an index of tensors, or the mark of old torch files."""
    return is_legacy(start) or any(name.endswith("/data.pkl") for name in zip_members(path, start))


def _read_torch(path: Path) -> Opened:
    room = path.stat().st_size
    return Opened(path, replaced(read_torch(path), _Arrays(room).of, {}), room)


class _Arrays:
    """Turns the tensors of a file into arrays, which take no more memory than the file can hold."""

    def __init__(self, room: int) -> None:
        self.left = room

    def of(self, tensor: object) -> Any:
        """A dense tensor of real numbers as an array, numpy's numbers too, other values as they are."""
        if not isinstance(tensor, Tensor):
            return np.asarray(tensor) if isinstance(tensor, np.number) else tensor
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_complex() or tensor.is_meta:
            raise FsbenchError("It holds a tensor that is not a plain one of real numbers.", "Save it dense.")
        if tensor.dtype.is_floating_point and tensor.dtype not in {torch.float16, torch.float32, torch.float64}:
            self.left -= tensor.numel() * tensor.element_size()  # the others share the memory of their file
            if self.left < 0:
                raise FsbenchError("It claims tensors of more bytes than a file of its size can hold.")
            tensor = tensor.float()  # numpy knows no bfloat16
        return tensor.detach().cpu().numpy()


def _is_safetensors(path: Path, start: bytes) -> bool:
    """A header of JSON after eight bytes for its length."""
    return is_safetensors(start) and 8 + int.from_bytes(start[:8], "little") <= path.stat().st_size


def _read_safetensors(path: Path) -> Opened:
    room = path.stat().st_size
    return Opened(path, replaced(read_safetensors(path)[0], _Arrays(room).of, {}), room)


def _is_pickle(path: Path, start: bytes) -> bool:
    """Protocols from 2 on have a mark; the older ones begin with what they hold."""
    return (start[:1] == b"\x80" and not is_legacy(start)) or start.startswith(_TEXT_PROTOCOLS)


def _read_pickle(path: Path) -> Opened:
    """Dicts, lists, numbers, numpy arrays; tensors become arrays."""
    storages: dict[int, _Storage] = {}  # each holds on to its content, so that no number is given twice

    def storage(content: object) -> _Storage:
        return storages.setdefault(id(content), _Storage(path, content))

    names: Names = {("torch._utils", "_rebuild_tensor_v2"): _Tensor, ("torch.storage", "_load_from_bytes"): storage}
    return Opened(path, read_plain_pickle(path, names), path.stat().st_size)


class _Storage(Unfinished):
    """Stands in for the data of tensors: a torch file of the old kind, inside the pickle."""

    def __init__(self, path: Path, content: object) -> None:
        if not isinstance(content, bytes):
            raise pickle.UnpicklingError(f"it has a {type(content).__name__} in the place of a tensor's data")
        self.path, self.content = path, content

    @cached_property
    def flat(self) -> Any:
        """All its numbers, read once for all tensors that share it."""
        stored: Any = read_embedded(self.path, self.content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # storages with a type are how old pickles write tensors
            tensor = torch.tensor([], dtype=stored.dtype).set_(stored.untyped())
        return _Arrays(len(self.content)).of(tensor)


class _Tensor(Unfinished):
    """Stands in for a tensor that was pickled as it is."""

    def __init__(self, storage: object, offset: object, size: object, stride: object, *_: object) -> None:
        if not isinstance(storage, _Storage):
            raise pickle.UnpicklingError(f"it has a {type(storage).__name__} in the place of a tensor's data")
        self.storage, self.size, self.stride = storage, checked_shape(size), checked_shape(stride)
        (self.offset,) = checked_shape((offset,))

    def finished(self) -> object:
        flat = self.storage.flat
        if math.prod(self.size) > flat.size:
            raise ValueError(f"a tensor of shape {self.size} has {flat.size} numbers")
        return torch.from_numpy(flat).as_strided(self.size, self.stride, self.offset).numpy()


TORCH = Container("a torch file", _is_torch, _read_torch)
SAFETENSORS = Container("a safetensors file", _is_safetensors, _read_safetensors)
PICKLE = Container("a pickle", _is_pickle, _read_pickle)
