"""Files that would do harm, or that claim to be larger than they are: none is executed, none is believed."""

from __future__ import annotations

import io
import os
import pickle
import re
import struct
import tarfile
import tracemalloc
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from pathlib import Path


class Payload:
    """Makes a folder as soon as it is unpickled in earnest."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def test_the_payload_would_work(tmp_path: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    pickle.loads(pickle.dumps(Payload(tmp_path / "marker")))
    assert (tmp_path / "marker").is_dir()


@pytest.mark.parametrize("form", ["zip", "legacy", "raw", "raw-2"])
@pytest.mark.parametrize("place", ["top", "value", "extra"])
def test_a_payload_is_named_and_not_run(tmp_path: Path, form: str, place: str) -> None:
    payload = Payload(tmp_path / "marker")
    weights = {"conv1.weight": torch.ones(4)}
    content: Any = {
        "top": payload,
        "value": {"state_dict": {**weights, "bn1.weight": payload}},
        "extra": {"state_dict": weights, "epoch": payload},
    }[place]
    path = tmp_path / "weights.pth"
    if form.startswith("raw"):
        path.write_bytes(pickle.dumps(content, protocol=2 if form == "raw-2" else None))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(FsbenchError, match=r"mkdir.*Nothing in it was executed"):
        read_checkpoint(path)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("position", range(5))
def test_a_payload_in_any_part_of_an_old_file_is_not_run(tmp_path: Path, position: int) -> None:
    """An old file is five pickles in a row; the first is the magic number."""
    parts: list[Any] = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, {"a": 1}, []]
    parts[position] = Payload(tmp_path / "marker")
    path = tmp_path / "weights.pth"
    path.write_bytes(b"".join(pickle.dumps(part, protocol=2) for part in parts))
    with pytest.raises(FsbenchError, match="mkdir"):
        read_checkpoint(path)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "opcodes",
    [
        b"cos\nmkdir\n(S'MARKER'\ntR.",  # protocol 0: global, reduce
        b"(S'MARKER'\nios\nmkdir\n.",  # inst
        b"(cos\nmkdir\nS'MARKER'\no.",  # obj
        b"\x80\x04\x8c\x02os\x94\x8c\x05mkdir\x94\x93(\x8c\x00S'MARKER'\nt\x85R.",  # names from the stack
        b"\x80\x02cos\nmkdir\n(S'MARKER'\nt\x81.",  # newobj
        b'\x80\x02cbuiltins\neval\n(S\'__import__("os").mkdir("MARKER")\'\ntR.',
    ],
)
def test_hand_made_pickles_are_not_run(tmp_path: Path, opcodes: bytes) -> None:
    marker = tmp_path / "marker"
    body = opcodes.replace(b"MARKER", str(marker).encode())
    for name, content in (("raw", body), ("zip", zipped(body))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FsbenchError):
            read_checkpoint(tmp_path / name)
    assert not marker.exists()


def zipped(index: bytes, compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("weights/data.pkl", index)
        archive.writestr("weights/version", b"3\n")
        for name, content in members.items():
            archive.writestr(f"weights/data/{name.removeprefix('_')}", content)
    return buffer.getvalue()


def torch_file(tmp_path: Path, tensor: torch.Tensor, legacy: bool) -> bytes:
    path = tmp_path / "weights.pth"
    torch.save({"conv1.weight": tensor}, path, _use_new_zipfile_serialization=not legacy)
    return path.read_bytes()


def short(number: int) -> bytes:
    return b"M" + struct.pack("<H", number)


def long(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


@pytest.mark.parametrize("legacy", [True, False])
def test_a_tensor_that_claims_gigabytes_is_refused_without_reserving_them(tmp_path: Path, legacy: bool) -> None:
    content = torch_file(tmp_path, torch.ones(1000), legacy)
    path = tmp_path / "weights.pth"
    if legacy:
        path.write_bytes(content.replace(short(1000), long(2 * 10**9)))
    else:
        index = zipfile.ZipFile(io.BytesIO(content)).read("weights/data.pkl")
        assert short(1000) in index
        path.write_bytes(zipped(index.replace(short(1000), long(2 * 10**9)), _0=bytes(4000)))
    with pytest.raises(FsbenchError, match=r"truncated or damaged.* should take 80000000\d\d bytes, found \d+"):
        read_checkpoint(path)


def test_an_expanded_tensor_that_claims_gigabytes_is_refused(tmp_path: Path) -> None:
    torch_file(tmp_path, torch.ones(1).expand(10**9), legacy=False)
    with pytest.raises(FsbenchError, match="would take 4000000000 bytes"):
        read_checkpoint(tmp_path / "weights.pth")


def test_a_safetensors_header_that_claims_more_than_there_is(tmp_path: Path) -> None:
    content = save({"conv1.weight": torch.ones(1000)})
    path = tmp_path / "a.safetensors"
    path.write_bytes(content.replace(b"[0,4000]", b"[0,9000]").replace(b"[1000]", b"[2250]"))
    with pytest.raises(FsbenchError, match="truncated or damaged: not a valid safetensors"):
        read_checkpoint(path)
    path.write_bytes(struct.pack("<Q", 2**62) + content[8:])
    with pytest.raises(FsbenchError, match="truncated or damaged: not a valid safetensors"):
        read_checkpoint(path)


def test_a_huge_memo_index_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(b"\x80\x02]r\xff\xff\xff\x7f.")
    tracemalloc.start()
    try:
        with pytest.raises(FsbenchError, match="plain pickle"):
            read_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    index = zipfile.ZipFile(io.BytesIO(torch_file(tmp_path, torch.ones(1000), legacy=False))).read("weights/data.pkl")
    path = tmp_path / "weights.pth"
    path.write_bytes(zipped(index, zipfile.ZIP_DEFLATED, _0=bytes(4000)))
    with pytest.raises(FsbenchError, match="packed again by another program"):
        read_checkpoint(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["weights/data.pkl", "weights/data/0", "other/data.pkl"])
def test_a_zip_with_two_of_a_part_is_refused(tmp_path: Path, name: str) -> None:
    """Two programs could read two different ones."""
    path = tmp_path / "weights.pth"
    torch_file(tmp_path, torch.ones(10), legacy=False)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, pickle.dumps({}))
    with pytest.raises(FsbenchError, match="contradicts itself"):
        read_checkpoint(path)


def whole_file(tmp_path: Path, form: str) -> bytes:
    if form == "safetensors":
        return save({"conv1.weight": torch.ones(30)}, metadata={"fsbench": "{}"})
    content = torch_file(tmp_path, torch.ones(30), legacy=form == "legacy")
    if form == "tar":
        with tarfile.open(tmp_path / "a.tar", "w") as archive:
            archive.add(tmp_path / "weights.pth", "CUB/100.tar")
        content = (tmp_path / "a.tar").read_bytes()[:2048]
    return content


@pytest.mark.parametrize("form", ["zip", "legacy", "safetensors"])
def test_every_truncation_ends_in_a_clear_error(tmp_path: Path, form: str) -> None:
    content = whole_file(tmp_path, form)
    path = tmp_path / "cut.pth"
    for length in range(1, len(content), 11):
        path.write_bytes(content[:length])
        with pytest.raises(FsbenchError, match=re.escape(str(path))):
            read_checkpoint(path)


@pytest.mark.parametrize("form", ["zip", "legacy", "safetensors", "tar"])
def test_flipped_bytes_never_end_in_a_traceback(tmp_path: Path, form: str) -> None:
    content = whole_file(tmp_path, form)
    path = tmp_path / "flipped.pth"
    refused = 0
    for position in range(0, len(content), 8):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x5A]) + content[position + 1 :])
        try:
            read_checkpoint(path)
        except FsbenchError:
            refused += 1
    assert refused > 10
