"""Torch and safetensors files, read without executing anything in them.

A torch file is a pickle with raw tensor data beside it, and a pickle can name any function of any module and
have it called. The walker here goes through the pickle with a stand-in for every name, so that nothing is
imported and nothing is called; what it brings back is the list of names and the sizes that are claimed for
the tensors. Only when both are in order does torch, with its own guard on, read the file.
"""

from __future__ import annotations

import argparse
import io
import pickle
import re
import warnings
import zipfile
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch.serialization import safe_globals

from fsbench.errors import FsbenchError
from fsbench.io.pickles import CarefulUnpickler, StandIn, checked_key, is_number_code

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

_LEGACY_MAGIC = bytes.fromhex("8a0a6cfc9c46f9206aa85019")  # after the two bytes of the pickle protocol

# What plain weights, their optimiser and their options are made of. None of it does anything but hold values.
_ALLOWED_NAMES = re.compile(
    r"torch\.(storage\.)?\w*Storage"
    r"|torch\._utils\._rebuild_(tensor|tensor_v2|parameter)"
    r"|torch\.(Size|device|Tensor|nn\.parameter\.Parameter|float16|float32|float64|int32|int64|bool)"
    r"|collections\.(OrderedDict|Counter)"
    r"|argparse\.Namespace"
    r"|numpy\.(dtype|_?core\.multiarray\.scalar)|_codecs\.encode"
)
_ITEM_BYTES = {  # the others have at least one byte per item
    "DoubleStorage": 8, "LongStorage": 8, "FloatStorage": 4, "IntStorage": 4,
    "HalfStorage": 2, "BFloat16Storage": 2, "ShortStorage": 2,
}  # fmt: skip
# Types beyond torch's own in real checkpoints: the options of RFS, accuracies kept as numpy numbers.
_HARMLESS_TYPES: list[Any] = [
    argparse.Namespace, np.dtype, *(type(np.dtype(code)) for code in ("f2", "f4", "f8", "i4", "i8", "?")),
    *((np.float64(0).__reduce__()[0], f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
]  # fmt: skip
_MOST_NAMES = 100  # weights and their optimiser ask for a dozen
_LARGEST_STORAGE = 1 << 48


def is_legacy(start: bytes) -> bool:
    """Whether a file begins like a torch file of the kind written before torch 1.6."""
    return start[:1] == b"\x80" and start[2:14] == _LEGACY_MAGIC


def is_safetensors(start: bytes) -> bool:
    """Whether a file begins like safetensors: eight bytes for the length of a JSON header, the last four of them zero.

    Ask this before anything about pickles: the length may begin with the byte that pickles begin with.
    """
    return start[4:9] == b"\0\0\0\0{"


def read_torch(path: Path) -> object:
    """Read whatever a torch file of either kind holds, once its names and sizes are found in order."""
    with path.open("rb") as file:
        if is_legacy(file.read(64)):
            file.seek(0)
            _check_legacy(path, file, path.stat().st_size)
        else:
            _check_zip(path)
    return _load(path, path)


def read_embedded(path: Path, content: bytes) -> object:
    """Read a torch file of the old kind that lies inside another file, `path`."""
    _check_legacy(path, io.BytesIO(content), len(content))
    return _load(path, io.BytesIO(content))


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors of a safetensors file, and the free text of its header."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        raise damaged(path, f"not a valid safetensors file ({error})") from error


def _load(path: Path, source: Path | IO[bytes]) -> object:
    try:
        with safe_globals(_HARMLESS_TYPES), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on unusual pickle protocols, which are fine as long as they load
            return torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # the inspection found nothing foreign, so what is left is damage
        told = str(error).strip().partition("\n")[0] or type(error).__name__
        raise damaged(path, f"torch cannot read it ({told})") from error


@dataclass
class _Contents:
    """What a pickle asks for: stand-ins by name, in order of appearance, and bytes claimed per storage."""

    names: dict[str, type[_StandIn]] = field(default_factory=dict)
    storages: dict[str, int] = field(default_factory=dict)


class _StandIn(StandIn):
    """Takes the place of whatever a pickle names: it can be made, filled and forgotten."""

    origin = ""

    def __new__(cls, *_arguments: object, **_options: object) -> _StandIn:
        return object.__new__(cls)

    def __init__(self, *_arguments: object, **_options: object) -> None: ...

    def __setstate__(self, state: object) -> None: ...

    def __setitem__(self, key: object, value: object) -> None: ...

    def append(self, item: object) -> None:
        """Forget the item."""


class _Attributes(_StandIn):
    """Takes the place of an object whose state is a dict."""

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, dict):
            raise pickle.UnpicklingError(f"it sets attributes to a {type(state).__name__}")


class _Dict(_Attributes):
    """Takes the place of another kind of dict, made of a dict or of pairs."""

    def __init__(self, content: object = (), /) -> None:
        if isinstance(content, dict):
            return  # its keys are checked
        if not isinstance(content, list | tuple):
            raise pickle.UnpicklingError(f"it makes a dict of a {type(content).__name__}")
        for pair in content:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise pickle.UnpicklingError("it makes a dict of values that are not pairs")
            checked_key(pair[0])


class _Counter(_Attributes):
    """Takes the place of a dict of counts, which is made of a dict: of pairs, it would count the pairs."""

    def __init__(self, content: object = None, /) -> None:
        if content is not None and not isinstance(content, dict):
            raise pickle.UnpicklingError(f"it counts a {type(content).__name__}")


class _DType(_StandIn):
    """Takes the place of a numpy dtype, which must be one of numbers: others hold objects, or claim any size."""

    def __init__(self, code: object = None, *_: object) -> None:
        if not is_number_code(code):
            raise pickle.UnpicklingError("it has a numpy type that is not one of numbers")


class _Number(_StandIn):
    """Takes the place of a numpy number."""

    may_be_key = True


class _Bytes(_StandIn):
    """Takes the place of bytes, as old protocols write them."""

    may_be_key = True

    def __init__(self, text: object = "", encoding: object = "", /) -> None:
        if not isinstance(text, str) or encoding != "latin1":
            raise pickle.UnpicklingError("it asks for an encoding other than latin1 of a text")


_KINDS: dict[str, type[_StandIn]] = {
    "collections.OrderedDict": _Dict,
    "collections.Counter": _Counter,
    "argparse.Namespace": _Attributes,
    "numpy.dtype": _DType,
    "numpy.core.multiarray.scalar": _Number,
    "numpy._core.multiarray.scalar": _Number,
    "_codecs.encode": _Bytes,
}


class _Walker(CarefulUnpickler):
    """Walks through a pickle and resolves no name."""

    def __init__(self, file: IO[bytes], size: int, contents: _Contents) -> None:
        super().__init__(file, size, encoding="latin1")
        self.contents = contents

    def find_class(self, module: str, name: str) -> type[_StandIn]:
        origin, names = f"{module}.{name}", self.contents.names
        if origin not in names:
            if len(names) == _MOST_NAMES:
                raise pickle.UnpicklingError(f"it asks for more than {_MOST_NAMES} names")
            names[origin] = type("StandIn", (_KINDS.get(origin, _StandIn),), {"origin": origin})
        return names[origin]

    def load_newobj(self) -> None:
        """Make a stand-in as if by a call, so that what it is made of is looked at."""
        self.load_reduce()  # type: ignore[attr-defined]

    def load_newobj_ex(self) -> None:
        """The same with options, which nothing in weights has."""
        raise pickle.UnpicklingError("it makes an object with options")

    def persistent_load(self, pid: object) -> _StandIn:
        """Note the size of a storage: ("storage", type, key, device, items), and in old files a view or None."""
        match pid:
            case [*start, None | (str(), int(), int())] if len(start) == 5:
                pid = start
        match pid:
            case ("storage", type() as kind, str() as key, str(), int() as items) if 0 <= items < _LARGEST_STORAGE:
                item_bytes = _ITEM_BYTES.get(str(getattr(kind, "origin", "")).rpartition(".")[2], 1)
                self.contents.storages[key] = max(self.contents.storages.get(key, 0), items * item_bytes)
            case _:
                raise pickle.UnpicklingError(f"it refers to a {type(pid).__name__} that is not a storage")
        return _StandIn()

    dispatch: ClassVar[dict[int, Any]] = {
        **CarefulUnpickler.dispatch,
        pickle.NEWOBJ[0]: load_newobj,
        pickle.NEWOBJ_EX[0]: load_newobj_ex,
    }


def _check_zip(path: Path) -> None:
    """Check a torch file of the zip kind: what its pickle names and how large its tensors are."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            index = _find_index(path, members)
            listed = archive.read(index)
            contents = _Contents()
            _walk(path, io.BytesIO(listed), len(listed), contents)
    except FsbenchError:
        raise
    except Exception as error:  # zipfile has many words for damage
        raise damaged(path, "its start is a torch checkpoint's, its list of contents is not readable") from error
    _check_names(path, contents)
    sizes = {member.filename: member.file_size for member in members}
    folder = index.removesuffix("data.pkl")
    for key, claimed in contents.storages.items():
        found = sizes.get(f"{folder}data/{key}", 0)
        if found < claimed:
            raise damaged(path, f"tensor data {key!r} should take {claimed} bytes, found {found}")


def _find_index(path: Path, members: list[zipfile.ZipInfo]) -> str:
    names = [member.filename for member in members]
    indexes = [name for name in names if name.endswith("/data.pkl")]
    if not indexes:
        listed = ", ".join(names[:5]) or "nothing"
        raise FsbenchError(
            f"{path} is a zip archive but not a torch checkpoint; it contains {listed}.",
            "If the checkpoint is inside, unpack the archive first.",
        )
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise FsbenchError(
            f"{path} was packed again by another program: torch does not compress.",
            "Use the file as it was published.",
        )
    total = sum(member.file_size for member in members)
    if len(set(names)) < len(names) or len(indexes) > 1 or total > path.stat().st_size:
        raise damaged(path, "its list of contents contradicts itself")
    return indexes[0]


def _check_legacy(path: Path, file: IO[bytes], size: int) -> None:
    """Check a torch file of the kind written before torch 1.6, or one inside `path`: five pickles, then tensor data."""
    contents = _Contents()
    for _ in range(5):
        last = _walk(path, file, size - file.tell(), contents)
    present = size - file.tell()
    _check_names(path, contents)
    if not isinstance(last, list) or not all(isinstance(key, str) for key in last):
        raise damaged(path, "its list of storages is not one of names")
    claimed = sum(size + 8 for size in contents.storages.values())  # each storage begins with its length
    if claimed > present:
        raise damaged(path, f"its tensors should take {claimed} bytes, found {present}")


def plain_pickle(path: Path) -> FsbenchError:
    """The error for a pickle that torch did not write; it lists the names that the pickle asks for."""
    contents = _Contents()
    with path.open("rb") as file:
        _walk(path, file, path.stat().st_size, contents)
    asked = f"; it asks for {', '.join(list(contents.names)[:5])}" if contents.names else ""
    return FsbenchError(
        f"{path} is a plain pickle, not a torch checkpoint{asked}. Nothing in it was executed.",
        "Save the weights with torch.save(model.state_dict(), …) or as safetensors.",
    )


def damaged(path: Path, what: str) -> FsbenchError:
    """The error for a file that is not whole."""
    return FsbenchError(f"{path} is truncated or damaged: {what}.", "Download or copy it again and compare the sizes.")


def _walk(path: Path, file: IO[bytes], size: int, contents: _Contents) -> object:
    """Note what a pickle asks for; `size` bytes of the file are left."""
    try:
        return _Walker(file, size, contents).load()
    except Exception as error:  # a hostile pickle can make the walk fail in any way
        _check_names(path, contents)
        raise damaged(path, f"its index cannot be read ({type(error).__name__})") from error


def _check_names(path: Path, contents: _Contents) -> None:
    foreign = [name for name in contents.names if not _ALLOWED_NAMES.fullmatch(name)]
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise FsbenchError(
            f"{path} is a pickle that asks for {foreign[0]!r}{more}, which weights do not need. "
            "Nothing in it was executed.",
            "fsbench reads tensors only. If you trust the file, open it in the program that wrote it and "
            "save model.state_dict() alone.",
        )
