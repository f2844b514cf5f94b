from __future__ import annotations

import pickle
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import torch

from fsbench.errors import FsbenchError
from fsbench.exchange.detect import read_file
from fsbench.features.scatter import BaseStatistics
from tests.unit.exchange.samples import make_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.synthetic import Features

ROWS = make_rows()


def tarred(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("n01/x.jpg"))


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
    "folder": (lambda path: path.mkdir(), "is a folder"),
    "nothing": (lambda path: None, "No such file"),
    "empty": (lambda path: path.touch(), "is empty"),
    "image": (lambda path: path.write_bytes(b"\x89PNG\r\n"), "is an image"),
    "zip": (zipped, "is an archive"),
    "tar": (tarred, "is an archive"),
    "gzip": (lambda path: path.write_bytes(b"\x1f\x8b\x08" + bytes(30)), "is an archive"),
    "page": (lambda path: path.write_text("<!DOCTYPE html><html>"), "is a web page"),
    "pointer": (lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\n"), "Git LFS pointer"),
    "table": (lambda path: path.write_text("label,f0\n1,2\n"), "not a feature file that fsbench recognises"),
    "safetensors": (
        lambda path: path.write_bytes(b"\x80" + bytes(7) + b"{".ljust(128)),  # its length begins like a pickle
        "not a feature file that fsbench recognises",
    ),
    "bare checkpoint": (saved({"w.weight": torch.ones(2, 2), "b": torch.ones(2, 2)}), "is a checkpoint"),
    "checkpoint": (saved({"epoch": 1, "state": {"module.conv.weight": torch.ones(2, 2)}}), "is a checkpoint"),
    "cifar": (pickled({"data": np.zeros((4, 3072), np.uint8), "fine_labels": [0, 1, 2, 3]}), "holds images"),
    "images": (stored(x=np.zeros((4, 8, 8, 3), np.uint8)), "holds images"),
    "means": (pickled([ROWS.features.mean(axis=0), -1]), "means of base features alone"),
    "list": (pickled([1, 2, 3]), "a list of 3"),
    "number": (pickled(3.5), "holds a float, not features"),
    "other dict": (pickled({"a": 1, 5: "b"}), "it holds a, 5"),
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
    with pytest.raises(FsbenchError, match="is a feature file of fsbench already"):
        read_file(features.write(tmp_path / "own.h5"), "mini")
    BaseStatistics.fit(features.val.features, features.val.labels).save(tmp_path / "own.scatter.h5")
    with pytest.raises(FsbenchError, match="is a scatter file of fsbench"):
        read_file(tmp_path / "own.scatter.h5", "mini")
