from __future__ import annotations

import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import torch

from fsbench.errors import FsbenchError
from fsbench.exchange.layouts import read_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.synthetic import Features


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("n01/x.jpg", b"")


def hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["features"] = np.ones((3, 2))


def stored(**arrays: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as stream:
            np.savez(stream, **arrays)

    return write


def pickled(content: object) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(pickle.dumps(content))


def saved(content: object) -> Callable[[Path], None]:
    return lambda path: torch.save(content, path)


CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "folder": (lambda path: path.mkdir(), "cannot be read: Is a directory"),
    "nothing": (lambda path: None, "No such file"),
    "empty": (lambda path: path.touch(), "it starts with b''"),
    "page": (lambda path: path.write_text("<!DOCTYPE html><html>"), "it starts with b'<!DOCTYPE ht'"),
    "zip": (zipped, "it starts with b'PK"),
    "safetensors": (
        lambda path: path.write_bytes(b"\x80" + bytes(7) + b"{".ljust(128)),  # its length begins like a pickle
        "not a feature file that fsbench recognises",
    ),
    "bare checkpoint": (saved({"w.weight": torch.ones(2, 2), "b": torch.ones(2, 2)}), "is a checkpoint"),
    "checkpoint": (saved({"epoch": 1, "state": {"module.conv.weight": torch.ones(2, 2)}}), "is a checkpoint"),
    "images": (pickled({"data": np.zeros((4, 3072), np.uint8), "fine_labels": [0, 1]}), "it holds data, fine_labels"),
    "list": (pickled([1, 2, 3]), "it holds a list"),
    "other dict": (pickled({"a": 1, 5: "b"}), "it holds a, 5"),
    "no labels": (stored(features=np.ones((3, 2))), "There are no labels"),
    "whole numbers": (stored(features=np.ones((3, 2), int), labels=np.arange(3)), "features are int64 of shape"),
    "other HDF5": (hdf5, "an HDF5 file without all_feats, all_labels, count; it holds features"),
}


@pytest.mark.parametrize("case", CASES)
def test_files_without_features_are_named_for_what_they_are(tmp_path: Path, case: str) -> None:
    write, words = CASES[case]
    path = tmp_path / "novel.any"
    write(path)
    with pytest.raises(FsbenchError, match=words) as caught:
        read_file(path, "mini", "novel")
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_own_files_are_named(tmp_path: Path, features: Features) -> None:
    with pytest.raises(FsbenchError, match="is a file of fsbench already"):
        read_file(features.write(tmp_path / "own.h5"), "mini")
