import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from fsbench.errors import FsbenchError
from fsbench.exchange.layouts import read_file
from tests.synthetic import Features
from tests.unit.exchange.samples import Rows, by_class, make_rows
from tests.unit.exchange.test_formats import imported

ROWS = make_rows()


def save(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<!DOCTYPE html><html>", "it starts with b'<!DOCTYPE ht'"),
        (pickle.dumps([1, 2, 3]), "it holds a list"),
        (pickle.dumps({"data": np.zeros((4, 3072), np.uint8), "fine_labels": [0, 1]}), "it holds data, fine_labels"),
    ],
)
def test_files_without_features_are_named_for_what_they_are(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "novel.any"
    path.write_bytes(content)
    with pytest.raises(FsbenchError, match=words) as caught:
        read_file(path, "mini", "novel")
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_checkpoints_and_other_hdf5_files_are_named(tmp_path: Path, features: Features) -> None:
    torch.save({"epoch": 1, "state": {"module.conv.weight": torch.ones(2, 2)}}, tmp_path / "weights")
    with h5py.File(tmp_path / "hdf5", "w") as file:
        file["features"] = np.ones((3, 2))
    features.write(tmp_path / "own")
    for name, words in (
        ("weights", "without features that fsbench recognises; it holds epoch, state"),
        ("hdf5", "an HDF5 file without all_feats, all_labels, count; it holds features"),
        ("own", "is a file of fsbench already"),
    ):
        with pytest.raises(FsbenchError, match=words):
            read_file(tmp_path / name, "mini", "novel")


@pytest.mark.parametrize("value", [np.nan, 1e39])
def test_rows_that_are_not_finite_are_named(tmp_path: Path, value: float) -> None:
    features = ROWS.features.astype(np.float64)
    features[5, 2] = value
    path = "novel=" + save(tmp_path / "novel.npz", features=features, labels=ROWS.labels)
    with pytest.raises(FsbenchError, match=r"novel\.npz, novel: Row 5 of the features contains"):
        imported(path, out=tmp_path / "out.h5")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"labels": ROWS.labels[:-1]}, r"got \(12, 5\) and \(11,\)"),
        ({"labels": ROWS.labels + 0.5}, "labels are float64, expected whole numbers or names"),
        ({"features": ROWS.features[:0], "labels": ROWS.labels[:0]}, "no images at all"),
        ({"features": ROWS.features.astype(int)}, "features are int64 of shape"),
        ({"feats": ROWS.features}, "Two arrays could be the features"),
        ({"class_names": np.array(["a", "b"])}, "labels go from 3 to 11, but there are 2 names"),
        ({"count": np.array([99])}, "count is"),
        ({"labels": np.array([None] * 12)}, "Object arrays cannot be loaded"),
    ],
)
def test_what_does_not_fit_together_is_named(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    path = "novel=" + save(tmp_path / "novel.npz", **{"features": ROWS.features, "labels": ROWS.labels} | arrays)
    with pytest.raises(FsbenchError, match=words) as caught:
        imported(path, out=tmp_path / "out.h5")
    assert "novel.npz" in str(caught.value)
    assert not (tmp_path / "out.h5").exists()


def test_classes_of_one_name_without_vectors_or_with_vectors_of_different_length_are_named(tmp_path: Path) -> None:
    classes = by_class(ROWS)
    (tmp_path / "novel.plk").write_bytes(pickle.dumps(classes | {"7": classes[3]}))
    with pytest.raises(FsbenchError, match="Two classes have the same name, 7"):
        imported(f"novel={tmp_path / 'novel.plk'}", out=tmp_path / "out.h5")
    classes[5] = []
    (tmp_path / "novel.plk").write_bytes(pickle.dumps(classes))
    notes = imported(f"novel={tmp_path / 'novel.plk'}", out=tmp_path / "out.h5").provenance.notes
    assert "novel.plk: classes without any vector are left out: 5" in notes
    classes[11].append(np.ones(4, dtype=np.float32))
    (tmp_path / "novel.plk").write_bytes(pickle.dumps(classes))
    with pytest.raises(FsbenchError, match="5 in class 11, 4 in class 11"):
        imported(f"novel={tmp_path / 'novel.plk'}", out=tmp_path / "out.h5")


def test_splits_must_belong_together(tmp_path: Path) -> None:
    def pair(other: Rows, names: tuple[str, str] = ("b", "n")) -> str:
        arrays: dict[str, Any] = {}
        for split, rows, name in (("base", ROWS, names[0]), ("novel", other, names[1])):
            arrays |= {
                f"{split}_features": rows.features,
                f"{split}_labels": np.char.add(name, rows.labels.astype(str)),
            }
        return save(tmp_path / "f.npz", **arrays)

    with pytest.raises(FsbenchError, match=r"base has 5 \(.*\), novel has 6 \("):
        imported(pair(make_rows(dimension=6)), out=tmp_path / "out.h5")
    with pytest.raises(FsbenchError, match="share 12 identical rows"):
        imported(pair(ROWS), out=tmp_path / "out.h5")
    assert len(imported(pair(make_rows(seed=1), ("", "")), out=tmp_path / "numbers.h5").splits) == 2
