"""Pickles of arrays and tensors, read without running anything that they ask for."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from fsbench.data.plain_pickle import StandIn, read_plain_pickle
from fsbench.exchange.found import Opened

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fsbench.data.plain_pickle import Names

CONTAINER = "a pickle"
_TEXT_PROTOCOLS = (b"ccollections\n", b"(dp", b"(lp", b"(d.", b"(l.", b"}q", b"]q")


def recognise(path: Path, start: bytes) -> bool:
    """Protocols from 2 on have a mark; the older ones begin with what they hold."""
    from fsbench.backbones.checkpoints import is_legacy

    return (start[:1] == b"\x80" and not is_legacy(start)) or start.startswith(_TEXT_PROTOCOLS)


def read(path: Path) -> Opened:
    """Dicts, lists, numbers, numpy arrays; tensors become arrays."""
    names: Names = {
        ("torch._utils", "_rebuild_tensor_v2"): lambda *arguments: _Tensor(path, *arguments),
        ("torch.storage", "_load_from_bytes"): _Storage,
    }
    return Opened(path, CONTAINER, read_plain_pickle(path, names), path.stat().st_size)


class _Storage(StandIn):
    """Stands in for the data of a tensor: a torch file of the old kind, inside the pickle."""

    def __init__(self, content: bytes) -> None:
        self.content = content


class _Tensor(StandIn):
    """Stands in for a tensor that was pickled as it is."""

    def __init__(
        self, path: Path, storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object
    ) -> None:
        self.path, self.storage = path, storage
        self.offset, self.size, self.stride = offset, size, stride

    def finished(self) -> NDArray[Any]:
        """The tensor as an array."""
        import torch

        from fsbench.backbones.checkpoints import read_embedded
        from fsbench.exchange.containers.torch_file import array_of

        stored: Any = read_embedded(self.path, self.storage.content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # storages with a type are how old pickles write tensors
            flat = torch.tensor([], dtype=stored.dtype).set_(stored.untyped())
        if math.prod(self.size) > flat.numel():
            raise ValueError(f"a tensor of shape {self.size} has {flat.numel()} numbers")
        return array_of(flat.as_strided(self.size, self.stride, self.offset))
