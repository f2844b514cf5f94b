"""Pickles of strangers, read without executing anything.

A pickle is a program: it can name any function and have it called, claim any size, and nest keys so that hashing them
never ends. `CarefulUnpickler` builds plain values only, believes no size and checks every key; what a name in a pickle
stands for is up to the readers that derive from it. `read_plain_pickle` admits dicts, lists, numbers and numpy arrays;
`torch_files` derives the reader that looks through the pickle inside a torch file.
"""

from __future__ import annotations

import math
import pickle
import re
from typing import IO, TYPE_CHECKING, Any, ClassVar

import numpy as np

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Names = Mapping[tuple[str, str], Callable[..., object]]

_LARGEST_KEY = 1 << 53
_LARGEST_MEMO = 1 << 32
_LARGEST_AXIS = 1 << 48
_MOST_AXES = 32
_KEYS = frozenset({str, bytes, bool, float, type(None)})


class _Clipped:
    """A file that refuses to read more than it has, before memory is reserved for it."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.left, self.size = file, size, size

    def read(self, count: int) -> bytes:
        self.left -= count
        if count < 0 or self.left < 0:
            raise EOFError(f"it claims {count} bytes more than the {self.size} it has")
        return self.file.read(count)

    def readline(self) -> bytes:
        line = self.file.readline()
        self.left -= len(line)
        return line


class StandIn:
    """Takes the place of an object of another library while a pickle is read."""

    may_be_key = False

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError(f"a {type(self).__name__.strip('_')} takes no state")

    def __setitem__(self, key: object, value: object) -> None:
        raise pickle.UnpicklingError(f"a {type(self).__name__.strip('_')} takes no items")


def checked_key(key: object) -> object:
    """The key, if a dict or a set can be trusted with it: hashing nested tuples or chosen numbers may never end."""
    kind = type(key)
    admitted = kind in _KEYS or (kind is int and -_LARGEST_KEY < key < _LARGEST_KEY)  # type: ignore[operator]
    if admitted or (isinstance(key, StandIn) and key.may_be_key):
        return key
    raise pickle.UnpicklingError(f"it has a key that is not admitted, of the type {kind.__name__}")


def checked_shape(shape: object) -> tuple[int, ...]:
    """The shape of an array, if it is one: whole numbers, neither many nor huge."""
    if not isinstance(shape, tuple | list) or len(shape) > _MOST_AXES:
        raise pickle.UnpicklingError(f"it has the shape of an array as a {type(shape).__name__}")
    if not all(type(axis) is int and 0 <= axis < _LARGEST_AXIS for axis in shape):
        raise pickle.UnpicklingError("it has an array whose shape is not admitted")
    return tuple(shape)


def is_number_code(code: object) -> bool:
    """Whether numpy's short name of a type is that of plain numbers, such as `f4`."""
    return isinstance(code, str) and re.fullmatch(r"[biuf]\d{1,2}", code) is not None


