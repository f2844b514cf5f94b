"""Pickles of plain data, read without running anything that they ask for."""

from __future__ import annotations

import math
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray


def read_plain_pickle(path: Path) -> object:
    """Read a pickle of dicts, lists, strings, bytes, numbers and numpy arrays; anything else is refused.

    A pickle is a program. This reader lets it name nothing but the parts of which a stored array consists,
    and gives it stand-ins for these, so that no foreign code runs.

    Raises:
        FsbenchError: The file is damaged, or asks for anything else.
    """
    try:
        with path.open("rb") as file:
            return _finish(_PlainUnpickler(file, encoding="bytes").load())
    except FsbenchError:
        raise
    except Exception as error:  # damaged pickles end in errors of every kind
        raise FsbenchError(
            f"Could not read {path} as a pickle of plain data: {error}",
            "The file is damaged or not what it claims to be. Nothing in it was executed. Copy it again.",
        ) from error


class _DType:
    """Stands in for a numpy dtype while a pickle is read."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = _text(code)
        self.order = "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = _text(state[1])

    def resolve(self) -> np.dtype[Any]:
        """The dtype itself, if it is one of plain numbers."""
        dtype = np.dtype(self.order.strip("|=") + self.code)
        if dtype.kind not in "biuf":
            raise ValueError(f"arrays of {self.code!r} are not admitted")
        return dtype


def _text(value: object) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


class _Array:
    """Stands in for a numpy array while a pickle is read."""

    def __init__(self, *_: object) -> None:
        self.value: NDArray[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, column_major, content = state
        self.value = _array(content, dtype, shape, "F" if column_major else "C")


def _array(content: bytes, dtype: _DType, shape: tuple[int, ...], order: str) -> NDArray[Any]:
    resolved = dtype.resolve()
    expected = math.prod(shape) * resolved.itemsize
    if len(content) != expected:
        raise ValueError(f"an array of shape {shape} needs {expected} bytes, found {len(content)}")
    flat = np.frombuffer(content, resolved)
    return flat.reshape(shape[::-1]).T if order == "F" else flat.reshape(shape)


def _encode(text: str, encoding: str) -> bytes:
    """What a newer Python writes into old pickle protocols in place of bytes."""
    if encoding != "latin1":
        raise ValueError(f"the encoding {encoding!r} is not admitted")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """What a newer Python writes into old pickle protocols in place of bytes of length 0."""
    return b""


def _frombuffer(content: bytes, dtype: _DType, shape: tuple[int, ...], order: str) -> _Array:
    array = _Array()
    array.value = _array(content, dtype, shape, order)
    return array


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler that knows the parts of a stored numpy array by name, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name that the pickle asks for."""
        numpy_parts: dict[str, Callable[..., object]] = {
            "ndarray": _Array,
            "dtype": _DType,
            "_reconstruct": _Array,
            "_frombuffer": _frombuffer,
        }
        if module.split(".")[0] == "numpy" and name in numpy_parts:
            return numpy_parts[name]
        if (module, name) == ("_codecs", "encode"):
            return _encode
        if (module, name) == ("__builtin__", "bytes"):
            return _no_bytes
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not admitted")


def _finish(value: object) -> object:
    """Replace the stand-ins by the arrays they hold."""
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, dict):
        return {key: _finish(item) for key, item in value.items()}
    if isinstance(value, list) and any(isinstance(item, _Array | list | dict) for item in value):
        return [_finish(item) for item in value]
    return value
