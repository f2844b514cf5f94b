"""The unpickler under every reader of foreign pickles: it believes no claim and hashes nothing that could do harm."""

from __future__ import annotations

import pickle
import re
from typing import IO, Any, ClassVar

LARGEST_KEY = 1 << 53
LARGEST_MEMO = 1 << 32
LARGEST_AXIS = 1 << 48
MOST_AXES = 32
_KEYS = frozenset({str, bytes, bool, float, type(None)})


class Clipped:
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

    may_be_key = False

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError(f"a {type(self).__name__.strip('_')} takes no state")

    def __setitem__(self, key: object, value: object) -> None:
        raise pickle.UnpicklingError(f"a {type(self).__name__.strip('_')} takes no items")


def check_key(key: object) -> None:
    """Refuse what a dict or a set cannot be trusted with: hashing nested tuples or chosen numbers may never end."""
    kind = type(key)
    if kind in _KEYS or (kind is int and -LARGEST_KEY < key < LARGEST_KEY):  # type: ignore[operator]
        return
    if not (isinstance(key, StandIn) and key.may_be_key):
        raise pickle.UnpicklingError(f"it has a key that is not admitted, of the type {kind.__name__}")


def checked_shape(shape: object) -> tuple[int, ...]:
    """The shape of an array, if it is one: whole numbers, neither many nor huge."""
    if not isinstance(shape, tuple | list) or len(shape) > MOST_AXES:
        raise pickle.UnpicklingError(f"it has the shape of an array as a {type(shape).__name__}")
    if not all(type(axis) is int and 0 <= axis < LARGEST_AXIS for axis in shape):
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
        super().__init__(Clipped(file, size), encoding=encoding)

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name that the pickle asks for."""
        raise NotImplementedError

    def get_extension(self, code: int) -> None:
        """Refuse numbers in the place of names."""
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
        if not 0 <= number < LARGEST_MEMO:
            raise pickle.UnpicklingError("it numbers its parts in a way that is not admitted")
        self.memo[number] = self.stack[-1]

    def _setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._fill(self.stack[-1], [key, value])

    def _setitems(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        self._fill(self.stack[-1], items)

    def _dict(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        self.stack.append({})
        self._fill(self.stack[-1], items)

    def _fill(self, target: object, items: list[Any]) -> None:
        """Put keys and values, in turns, into a dict or into what stands for one."""
        if not isinstance(target, dict | StandIn):
            raise pickle.UnpicklingError(f"it sets items of a {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            check_key(key)
            target[key] = value

    def _additems(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        target = self.stack[-1]
        if not isinstance(target, set):
            raise pickle.UnpicklingError(f"it adds items to a {type(target).__name__}")
        target.update(_checked(items))

    def _frozenset(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        self.stack.append(frozenset(_checked(items)))

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


def _checked(items: list[Any]) -> list[Any]:
    for item in items:
        check_key(item)
    return items
