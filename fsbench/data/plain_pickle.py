"""Pickles of plain data, read without running anything that they ask for."""

from __future__ import annotations

import math
import pickle
from typing import IO, TYPE_CHECKING, Any, ClassVar

import numpy as np

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Names = Mapping[tuple[str, str], Callable[..., object]]


def read_plain_pickle(path: Path, names: Names | None = None) -> object:
    """Read a pickle of dicts, lists, strings, bytes, numbers and numpy arrays; anything else is refused.

    A pickle is a program. This reader lets it name nothing but the parts of which a stored array consists,
    and gives it stand-ins for these, so that no foreign code runs.

    Args:
        path: The file.
        names: Stand-ins for further names, by module and name.

    Raises:
        FsbenchError: The file is damaged, or asks for anything else.
    """
    try:
        with path.open("rb") as file:
            clipped = _Clipped(file, path.stat().st_size)
            return _finish(_PlainUnpickler(clipped, names or {}).load(), {})
    except FsbenchError:
        raise
    except Exception as error:  # damaged pickles end in errors of every kind
        raise FsbenchError(
            f"Could not read {path} as a pickle of plain data: {error}",
            "The file is damaged or not what it claims to be. Nothing in it was executed. Copy it again.",
        ) from error


class _Clipped:
    """A file that refuses to read more than it has, before memory is reserved for it."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file = file
        self.left = size
        self.size = size

    def read(self, count: int) -> bytes:
        """Exactly that many bytes."""
        self.left -= count
        if count < 0 or self.left < 0:
            raise EOFError(f"it claims {count} bytes more than the {self.size} it has")
        return self.file.read(count)

    def readline(self) -> bytes:
        """The bytes up to the end of a line."""
        line = self.file.readline()
        self.left -= len(line)
        return line


class StandIn:
    """Takes the place of an object of another library while a pickle is read."""

    def finished(self) -> object:
        """The plain value that it stands for."""
        raise NotImplementedError

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError(f"a {type(self).__name__.strip('_')} takes no state")


class _DType(StandIn):
    """Stands in for a numpy dtype while a pickle is read."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = _text(code)
        self.order = "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:  # type: ignore[override]
        self.order = _text(state[1])

    def resolve(self) -> np.dtype[Any]:
        """The dtype itself, if it is one of plain numbers."""
        dtype = np.dtype(self.order.strip("|=") + self.code)
        if dtype.kind not in "biuf":
            raise ValueError(f"arrays of {self.code!r} are not admitted")
        return dtype


def _text(value: object) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


class _Array(StandIn):
    """Stands in for a numpy array while a pickle is read."""

    def __init__(self, *_: object) -> None:
        self.value: NDArray[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:  # type: ignore[override]
        _, shape, dtype, column_major, content = state
        self.value = _array(content, dtype, shape, "F" if column_major else "C")

    def finished(self) -> NDArray[Any] | None:
        """The array."""
        return self.value


class _Scalar(StandIn):
    """Stands in for a numpy number while a pickle is read."""

    def __init__(self, dtype: _DType, content: bytes) -> None:
        self.dtype, self.content = dtype, content

    def finished(self) -> int | float:
        """The number."""
        number: int | float = _array(self.content, self.dtype, (1,), "C").item()
        return number


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


def _empty_dict(*_: object) -> dict[object, object]:
    """Stands in for the kinds of dict that the standard library has beside its own."""
    return {}


def _empty_list() -> list[object]:
    """What a defaultdict of lists names."""
    return []


_NUMPY_PARTS: dict[str, Callable[..., object]] = {
    "ndarray": _Array,
    "dtype": _DType,
    "_reconstruct": _Array,
    "_frombuffer": _frombuffer,
    "scalar": _Scalar,
}
_OTHERS: Names = {
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,
    ("builtins", "bytes"): _no_bytes,
    ("builtins", "list"): _empty_list,
    ("__builtin__", "list"): _empty_list,
    ("collections", "defaultdict"): _empty_dict,
    ("collections", "OrderedDict"): _empty_dict,
}


# The pure Python unpickler: the compiled one reserves memory for whatever memo index a file claims.
class _PlainUnpickler(pickle._Unpickler):
    """An unpickler that knows the parts of a stored numpy array by name, and nothing else."""

    def __init__(self, file: _Clipped, names: Names) -> None:
        super().__init__(file, encoding="bytes")
        self.names = names

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name that the pickle asks for."""
        if module.split(".")[0] == "numpy" and name in _NUMPY_PARTS:
            return _NUMPY_PARTS[name]
        found = self.names.get((module, name)) or _OTHERS.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not admitted")
        return found

    def _build(self) -> None:
        """Give a state to a stand-in; nothing else has one that a file may set."""
        state = self.stack.pop()  # type: ignore[attr-defined]
        receiver = self.stack[-1]  # type: ignore[attr-defined]
        if not isinstance(receiver, StandIn):
            raise pickle.UnpicklingError(f"it sets the state of a {type(receiver).__name__}")
        receiver.__setstate__(state)

    def _bytearray(self) -> None:
        """Read before reserving: the claimed length may be anything."""
        length = int.from_bytes(self.read(8), "little")  # type: ignore[attr-defined]
        self.append(self.read(length))  # type: ignore[attr-defined]

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.BUILD[0]: _build,
        pickle.BYTEARRAY8[0]: _bytearray,
    }


def _finish(value: object, done: dict[int, object]) -> object:
    """Replace the stand-ins by the values they hold; `done` keeps what is shared from being gone through twice."""
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, StandIn):
        done[id(value)] = value.finished()
    elif isinstance(value, dict):
        pairs: dict[object, object] = {}
        done[id(value)] = pairs
        for key, item in value.items():
            pairs[_finish(key, done)] = _finish(item, done)
    elif isinstance(value, list | tuple) and any(isinstance(item, StandIn | list | tuple | dict) for item in value):
        items: list[object] = []
        done[id(value)] = items
        items.extend(_finish(item, done) for item in value)
    elif callable(value):
        raise pickle.UnpicklingError("it holds a function or a class")
    else:
        return value
    return done[id(value)]
