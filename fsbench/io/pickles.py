"""Pickles of other programs, read without executing anything in them.

A pickle can name any function of any module and have it called. `read_plain_pickle` maps the few names that arrays,
tensors and dicts are stored under to functions of its own, and refuses every other name.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbench.errors import FsbenchError


def read_plain_pickle(path: Path) -> object:
    """Read a pickle of dicts, lists, strings, bytes, numbers, numpy arrays and tensors, which become arrays."""
    try:
        with path.open("rb") as file:
            content = _PlainUnpickler(file, encoding="bytes").load()
        return replaced(content, lambda value: value.array if isinstance(value, _Array) else value, {})
    except Exception as error:  # damaged pickles raise exceptions of every type
        reason = str(error).partition("\n")[0] or type(error).__name__
        hint = "The file is damaged or holds other things than arrays. Nothing in it was executed. Copy it again."
        raise FsbenchError(f"Could not read {path} as a pickle of plain data: {reason}.", hint) from error


def replaced(value: object, replace: Callable[[object], object], done: dict[int, Any]) -> object:
    """Dicts and lists with all other values replaced; `done` maps parts that occur several times to their results."""
    if id(value) not in done:
        if isinstance(value, dict):
            done[id(value)] = {}  # before its items, which may hold it
            done[id(value)].update((key, replaced(item, replace, done)) for key, item in value.items())
        elif isinstance(value, list | tuple):
            done[id(value)] = []
            done[id(value)].extend(replaced(item, replace, done) for item in value)
        else:
            done[id(value)] = replace(value)
    return done[id(value)]


class _PlainUnpickler(pickle._Unpickler):  # the compiled one fills all memory if a number in the file is damaged
    """An unpickler that admits the names in `_ADMITTED` and no others."""

    def find_class(self, module: str, name: str) -> Any:
        place = "numpy" if module.startswith("numpy.") else module  # numpy has moved its functions around
        if (place, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module[:100]}.{name[:100]}, which is not admitted")
        return _ADMITTED[place, name]

    def get_extension(self, code: int) -> None:
        """Refuse numbers in place of names: those that were used before would not come through `find_class`."""
        raise pickle.UnpicklingError(f"it asks for extension {code}, which is not admitted")


class _DType:
    """Stands in for a numpy dtype, whose own `__setstate__` believes any size."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.code, self.order = code, "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]

    def resolve(self) -> np.dtype[Any]:
        parts = (part.decode("ascii") if isinstance(part, bytes) else part for part in (self.order, self.code))
        if not re.fullmatch(r"[<>|=][biuf]\d{1,2}", text := "".join(parts)):
            raise pickle.UnpicklingError(f"arrays of {text[:20]!r} are not admitted")
        return np.dtype(text)


class _Array:
    """Stands in for a numpy array, which a pickle creates first and fills later."""

    array: NDArray[Any] | None = None

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, column_major, content = state
        self.array = _filled(content, dtype, shape, "F" if column_major else "C")


def _filled(content: bytes, dtype: _DType, shape: Any, order: Any) -> NDArray[Any]:
    return np.frombuffer(content, dtype.resolve()).reshape(shape, order=order)


def _encoded(text: str, encoding: str) -> bytes:
    """Bytes, as Python 3 stores them in an old pickle protocol."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding!r}")
    return text.encode("latin1")


def _storage(content: bytes) -> Any:
    """The numbers of a tensor: a torch file inside the pickle."""
    from fsbench.io.torch_files import read_storage  # noqa: PLC0415 - imports torch, and most pickles hold no tensors

    return read_storage(content)


def _tensor(storage: Any, offset: int, size: Any, stride: Any, *_: object) -> Any:
    return storage.as_strided(size, stride, offset).numpy()


_ADMITTED: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "_reconstruct"): _Array,
    ("numpy", "dtype"): _DType,
    ("numpy", "_frombuffer"): _filled,
    ("numpy", "scalar"): lambda dtype, content: _filled(content, dtype, (), "C").item(),
    ("_codecs", "encode"): _encoded,
    **{(module, kind.__name__): kind for module in ("builtins", "__builtin__") for kind in (bytes, list)},
    ("collections", "defaultdict"): lambda *_: {},
    ("collections", "OrderedDict"): lambda *_: {},
    ("torch.storage", "_load_from_bytes"): _storage,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
}
