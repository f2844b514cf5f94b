"""What readers return: the content of a file by its container, then the rows that a layout recognises in it."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

EXPANSION = 100  # compressed features do not come near it
SMALL = 64 << 20
MANY = 1 << 60  # where counting items ends
LONGEST_NAME = 1000
REPAIR = "The file is truncated, damaged or not what it claims to be: copy it again, or repair it where it was made."


@dataclass(frozen=True)
class Opened:
    """The content of a file: dicts and lists of arrays, strings and numbers.

    Attributes:
        room: Bytes that its arrays may take; shared or repeated ones could claim anything.
        remarks: What is worth knowing.
    """

    path: Path
    content: object
    room: int
    remarks: tuple[str, ...] = ()

    def check_room(self, needed: int, what: str = "bytes of features") -> None:
        """Refuse arrays that would take more than the file can hold."""
        if needed > self.room:
            raise FsbenchError(f"It claims {needed} {what}, more than a file of its size can hold.")


@dataclass(frozen=True)
class Part:
    """Rows of one split.

    Attributes:
        split: `base`, `val` or `novel`; empty if the file does not say.
        features: (M, D), or None if the file has labels only.
        labels: (M,) whole numbers or names, or None if the file has features only.
        class_names: Names of the classes 0, 1, …, where the file gives them.
        images: M names, or none.
    """

    split: str
    features: NDArray[Any] | None
    labels: NDArray[Any] | None
    class_names: tuple[str, ...] = ()
    images: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recognised:
    """The rows that a layout recognises in a file, and what is worth knowing of them."""

    parts: Sequence[Part]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Container:
    """A kind of file, recognised by its first bytes; its name has an article: `a pickle`."""

    name: str
    recognise: Callable[[Path, bytes], bool]
    read: Callable[[Path], Opened]


@dataclass(frozen=True)
class Layout:
    """A way of laying out features.

    Attributes:
        read: The rows, given the name of the data set and the split that the user says they are of, if any.
    """

    name: str
    recognise: Callable[[object], bool]
    read: Callable[[Opened, str, str], Recognised]


@contextmanager
def reading(path: Path, container: str) -> Iterator[None]:
    """Turn what a library says of a damaged file into one clear error, and name file and remedy in all errors."""
    try:
        yield
    except FsbenchError as error:
        named = error.message if str(path) in error.message else f"{path}: {error.message}"
        raise FsbenchError(named, error.hint or REPAIR) from error
    except Exception as error:  # every library has its own words for damage
        told = str(error).strip().partition("\n")[0] or type(error).__name__
        raise FsbenchError(f"{path} cannot be read as {container}: {told}.", REPAIR) from error


def zip_members(path: Path, start: bytes) -> list[str]:
    """The names of a zip archive's members; none if the file is not an archive."""
    if not start.startswith(b"PK\x03\x04"):
        return []
    with reading(path, "a zip archive"), zipfile.ZipFile(path) as archive:
        return archive.namelist()


def largest(path: Path) -> int:
    """Bytes that the content of a compressed file may take."""
    return max(SMALL, EXPANSION * path.stat().st_size)


def text_of(value: object) -> str | None:
    """A key or a name as text, if it is one."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return value if isinstance(value, str) else None


def texts_of(array: NDArray[Any] | None) -> tuple[str, ...] | None:
    """The names in an array of strings, or None if there is none or it holds something else."""
    if array is None or array.ndim != 1 or array.dtype.kind not in "US":
        return None
    return tuple(str(text_of(item)) for item in array.tolist())


def names_array(path: Path, values: Sequence[str]) -> NDArray[np.str_]:
    """Names as an array, whose cells are as wide as the longest of them: all together no more than a file can hold."""
    longest = max((len(value) for value in values), default=0)
    if longest > LONGEST_NAME:
        raise FsbenchError(f"A name of more than {LONGEST_NAME} letters is not a name.")
    if 4 * longest * len(values) > largest(path):
        raise FsbenchError(f"It claims {len(values)} names of up to {longest} letters, too many for its size.")
    return np.array(values, dtype=np.str_)


def is_table(value: object) -> bool:
    """Whether a value is an array of real numbers with two axes."""
    return isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind == "f"


def count_items(value: object, done: dict[int, int | None]) -> int:
    """Items in dicts and lists, however often one of these occurs, as layouts go through all; none may hold itself."""
    if not isinstance(value, Mapping | list):
        return 1
    if id(value) not in done:
        done[id(value)] = None
        parts = value.values() if isinstance(value, Mapping) else value
        done[id(value)] = min(MANY, 1 + sum(count_items(part, done) for part in parts))
    items = done[id(value)]
    if items is None:
        raise FsbenchError("Its content holds itself.")
    return items
