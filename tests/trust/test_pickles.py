"""Pickles that would hang, crash or flood whoever reads them: each is refused, soon and in little memory."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.exchange.detect import read_file
from fsbench.io.pickles import read_plain_pickle
from tests.trust.isolate import Outcome, judged, read_in_child, run_cases
from tests.trust.payloads import in_legacy, in_zip

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")
DEEP = b")" + b"\x85" * 200_000  # a tuple in a tuple in a tuple …
TWOFOLD = b")" + b"2\x86" * 60  # each tuple holds the one before twice
COLLIDING = [k * (2**61 - 1) for k in range(1, 60_000)]  # Python hashes all of them to 0


def text(word: str) -> bytes:
    return b"X" + struct.pack("<I", len(word)) + word.encode()


def number(value: int) -> bytes:
    """In a form that torch knows too."""
    content = value.to_bytes(11, "little")
    return b"\x8a\x0b" + content


def large(value: int) -> bytes:
    content = value.to_bytes(value.bit_length() // 8 + 1, "little")
    return b"\x8b" + struct.pack("<i", len(content)) + content


def call(module: str, name: str, *arguments: bytes) -> bytes:
    return f"c{module}\n{name}\n".encode() + b"(" + b"".join(arguments) + b"tR"


def array(shape: bytes, content: bytes = b"C\x04abcd") -> bytes:
    dtype = call("numpy", "dtype", text("f4"))
    return call("numpy", "_frombuffer", content, dtype, shape, text("C"))


def shared(container: bytes, fill: bytes, levels: int = 60) -> bytes:
    """Containers of which each holds the one before twice."""
    built = container + b"q\x00"
    for level in range(1, levels):
        before = b"h" + bytes([level - 1])
        pairs = text("a") + before + text("b") + before
        built += container + b"q" + bytes([level]) + b"(" + (pairs if fill == b"u" else before + before) + fill
    return built


KEYS = {
    "deep": DEEP,
    "twofold": TWOFOLD,
    "long number": large(10**5000),
    "size": call("torch", "Size", b"(K\x01t"),
    "object as a number": call("numpy.core.multiarray", "scalar", call("numpy", "dtype", text("O8")), DEEP),
}
STORAGE = (text("storage"), b"ctorch\nFloatStorage\n", text("0"), text("cpu"), b"K\x01")
PICKLES: dict[str, bytes] = {
    **{f"key: {name}": b"}" + key + b"K\x01s" for name, key in KEYS.items()},
    **{f"one of the keys: {name}": b"}(K\x01K\x01" + key + b"K\x01u" for name, key in KEYS.items()},
    **{f"dict: {name}": b"(" + key + b"K\x01d" for name, key in KEYS.items()},
    **{f"set: {name}": b"\x8f(" + key + b"\x90" for name, key in KEYS.items()},
    **{f"frozen set: {name}": b"(" + key + b"\x91" for name, key in KEYS.items()},
    **{f"pairs: {name}": call("collections", "OrderedDict", b"](" + key + b"K\x01\x86e") for name, key in KEYS.items()},
    **{f"item: {name}": call("collections", "OrderedDict") + key + b"K\x01s" for name, key in KEYS.items()},
    **{f"count: {name}": call("collections", "Counter", key + b"\x85") for name, key in KEYS.items()},
    **{
        f"attribute of {kind[1]}: {name}": call(*kind) + key + b"K\x01\x86\x85b"
        for kind in (("argparse", "Namespace"), ("collections", "OrderedDict"))
        for name, key in KEYS.items()
    },
    "view of a storage": b"(" + b"".join(STORAGE) + DEEP + b"K\x00K\x01\x87tQ",
    "colliding keys": b"}(" + b"".join(number(k) + b"N" for k in COLLIDING) + b"u",
    "colliding members": b"\x8f(" + b"".join(number(k) for k in COLLIDING) + b"\x90",
    "colliding memo": b"N" + b"".join(b"p%d\n" % k for k in COLLIDING),
    "deep tuples": DEEP,
    "deep lists": b"]" * 100_000 + b"a" * 99_999,
    "deep dicts": b"}" + (text("a") + b"}") * 50_000 + b"s" * 50_000,
    "deep state": call("collections", "OrderedDict") * 2000 + b"b" * 1999,
    "text of a type": call("numpy", "dtype", TWOFOLD),
    "text of an encoding": call("_codecs", "encode", text("a"), TWOFOLD),
    "text of a reference": TWOFOLD + b"Q",
    "text of a device": b"(" + b"".join(STORAGE[:3]) + TWOFOLD + b"K\x01tQ",
    "text of a function": TWOFOLD + b")R",
    "text of a class": TWOFOLD + b")\x81",
    "text of a receiver": TWOFOLD + b"}b",
    "encoding that takes long": call("_codecs", "encode", text("a." * 100_000), text("punycode")),
    "shape of bytes": array(b"(" + large(3 * 10**10) + b"C\x01xt"),
    "shape of long numbers": array(b"(" + large(1 << 1_600_000) + b"q\x01" + b"h\x01" * 5000 + b"t"),
    "shape of many numbers": array(b"(" + b"J\xff\xff\xff\x7f" * 200_000 + b"t"),
    "storage of a long number": b"(" + b"".join(STORAGE[:4]) + large(10**5000) + b"tQ",
    "numpy type of any size": call(
        "numpy.core.multiarray", "scalar", call("numpy", "dtype", text("V4000000000"))
    ),
    "numpy type of many parts": call("numpy", "dtype", text("f4," * 300_000)),
    "shared dicts": shared(b"}", b"u"),
    "shared lists": shared(b"]", b"e"),
    "shared list of numbers": b"(](" + b"K\x01" * 100_000 + b"eq\x00" + b"h\x00" * 100_000 + b"l",
    "shared list of vectors": b"}(K\x00](" + array(b"K\x01\x85") + b"q\x01" + b"h\x01" * 50_000
    + b"eq\x00" + b"".join(b"M" + struct.pack("<H", k) + b"h\x00" for k in range(1, 60_000)) + b"u",
    "rows without width": b"}(" + b"".join(
        bytes([75, key]) + array(number(1 << 40) + b"K\x00\x86", b"C\x00") for key in (1, 2)
    ) + b"u",
    "dict in itself": b"}q\x00" + text("features") + b"h\x00s",
    "list in itself": b"]q\x00h\x00a",
    "many names": b"".join(b"cm\nn%07d\n0" % k for k in range(300_000)) + b"K\x01",
    "many storages": b"".join(b"ctorch\nn%07dStorage\n" % k for k in range(200_000)) + b"K\x01",
}  # fmt: skip


def offered_in_children(path: Path, content: bytes) -> list[Outcome]:
    """What becomes of a pickle, read by every reader and within every file that can hold one."""

    def raw(content: bytes) -> bytes:
        return content

    ways: list[tuple[Callable[[bytes], bytes], Callable[[Path], object]]] = [
        (wrap, read) for wrap in (raw, in_zip, in_legacy) for read in (import_, read_checkpoint)
    ]

    def run(case: int) -> Outcome:
        wrap, read = ways[case]
        path.write_bytes(wrap(b"\x80\x02" + content + b"."))
        before = reserved()
        outcome = judged(case, lambda: read(path) is not None, path.name)
        grown = reserved() - before
        return outcome if grown < 700 else Outcome(case, "memory", f"{grown} MB reserved")

    return run_cases(range(len(ways)), run)


def import_(path: Path) -> object:
    return read_file(path, "mini", "novel")


def reserved() -> int:
    """Megabytes that the process ever had, used or not."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmPeak:")[2].split()[0]) >> 10


