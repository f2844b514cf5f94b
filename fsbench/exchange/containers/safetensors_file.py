"""Safetensors files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsbench.exchange.containers.torch_file import Arrays
from fsbench.exchange.found import Opened, reading
from fsbench.io.torch_files import read_safetensors

if TYPE_CHECKING:
    from pathlib import Path

CONTAINER = "a safetensors file"


def recognise(path: Path, start: bytes) -> bool:
    """A header of JSON after eight bytes for its length."""
    return start[8:10] == b'{"' and 8 + int.from_bytes(start[:8], "little") <= path.stat().st_size


def read(path: Path) -> Opened:
    """Arrays by name."""
    with reading(path, CONTAINER):
        tensors, _ = read_safetensors(path)
        room = path.stat().st_size
        arrays = Arrays(room)
        return Opened(path, CONTAINER, {name: arrays.of(tensor) for name, tensor in tensors.items()}, room)