# The pure Python unpickler: the compiled one reserves memory for whatever memo index a file claims.
class CarefulUnpickler(pickle._Unpickler):
    """Builds plain values; what a file names is up to `find_class` of the readers that derive from it.

    Messages tell the types of foreign values only: the text of a nested one may be longer than any memory.
    """

    stack: list[Any]
    memo: dict[int, Any]

    def __init__(self, file: IO[bytes], size: int, encoding: str) -> None:
        """Reads from a file of which `size` bytes are left."""
        super().__init__(_Clipped(file, size), encoding=encoding)

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name that the pickle asks for."""
        raise NotImplementedError

    def get_extension(self, code: int) -> None:
        """Refuse numbers in place of names."""
        raise pickle.UnpicklingError(f"it asks for the extension {code}")

    def _build(self) -> None:
        """Give a state to a stand-in; nothing else has one that a file may set."""
        state = self.stack.pop()
        receiver = self.stack[-1]
        if not isinstance(receiver, StandIn):
            raise pickle.UnpicklingError(f"it sets the state of a {type(receiver).__name__}")
        receiver.__setstate__(state)

    def _bytearray(self) -> None:
        """Read before reserving: the claimed length may be anything."""
        length = int.from_bytes(self.read(8), "little")  # type: ignore[attr-defined]
        self.append(self.read(length))  # type: ignore[attr-defined]

    def _put(self) -> None:
        """Remember a value under a number that is written as text."""
        number = int(self.readline())  # type: ignore[attr-defined]
        if not 0 <= number < _LARGEST_MEMO:
            raise pickle.UnpicklingError("it numbers its parts in a way that is not admitted")
        self.memo[number] = self.stack[-1]

    def _setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def _setitems(self) -> None:
        self._fill(self.pop_mark())  # type: ignore[attr-defined]

    def _dict(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        self.stack.append({})
        self._fill(items)

    def _fill(self, items: list[Any]) -> None:
        """Put keys and values, in turns, into the dict on the stack or into what stands for one."""
        target = self.stack[-1]
        if not isinstance(target, dict | StandIn):
            raise pickle.UnpicklingError(f"it sets items of a {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[checked_key(key)] = value

    def _additems(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        target = self.stack[-1]
        if not isinstance(target, set):
            raise pickle.UnpicklingError(f"it adds items to a {type(target).__name__}")
        target.update(map(checked_key, items))

    def _frozenset(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        self.stack.append(frozenset(map(checked_key, items)))

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.BUILD[0]: _build,
        pickle.BYTEARRAY8[0]: _bytearray,
        pickle.PUT[0]: _put,
        pickle.SETITEM[0]: _setitem,
        pickle.SETITEMS[0]: _setitems,
        pickle.DICT[0]: _dict,
        pickle.ADDITEMS[0]: _additems,
        pickle.FROZENSET[0]: _frozenset,
    }


def read_plain_pickle(path: Path, names: Names | None = None) -> object:
    """Read a pickle of dicts, lists, strings, bytes, numbers and numpy arrays; anything else is refused.

    It may name nothing but the parts that a stored array consists of, and gets stand-ins for these; `names` has
    stand-ins for further names, by module and name.
    """
    try:
        with path.open("rb") as file:
            return replaced(_PlainUnpickler(file, path.stat().st_size, names or {}).load(), _finish, {})
    except FsbenchError:
        raise
    except Exception as error:  # damaged pickles end in errors of every kind
        raise FsbenchError(
            f"Could not read {path} as a pickle of plain data: {error}",
            "The file is damaged or not what it claims to be. Nothing in it was executed. Copy it again.",
        ) from error


class Unfinished(StandIn):
    """A stand-in that gives way to a plain value once the pickle is read."""

    def finished(self) -> object:
        """The plain value that it stands for."""
        raise pickle.UnpicklingError(f"it holds a {type(self).__name__.strip('_')} by itself")


class _DType(Unfinished):
    """Stands in for a numpy dtype while a pickle is read."""

    def __init__(self, code: object, *_: object) -> None:
        self.code, self.order = _text(code), "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:  # type: ignore[override]
        self.order = _text(state[1])

    def resolve(self) -> np.dtype[Any]:
        if not is_number_code(self.code) or self.order not in {"<", ">", "|", "="}:
            raise ValueError(f"arrays of {self.code[:20]!r} are not admitted")
        return np.dtype(self.order.strip("|=") + self.code)


def _text(value: object) -> str:
    if not isinstance(value, str | bytes):
        raise pickle.UnpicklingError(f"it has a {type(value).__name__} in place of a word")
    return value.decode("ascii") if isinstance(value, bytes) else value


class _Array(Unfinished):
    """Stands in for a numpy array while a pickle is read."""

    def __init__(self, *_: object) -> None:
        self.value: NDArray[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:  # type: ignore[override]
        _, shape, dtype, column_major, content = state
        self.value = _array(content, dtype, shape, "F" if column_major else "C")

    def finished(self) -> NDArray[Any] | None:
        return self.value


def _scalar(dtype: object, content: object) -> Any:
    """A numpy number, as Python's."""
    return _array(content, dtype, (1,), "C").item()


def _array(content: object, dtype: object, shape: object, order: object) -> NDArray[Any]:
    if not isinstance(dtype, _DType):
        raise pickle.UnpicklingError(f"it has a {type(dtype).__name__} in place of a type of numbers")
    resolved, shape = dtype.resolve(), checked_shape(shape)
    if not isinstance(content, bytes):
        raise pickle.UnpicklingError(f"it has a {type(content).__name__} in place of an array's bytes")
    expected = math.prod(shape) * resolved.itemsize
    if len(content) != expected:
        raise ValueError(f"an array of shape {shape} needs {expected} bytes, found {len(content)}")
    flat = np.frombuffer(content, resolved)
    return flat.reshape(shape[::-1]).T if order == "F" else flat.reshape(shape)


def _encode(text: object, encoding: object) -> bytes:
    """What a newer Python writes into old pickle protocols in place of bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("it asks for an encoding other than latin1 of a text")
    return text.encode("latin1")


_NUMPY_PARTS: dict[str, Callable[..., object]] = {
    "ndarray": _Array, "dtype": _DType, "_reconstruct": _Array, "_frombuffer": _array, "scalar": _scalar,
}  # fmt: skip
_OTHERS: Names = {
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): lambda: b"",  # for no bytes, as a newer Python writes them into old protocols
    ("builtins", "bytes"): lambda: b"",
    ("__builtin__", "list"): lambda: [],  # named by a defaultdict of lists
    ("builtins", "list"): lambda: [],
    ("collections", "defaultdict"): lambda *_: {},
    ("collections", "OrderedDict"): lambda *_: {},
}


class _PlainUnpickler(CarefulUnpickler):
    """An unpickler that knows the parts of a stored numpy array by name, and nothing else."""

    def __init__(self, file: IO[bytes], size: int, names: Names) -> None:
        super().__init__(file, size, encoding="bytes")
        self.names = names

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in _NUMPY_PARTS:
            return _NUMPY_PARTS[name]
        found = self.names.get((module, name)) or _OTHERS.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module[:100]}.{name[:100]}, which is not admitted")
        return found


def replaced(value: object, replace: Callable[[object], object], done: dict[int, object]) -> object:
    """Dicts and lists with other values replaced; `done` keeps what is shared from being gone through twice."""
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, dict):
        pairs: dict[object, object] = {}
        done[id(value)] = pairs
        for key, item in value.items():
            pairs[key] = replaced(item, replace, done)
    elif isinstance(value, list | tuple):
        items: list[object] = []
        done[id(value)] = items
        items.extend(replaced(item, replace, done) for item in value)
    else:
        done[id(value)] = replace(value)
    return done[id(value)]


def _finish(value: object) -> object:
    """The value that a stand-in holds; other values as they are."""
    if callable(value):
        raise pickle.UnpicklingError("it holds a function or a class")
    return value.finished() if isinstance(value, Unfinished) else value
