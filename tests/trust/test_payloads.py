"""Files built to execute something, through every reader of files of others: a canary stays dead."""

import contextlib
import copyreg
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.errors import FsbenchError
from fsbench.exchange.layouts import read_file
from fsbench.io.pickles import read_plain_pickle


class Reduce:
    """A call, as soon as it is unpickled in earnest."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.canary),)


def by_hand(template: str) -> Callable[[Path], bytes]:
    return lambda canary: template.format(canary=canary).encode("latin1")


PICKLES: dict[str, Callable[[Path], bytes]] = {
    "reduce": lambda canary: pickle.dumps({"features": [Reduce(canary)]}, 5),
    "inst": by_hand("\x80\x02(V{canary}\nios\nmkdir\n."),
    "obj": by_hand("\x80\x02(cos\nmkdir\nV{canary}\no."),
    "build": by_hand("\x80\x02cfunctools\npartial\n(cos\ngetcwd\ntR(cos\nmkdir\n(V{canary}\nt}}Ntb)R."),
    "stack global": by_hand("\x80\x04\x8c\x02os\x8c\x05mkdir\x93(V{canary}\ntR."),
    "dotted": by_hand("\x80\x04\x8c\x05torch\x8c\x08os.mkdir\x93(V{canary}\ntR."),
    "extension": by_hand("\x80\x02\x82\x01(V{canary}\ntR."),
    "numpy": by_hand("\x80\x02cnumpy.testing._private.utils\nrunstring\n(V__import__('os').mkdir('{canary}')\n}}tR."),
}


def in_zip(content: bytes) -> bytes:
    """A torch file of the newer kind around a pickle."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", b"3\n")
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
        archive.writestr("features.npy", header.getvalue() + content)
    return stream.getvalue()


def in_tensor(content: bytes) -> bytes:
    """A pickled tensor, as TIM stores it, whose data are the pickle."""

    class Tensor:
        def __reduce__(self) -> tuple[Any, ...]:
            storage = type("S", (), {"__reduce__": lambda self: (torch.storage._load_from_bytes, (content,))})()
            return torch._utils._rebuild_tensor_v2, (storage, 0, (1,), (1,), False, {})

    return pickle.dumps({"concat_features": Tensor()})


@pytest.mark.parametrize("name", PICKLES)
def test_nothing_is_executed_by_any_reader(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(copyreg._inverted_registry, 1, ("os", "mkdir"))  # type: ignore[attr-defined]  # "extension"
    canary, path = tmp_path / "canary", tmp_path / "file"
    with contextlib.suppress(Exception):  # what comes after the deed
        pickle.loads(PICKLES[name](canary))
    canary.rmdir()  # so the payload works
    for wrap in (bytes, in_zip, in_legacy, in_npz, in_tensor):
        path.write_bytes(wrap(PICKLES[name](canary)))
        for read in (read_checkpoint, lambda path: read_file(path, "mini", "novel"), read_plain_pickle):
            with contextlib.suppress(FsbenchError):  # any other exception fails the test
                read(path)
            assert not canary.exists()


def test_without_its_guard_torch_would_execute_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above would prove nothing of torch files."""
    load = torch.load
    (tmp_path / "file").write_bytes(in_zip(PICKLES["obj"](tmp_path)))
    with pytest.raises(FsbenchError, match=r"a pickle that asks for 'os\.mkdir', .*Nothing in it was executed"):
        read_checkpoint(tmp_path / "file")
    monkeypatch.setattr(torch, "load", lambda *args, **options: load(*args, **{**options, "weights_only": False}))
    for wrap in (in_zip, in_legacy):
        (tmp_path / "file").write_bytes(wrap(PICKLES["obj"](tmp_path / wrap.__name__)))
        with contextlib.suppress(FsbenchError):
            read_checkpoint(tmp_path / "file")
        assert (tmp_path / wrap.__name__).exists()
