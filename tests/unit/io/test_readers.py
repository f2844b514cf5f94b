"""Readers of pickles, torch files and sealed files: what is admitted, and that damage is noticed."""

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.errors import FsbenchError
from fsbench.exchange.containers import open_file
from fsbench.exchange.frozen import read_frozen
from fsbench.features.store import FeatureFile
from fsbench.io.files import read_sealed, write_sealed
from fsbench.io.hdf5 import open_hdf5
from fsbench.io.pickles import read_plain_pickle
from fsbench.io.torch_files import read_torch

ARRAYS: list[NDArray[Any]] = [
    np.arange(6, dtype=np.uint8).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(4, dtype=">f4"),
    np.zeros((0, 3), dtype=np.int64),
]


@pytest.mark.parametrize("protocol", range(6))
def test_plain_pickles_come_back_as_they_were(tmp_path: Path, protocol: int) -> None:
    keys = {"a": 1, b"b": 2, 3: 3, 0.5: 5, None: 6, True: 7, np.int64(8): 8, np.float32(9.5): 9}
    shared = [ARRAYS[0], b"", b"\xff"]
    (tmp_path / "p").write_bytes(pickle.dumps({"keys": keys, "arrays": ARRAYS, "twice": (shared, shared)}, protocol))
    content: Any = read_plain_pickle(tmp_path / "p")
    assert content["keys"] == keys
    for array, expected in zip(content["arrays"], ARRAYS, strict=True):
        np.testing.assert_array_equal(array, expected, strict=True)
    assert content["twice"][0] is content["twice"][1]
    assert content["twice"][0][1:] == [b"", b"\xff"]


def test_objects_and_other_encodings_are_refused(tmp_path: Path) -> None:
    for content in (b"c_codecs\nencode\n(Vx\nVrot13\ntR.", pickle.dumps(np.array([{}], dtype=object))):
        (tmp_path / "p").write_bytes(content)
        with pytest.raises(FsbenchError, match=r"Could not read .* as a pickle of plain data"):
            read_plain_pickle(tmp_path / "p")


def test_a_changed_bit_in_a_tensor_is_noticed(tmp_path: Path) -> None:
    tensor = torch.rand(30)
    torch.save({"weight": tensor}, tmp_path / "a")
    whole, content = (tmp_path / "a").read_bytes(), tensor.numpy().tobytes()
    assert whole.count(content) == 1
    (tmp_path / "a").write_bytes(whole.replace(content, bytes([content[0] ^ 1]) + content[1:]))
    with pytest.raises(FsbenchError, match=r"truncated or damaged: the checksum of .*data/0 differs"):
        read_torch(tmp_path / "a")


@dataclass(frozen=True)
class Facts:
    name: str
    sizes: tuple[int, ...] = ()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: h5py.File(path, "w").close(), "is an HDF5 file of another program"),
        (lambda path: path.write_text("text"), "is not an HDF5 file"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.with_name("b.h5").touch(), "No such file: .*a.h5.\nDid you mean .*b.h5"),
    ],
)
def test_what_is_not_a_sealed_hdf5_file_is_named(tmp_path: Path, make: Any, words: str) -> None:
    make(tmp_path / "a.h5")
    with pytest.raises(FsbenchError, match=words), open_hdf5(tmp_path / "a.h5", "test", 1):
        pass


def test_sealed_json_without_its_seal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_sealed(path, {"name": "ä", "sizes": [1]})
    assert read_sealed(path, Facts, "file", "Make it again.") == Facts("ä", (1,))
    path.write_text('{"name": "ä", "sizes": [1]}')
    with pytest.raises(FsbenchError, match="its SHA-256 differs"):
        read_sealed(path, Facts, "file", "Make it again.")
    write_sealed(path, {"name": 3})
    with pytest.raises(FsbenchError, match=r"a\.json is damaged: name: "):
        read_sealed(path, Facts, "file", "Make it again.")


@pytest.mark.parametrize("read", [FeatureFile.open, open_file, read_checkpoint, read_frozen])
def test_pipes_and_devices_are_refused_at_once(read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(FsbenchError, match="is a pipe or a device"):
            read(path)
