from __future__ import annotations

import collections
import contextlib
import importlib.util
import io
import os
import pickle
import struct
import zipfile
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsbench.errors import FsbenchError
from fsbench.exchange.detect import read_file
from fsbench.exchange.importing import split_from
from tests.unit.exchange.samples import PARQUET, WRITERS, easy, make_rows

if TYPE_CHECKING:
    from pathlib import Path

ROWS = make_rows()
FORMATS = [*WRITERS, "easy", *(PARQUET if importlib.util.find_spec("pyarrow") else ())]


class Touch:
    """Pickles as a call that leaves a canary behind."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.canary),)


def refused(path: Path) -> str:
    with pytest.raises(FsbenchError) as caught:
        read_file(path, "mini", "novel")
    return str(caught.value)


def nested(canary: Path) -> bytes:
    """TIM's way of storing a tensor, with a call in place of the tensor's own bytes."""

    class Tensor:
        def __reduce__(self) -> tuple[Any, ...]:
            inner = pickle.dumps(Touch(canary))
            storage = type("S", (), {"__reduce__": lambda self: (torch.storage._load_from_bytes, (inner,))})()
            return torch._utils._rebuild_tensor_v2, (storage, 0, (1,), (1,), False, collections.OrderedDict())

    return pickle.dumps({"concat_features": Tensor()})


def inside_torch(canary: Path) -> bytes:
    stream = io.BytesIO()
    torch.save({"features": torch.ones(2, 2), "labels": Touch(canary)}, stream)
    return stream.getvalue()


def persistent(canary: Path) -> bytes:
    class Pickler(pickle.Pickler):
        def persistent_id(self, item: object) -> object:
            return ("storage", Touch(canary), "0", "cpu", 1) if item == "here" else None

    stream = io.BytesIO()
    Pickler(stream).dump({"features": "here"})
    return stream.getvalue()


def object_array(canary: Path) -> bytes:
    stream = io.BytesIO()
    array = np.empty(1, dtype=object)
    array[0] = Touch(canary)
    np.savez(stream, features=array, labels=array)
    return stream.getvalue()


HOSTILE = {
    "reduce": lambda canary: pickle.dumps({3: [Touch(canary)]}),
    "text": lambda canary: f"cos\nmkdir\n(V{canary}\ntR.".encode(),
    "text in a dict": lambda canary: b"(dp0\nI3\n" + f"cos\nmkdir\n(V{canary}\ntRs.".encode(),
    "inst": lambda canary: b"\x80\x02" + f"(V{canary}\nios\nmkdir\n.".encode(),
    "builtins": lambda canary: b"\x80\x02" + f"cbuiltins\nexec\n(Vimport os; os.mkdir({str(canary)!r})\ntR.".encode(),
    "numpy": lambda canary: f"cnumpy.testing\nrunstring\n(V__import__('os').mkdir('{canary}')\n}}tR.".encode(),
    "torch load": lambda canary: b"\x80\x02" + f"ctorch\nload\n(V{canary}\ntR.".encode(),
    "nested": nested,
    "persistent id": persistent,
    "torch file": inside_torch,
    "object array": object_array,
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_execute_nothing(tmp_path: Path, kind: str) -> None:
    canary, path = tmp_path / "canary", tmp_path / "novel.plk"
    path.write_bytes(HOSTILE[kind](canary))
    if kind in {"reduce", "text", "builtins", "inst"}:  # the attack itself works
        pickle.loads(path.read_bytes())
        assert canary.exists() or kind == "inst"
        canary.rmdir()
    refused(path)
    assert not canary.exists()


def test_state_is_given_to_nothing_but_stand_ins(tmp_path: Path) -> None:
    path = tmp_path / "novel.plk"
    path.write_bytes(b"\x80\x02c_codecs\nencode\n}(X\x05\x00\x00\x00stateK\x01ub.")
    assert "sets the state of a function" in refused(path)
    path.write_bytes(b"\x80\x02cnumpy\nndarray\n}b.")
    assert "sets the state of a type" in refused(path)


def test_shared_parts_do_not_multiply(tmp_path: Path) -> None:
    path = tmp_path / "novel.plk"
    vectors = [np.ones(1000, dtype=np.float32)] * 2000
    path.write_bytes(pickle.dumps(dict.fromkeys(range(100), vectors)))  # 0.8 GB of rows from a few kB
    assert "more than a file of its size can hold" in refused(path)
    doubled: list[Any] = [np.ones(2)]
    for _ in range(100):
        doubled = [doubled, doubled]
    path.write_bytes(pickle.dumps(doubled))
    refused(path)
    torch.save({"features": torch.ones(1, 1).expand(1 << 20, 1 << 20), "labels": torch.ones(3)}, path)
    assert "more than a file of its size can hold" in refused(path)


def test_headers_that_claim_a_petabyte_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "novel.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 24, 1 << 24)})
    path.write_bytes(header.getvalue())
    assert "should take 1125899906842624 bytes, found 0" in refused(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("features.npy", header.getvalue())
        archive.writestr("labels.npy", bytes(100 << 20))  # a hundred megabytes of zeros in a hundred kilobytes
    assert "not credible" in refused(path)
    with h5py.File(path, "w") as file:
        file.create_dataset("features", (1 << 24, 1 << 24), "f4", chunks=(64, 64))
    assert "claims 1125899906842624 bytes" in refused(path)
    start = b'{"features":{"dtype":"F32","shape":[16777216,16777216],"data_offsets":[0,1125899906842624]}}'
    path.write_bytes(struct.pack("<Q", len(start)) + start)
    refused(path)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_files_end_in_clear_errors(tmp_path: Path, name: str, data: st.DataObject) -> None:
    whole, path = tmp_path / "whole", tmp_path / "novel.damaged"
    if not whole.exists():
        if name == "easy":
            easy(whole, ROWS.features.reshape(3, 4, 5))
        else:
            {**WRITERS, **PARQUET}[name](whole, ROWS)
    content = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(content))))
    path.write_bytes(content[:cut])
    with contextlib.suppress(FsbenchError):  # any other exception fails the test
        _, found = read_file(path, "own", "novel")
        for part in found.parts:
            split_from(part, "it")
