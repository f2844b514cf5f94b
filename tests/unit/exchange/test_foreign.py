from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

from fsbench.errors import FsbenchError
from fsbench.exchange.detect import open_file, read_file
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import Provenance, make_split, write_features
from tests.unit.exchange.samples import make_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.synthetic import Features

ROWS = make_rows()


def image() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, "PNG")
    return stream.getvalue()


def zipped(path: Path, name: str, content: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)


def tarred(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("../../escape/n01.jpg")
        member.size = len(image())
        archive.addfile(member, io.BytesIO(image()))


def hdf5(**arrays: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array)

    return write


def pickled(content: object) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(pickle.dumps(content))


def saved(content: object) -> Callable[[Path], None]:
    return lambda path: torch.save(content, path)


CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "folder": (lambda path: path.mkdir(), "is a folder"),
    "nothing": (lambda path: None, "No such file"),
    "empty": (lambda path: path.touch(), "is empty"),
    "image": (lambda path: path.write_bytes(image()), "is an image"),
    "zip of images": (lambda path: zipped(path, "n01/x.JPEG", image()), "is an archive of images"),
    "tar of images": (tarred, "is an archive of images"),
    "other zip": (
        lambda path: zipped(path, "../../base.plk", b"x"),
        r"is an archive that contains \.\./\.\./base\.plk",
    ),
    "gzip": (lambda path: path.write_bytes(b"\x1f\x8b\x08" + bytes(30)), "is a gzip archive"),
    "page": (lambda path: path.write_text("<!DOCTYPE html><html>"), "is a web page"),
    "pointer": (lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\n"), "Git LFS pointer"),
    "json": (lambda path: path.write_text('{"key": 1, "b": 2}'), "is JSON text"),
    "text": (lambda path: path.write_text("just words\nof text\n"), "not a feature file"),
    "table without labels": (lambda path: path.write_text("a,b\n1,2\n"), "no column with the labels"),
    "table with words": (lambda path: path.write_text("label,a,note\n1,2,x\n"), "column 'note' is neither numbers"),
    "table with gaps": (lambda path: path.write_text("label,a\n1,2\n2,\n"), "column 'a' is empty in row 2"),
    "ragged table": (lambda path: path.write_text("label,a\n1,2,3\n"), "row 1 has 3 columns, the first line names 2"),
    "table of no rows": (lambda path: path.write_text("label,a\n"), "and no rows"),
    "bare checkpoint": (saved(torch.nn.Linear(3, 2).state_dict() | {"w.weight": torch.ones(2, 2)}), "is a checkpoint"),
    "checkpoint": (saved({"epoch": 1, "state": {"module.conv.weight": torch.ones(2, 2)}}), "is a checkpoint"),
    "cifar": (pickled({"data": np.zeros((4, 3072), np.uint8), "fine_labels": [0, 1, 2, 3]}), "holds images"),
    "images in npz": (lambda path: np.savez(path.open("wb"), x=np.zeros((4, 8, 8, 3), np.uint8)), "holds images"),
    "image array": (lambda path: np.save(path.open("wb"), np.zeros((4, 8, 8, 3), np.uint8)), "holds images: one array"),
    "means": (pickled([ROWS.features.mean(axis=0), -1]), "means of base features alone"),
    "list": (pickled([1, 2, 3]), "a list of 3"),
    "number": (pickled(3.5), "holds a float, not features"),
    "other dict": (pickled({"a": 1, 5: "b"}), "it holds a, 5"),
    "whole numbers": (hdf5(features=np.ones((3, 2), int), labels=np.arange(3)), "features are int64 of shape"),
    "other HDF5": (hdf5(weights=np.ones((3, 2))), "an HDF5 file without features"),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("case", CASES)
def test_files_without_features_are_named_for_what_they_are(tmp_path: Path, case: str) -> None:
    write, words = CASES[case]
    path = tmp_path / "novel.any"
    write(path)
    with pytest.raises(FsbenchError, match=words) as caught:
        read_file(path, "mini", "novel")
    assert str(path) in caught.value.message
    assert not (tmp_path.parent / "escape").exists()


def test_own_files_are_named(tmp_path: Path, features: Features) -> None:
    with pytest.raises(FsbenchError, match="is a feature file of fsbench already"):
        open_file(features.write(tmp_path / "own.h5"))
    BaseStatistics.fit(features.val.features, features.val.labels).save(tmp_path / "own.scatter.h5")
    with pytest.raises(FsbenchError, match="is a scatter file of fsbench"):
        open_file(tmp_path / "own.scatter.h5")


def test_hdf5_never_leaves_its_file(tmp_path: Path) -> None:
    write_features(tmp_path / "secret.h5", Provenance("a", "b"), {"novel": make_split(ROWS.features, ROWS.labels)})
    with h5py.File(tmp_path / "novel.h5", "w") as file:
        file["features"] = h5py.ExternalLink("secret.h5", "/novel/features")
        file["labels"] = np.arange(12)
    with pytest.raises(FsbenchError, match="without features"):
        read_file(tmp_path / "novel.h5", "mini", "novel")
    with h5py.File(tmp_path / "outside.h5", "w") as file:
        file.create_dataset("features", (12, 5), "f4", external=[(str(tmp_path / "secret.h5"), 0, h5py.h5f.UNLIMITED)])
    with pytest.raises(FsbenchError, match="features lies in another file"):
        read_file(tmp_path / "outside.h5", "mini", "novel")