@pytest.mark.parametrize("name", PICKLES)
def test_hostile_pickles_are_refused_soon(name: str, tmp_path: Path) -> None:
    outcomes = offered_in_children(tmp_path / "file", PICKLES[name])
    assert [outcome.kind for outcome in outcomes] == ["refused"] * 6, outcomes


@pytest.mark.parametrize("opcode", ["bytearray8", "binbytes8", "binunicode8", "frame"])
@pytest.mark.parametrize("gigabytes", [2, 8])
def test_claimed_lengths_reserve_nothing(opcode: str, gigabytes: int, tmp_path: Path) -> None:
    code = {"bytearray8": b"\x96", "binbytes8": b"\x8e", "binunicode8": b"\x8d", "frame": b"\x95"}[opcode]
    outcomes = offered_in_children(tmp_path / "file", code + struct.pack("<Q", gigabytes << 30) + b"x")
    assert [outcome.kind for outcome in outcomes] == ["refused"] * 6, outcomes


def test_claimed_memo_numbers_reserve_nothing(tmp_path: Path) -> None:
    outcomes = offered_in_children(tmp_path / "file", b"Nr\xff\xff\xff\x7f0N")
    assert [outcome.kind for outcome in outcomes] == ["refused"] * 6, outcomes


def test_the_list_of_storages_of_an_old_file_holds_names_only(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(in_legacy(b"\x80\x02}.").removesuffix(pickle.dumps([], 2)) + b"\x80\x02]" + DEEP + b"a.")
    assert read_in_child(path, read_checkpoint).kind == "refused"
    assert read_in_child(path, import_).kind == "refused"


@pytest.mark.parametrize("longest", [900, 5_000])
def test_one_long_name_does_not_widen_a_million_short_ones(longest: int, tmp_path: Path) -> None:
    """As an array, all of them would be as wide as the longest: 3.6 GB and more."""
    names = ["a"] * 1_000_000 + ["b" * longest]
    path = tmp_path / "novel.pkl"
    path.write_bytes(pickle.dumps({"features": np.zeros((4, 2), np.float32), "labels": names}))
    outcome = read_in_child(path, import_)
    assert outcome.kind == "refused", outcome


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_a_number_spread_over_gigabytes_is_refused_before_it_is_converted(dtype: torch.dtype, tmp_path: Path) -> None:
    path = tmp_path / "file"
    spread = torch.zeros(1).to(dtype).expand(40_000, 30_000)
    torch.save({"features": spread, "labels": torch.zeros(3, dtype=torch.int64)}, path)
    assert read_in_child(path, import_).kind == "refused"
    one = torch.zeros(1000, 1000).to(dtype)
    torch.save({str(k): one[: 999 - k] for k in range(500)}, path)  # one storage of many tensors
    assert read_in_child(path, import_).kind == "refused"


class OfStorage:
    """A tensor of a few numbers of a larger storage, pickled as it is."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __reduce__(self) -> tuple[object, ...]:
        storage = type("S", (), {"__reduce__": lambda _: (torch.storage._load_from_bytes, (self.content,))})()
        return torch._utils._rebuild_tensor_v2, (storage, 0, (1, 4), (4, 1), False, {})


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_a_storage_is_read_once_for_all_its_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, inner = tmp_path / "file", tmp_path / "inner"
    torch.save(torch.arange(1000.0).storage(), inner, _use_new_zipfile_serialization=False)
    content = inner.read_bytes()
    path.write_bytes(pickle.dumps({k: OfStorage(content) for k in range(50)}, protocol=4))
    load = Mock(wraps=torch.load)
    monkeypatch.setattr(torch, "load", load)
    _, found = read_file(path, "own", "novel")
    assert found.parts[0].features is not None
    assert found.parts[0].features.tolist() == [[0.0, 1.0, 2.0, 3.0]] * 50
    assert load.call_count == 1


def test_keys_of_real_files_are_admitted(tmp_path: Path) -> None:
    keys = {"a": 1, b"b": 2, 3: 3, -(2**50): 4, 0.5: 5, None: 6, True: 7, np.int64(8): 8, np.float32(9.5): 9}
    for protocol in range(6):
        (tmp_path / "file").write_bytes(pickle.dumps({**keys, "set": {1, "a"}, "frozen": frozenset("a")}, protocol))
        if protocol < 4:  # which write sets as calls
            (tmp_path / "file").write_bytes(pickle.dumps(keys, protocol))
        found = read_plain_pickle(tmp_path / "file")
        assert isinstance(found, dict)
        assert {key: found[key] for key in keys} == keys
    torch.save({"weight": torch.ones(2), "others": keys}, tmp_path / "file")
    assert list(read_checkpoint(tmp_path / "file").tensors) == ["weight"]
