"""What a torch file says it contains, found out without building any of it.

A torch file is a pickle with raw tensor data beside it, and a pickle can name any function of any module and
have it called. The reader here walks through the pickle with a stand-in for every name, so that nothing is
imported and nothing is called; what it brings back is the list of names and the sizes that are claimed for
the tensors. Only when both are in order does torch, with its own guard on, read the file.
"""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from pathlib import Path

LEGACY_MAGIC = bytes.fromhex("8a0a6cfc9c46f9206aa85019")  # after the two bytes of the pickle protocol

# What plain weights, their optimiser and their options are made of. None of it does anything but hold values.
ALLOWED_NAMES = re.compile(
    r"torch\.(storage\.)?\w*Storage"
    r"|torch\._utils\._rebuild_(tensor|tensor_v2|parameter)"
    r"|torch\.(Size|device|Tensor|nn\.parameter\.Parameter|float16|float32|float64|int32|int64|bool)"
    r"|collections\.(OrderedDict|Counter)"
    r"|argparse\.Namespace"
    r"|numpy\.(dtype|_?core\.multiarray\.scalar)|_codecs\.encode"
)
ITEM_BYTES = {
    "DoubleStorage": 8,
    "LongStorage": 8,
    "FloatStorage": 4,
    "IntStorage": 4,
    "HalfStorage": 2,
    "BFloat16Storage": 2,
    "ShortStorage": 2,
}  # the others have at least one byte per item


@dataclass
class Contents:
    """What a pickle asks for: names in order of appearance, and bytes claimed per storage."""

    names: list[str] = field(default_factory=list)
    storages: dict[str, int] = field(default_factory=dict)


class _StandIn:
    """Takes the place of whatever a pickle names: it can be made, filled and forgotten."""

    origin = ""

    def __new__(cls, *_arguments: object, **_options: object) -> _StandIn:
        return object.__new__(cls)

    def __init__(self, *_arguments: object, **_options: object) -> None: ...

    def __setstate__(self, state: object) -> None: ...

    def __setitem__(self, key: object, value: object) -> None: ...

    def append(self, item: object) -> None:
        """Forgets the item."""


# The pure Python unpickler: the compiled one reserves memory for whatever memo index a file claims.
class _Walker(pickle._Unpickler):
    """Walks through a pickle and resolves no name."""

    def __init__(self, file: IO[bytes], contents: Contents) -> None:
        super().__init__(file, encoding="latin1")
        self.contents = contents

    def find_class(self, module: str, name: str) -> type[_StandIn]:
        """Notes the name and answers with a stand-in."""
        origin = f"{module}.{name}"
        if origin not in self.contents.names:
            self.contents.names.append(origin)
        return type("StandIn", (_StandIn,), {"origin": origin})

    def persistent_load(self, pid: object) -> _StandIn:
        """Notes the size of a storage: ("storage", type, key, device, items, …)."""
        match pid:
            case ("storage", type() as kind, str() as key, _, int() as items, *_):
                item_bytes = ITEM_BYTES.get(str(getattr(kind, "origin", "")).rpartition(".")[2], 1)
                self.contents.storages[key] = max(self.contents.storages.get(key, 0), items * item_bytes)
            case _:
                raise pickle.UnpicklingError(f"unknown reference {str(pid)[:40]!r}")
        return _StandIn()


def check_zip(path: Path) -> None:
    """Checks a torch file of the zip kind: what its pickle names and how large its tensors are."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            index = _find_index(path, members)
            contents = _walk(path, io.BytesIO(archive.read(index)))
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


def check_legacy(path: Path) -> None:
    """Checks a torch file of the kind written before torch 1.6: five pickles, then the tensor data."""
    with path.open("rb") as file:
        check_legacy_stream(path, file, path.stat().st_size)


def check_legacy_stream(path: Path, file: IO[bytes], size: int) -> None:
    """The same for one that lies inside another file, `path`."""
    contents = Contents()
    for _ in range(5):
        contents = _walk(path, file, contents)
    present = size - file.tell()
    _check_names(path, contents)
    claimed = sum(size + 8 for size in contents.storages.values())  # each storage begins with its length
    if claimed > present:
        raise damaged(path, f"its tensors should take {claimed} bytes, found {present}")


def plain_pickle(path: Path) -> FsbenchError:
    """Describes a pickle that torch did not write, by the names it asks for."""
    with path.open("rb") as file:
        contents = _walk(path, file)
    asked = f"; it asks for {', '.join(contents.names[:5])}" if contents.names else ""
    return FsbenchError(
        f"{path} is a plain pickle, not a torch checkpoint{asked}. Nothing in it was executed.",
        "Save the weights with torch.save(model.state_dict(), …) or as safetensors.",
    )


def damaged(path: Path, what: str) -> FsbenchError:
    """The error for a file that is not whole."""
    return FsbenchError(f"{path} is truncated or damaged: {what}.", "Download or copy it again and compare the sizes.")


def _walk(path: Path, file: IO[bytes], contents: Contents | None = None) -> Contents:
    contents = contents or Contents()
    try:
        _Walker(file, contents).load()
    except Exception as error:  # a hostile pickle can make the walk fail in any way
        _check_names(path, contents)
        raise damaged(path, f"its index cannot be read ({type(error).__name__})") from error
    return contents


def _check_names(path: Path, contents: Contents) -> None:
    foreign = [name for name in contents.names if not ALLOWED_NAMES.fullmatch(name)]
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise FsbenchError(
            f"{path} is a pickle that asks for {foreign[0]!r}{more}, which weights do not need. "
            "Nothing in it was executed.",
            "fsbench reads tensors only. If you trust the file, open it in the program that wrote it and "
            "save model.state_dict() alone.",
        )
