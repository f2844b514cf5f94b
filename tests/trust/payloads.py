"""Pickles that execute something when a plain unpickler reads them, and the files that can carry a pickle."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Reduce:
    """A call, as soon as it is unpickled in earnest."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.canary),)


class Chained(Reduce):
    """A call hidden in the arguments of a harmless one."""

    def __reduce__(self) -> tuple[Any, ...]:
        return list, ((Reduce(self.canary),),)


class State(Reduce):
    """A call hidden in the state that is given to an object."""

    def __reduce__(self) -> tuple[Any, ...]:
        return np.dtype, ("f4",), (3, "<", Reduce(self.canary), None, None, -1, -1, 0)


class Setter(Reduce):
    """A call as the function that sets the state."""

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (), str(self.canary), None, None, _set_state


def _set_state(item: object, state: str) -> None:
    os.mkdir(state)  # noqa: PTH102


class Items(Reduce):
    """A call among the items of a list and the pairs of a dict."""

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (), None, None, iter([("a", Reduce(self.canary))])


def persistent(canary: Path) -> bytes:
    class Pickler(pickle.Pickler):
        def persistent_id(self, item: object) -> object:
            return ("storage", Reduce(canary), "0", "cpu", 1) if item == "here" else None

    stream = io.BytesIO()
    Pickler(stream, 2).dump({"features": "here"})
    return stream.getvalue()


class Made:
    """A class that acts when it is made without a call."""

    def __new__(cls, canary: str) -> Made:
        os.mkdir(canary)  # noqa: PTH102
        return super().__new__(cls)


def nested(canary: Path) -> bytes:
    """A call of the unpickler itself."""
    inner = f"cos\nmkdir\n(V{canary}\ntR.".encode()
    return b"\x80\x03cpickle\nloads\n(B" + struct.pack("<I", len(inner)) + inner + b"tR."


def by_hand(template: str) -> Callable[[Path], bytes]:
    return lambda canary: template.format(canary=canary).encode("latin1")


PICKLES: dict[str, Callable[[Path], bytes]] = {
    **{
        f"{kind.__name__} {protocol}": lambda canary, kind=kind, protocol=protocol: pickle.dumps(  # type: ignore[misc]
            {"features": [kind(canary)]}, protocol
        )
        for kind in (Reduce, Chained, State, Setter, Items)
        for protocol in (2, 5)
    },
    "persistent id": persistent,
    "inst": by_hand("\x80\x02(V{canary}\nios\nmkdir\n."),
    "obj": by_hand("\x80\x02(cos\nmkdir\nV{canary}\no."),
    "newobj": by_hand("\x80\x02ctests.trust.payloads\nMade\n(V{canary}\nt\x81."),
    "newobj_ex": by_hand("\x80\x04ctests.trust.payloads\nMade\n(V{canary}\nt}}\x92."),
    "build": by_hand("\x80\x02cfunctools\npartial\n(cos\ngetcwd\ntR(cos\nmkdir\n(V{canary}\nt}}Ntb)R."),
    "stack global": by_hand("\x80\x04\x8c\x02os\x8c\x05mkdir\x93(V{canary}\ntR."),
    "dotted": by_hand("\x80\x04\x8c\x05torch\x8c\x08os.mkdir\x93(V{canary}\ntR."),
    "extension": by_hand("\x80\x02\x82\x01(V{canary}\ntR."),
    "getattr": by_hand("\x80\x02cbuiltins\ngetattr\n(cshutil\nos\nVmkdir\ntR(V{canary}\ntR."),
    "eval": by_hand("\x80\x02cbuiltins\neval\n(V__import__('os').mkdir('{canary}')\ntR."),
    "numpy": by_hand("\x80\x02cnumpy.testing._private.utils\nrunstring\n(V__import__('os').mkdir('{canary}')\n}}tR."),
    "torch": by_hand("\x80\x02ctorch.utils.collect_env\nrun\n(Vmkdir {canary}\ntR."),
    "load": nested,
}


def in_zip(content: bytes) -> bytes:
    """A torch file of the newer kind around a pickle."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", b"3\n")
        archive.writestr("archive/data/0", bytes(64))
    return stream.getvalue()


def in_legacy(content: bytes) -> bytes:
    """A torch file of the older kind, with the pickle in the place of its content."""
    head = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}})
    return b"".join(pickle.dumps(part, 2) for part in head) + content + pickle.dumps([], 2)


def in_npz(content: bytes) -> bytes:
    """An npz archive whose array of objects is the pickle."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in ("features.npy", "labels.npy"):
            archive.writestr(name, header.getvalue() + content)
    return stream.getvalue()


def in_tensor(content: bytes) -> bytes:
    """A pickled tensor of the oldest kind, whose data are the pickle."""

    class Tensor:
        def __reduce__(self) -> tuple[Any, ...]:
            storage = type("S", (), {"__reduce__": lambda self: (torch.storage._load_from_bytes, (content,))})()
            return torch._utils._rebuild_tensor_v2, (storage, 0, (1,), (1,), False, {})

    return pickle.dumps({"concat_features": Tensor(), "concat_labels": Tensor()})


CONTAINERS: dict[str, Callable[[bytes], bytes]] = {
    "raw": bytes, "zip": in_zip, "legacy": in_legacy, "npz": in_npz, "tensor": in_tensor,
}  # fmt: skip
