from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fsbench.errors import FsbenchError
from fsbench.features.store import FeatureFile, Provenance, make_split, write_features
from fsbench.io.hdf5 import seal
from tests.synthetic import Features


@pytest.fixture
def path(features: Features, tmp_path: Path) -> Path:
    return features.write(tmp_path / "synthetic-none.h5")


def test_what_is_written_is_read(features: Features, tmp_path: Path) -> None:
    provenance = Provenance(
        "mini", "wrn", "wrn-s2m2", "wrn.pt", "abc", "def", '{"crop": 84}', 84, 30, "bf16", {"torch": "2"}, ("a",), "f"
    )
    novel = make_split(np.eye(3, 4), np.array([7, 2, 7]), images=["b/1.jpg", "ä/2.jpg", "b/3.jpg"])
    write_features(tmp_path / "f.h5", provenance, {"novel": novel})
    file = FeatureFile.open(tmp_path / "f.h5")
    assert file.provenance == Provenance(**{**provenance.__dict__, "notes": ["a"], "imported": []})
    read = file.read("novel")
    np.testing.assert_array_equal(read.features, np.eye(3, 4)[[1, 0, 2]])
    np.testing.assert_array_equal(read.labels, [0, 1, 1])
    assert read.images == ("ä/2.jpg", "b/1.jpg", "b/3.jpg")
    assert read.class_names == ("2", "7")
    assert file.dimension == 4


@pytest.mark.parametrize(
    ("labels", "names", "words"),
    [
        ([0, 1, 3], ["a", "b", "c"], "Row 2 has label 3, outside 0..2"),
        ([0, 2, 2], ["a", "b", "c"], "Class 1 has no images"),
        ([0.0, 1.0, 1.0], None, "must be integers"),
        ([0, 1], None, "Expected features"),
    ],
)
def test_bad_labels_are_named(labels: list[float], names: list[str] | None, words: str) -> None:
    with pytest.raises(FsbenchError) as caught:
        make_split(np.ones((3, 2)), np.array(labels), names)
    assert words in str(caught.value)


def edit(path: Path, change: Any) -> Path:
    with h5py.File(path, "r+") as file:
        change(file)
    seal(path)
    return path


def set_attribute(name: str, value: Any) -> Any:
    return lambda file: file.attrs.__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_attribute("format", "other"), "is of format 'other', expected 'fsbench-features'"),
        (set_attribute("version", 99), "format version 99, this fsbench reads up to 1"),
        (set_attribute("provenance", '{"dataset": 3, "backbone": "x"}'), "cannot be read as an HDF5 file"),
        (lambda file: file["val"].__delitem__("class_names"), "cannot be read as an HDF5 file"),
        (lambda file: [file.__delitem__(name) for name in ("base", "val", "novel")], "none of the splits"),
    ],
)
def test_broken_files_are_named_for_what_they_are(path: Path, change: Any, words: str) -> None:
    with pytest.raises(FsbenchError) as caught:
        FeatureFile.open(edit(path, change))
    assert words in str(caught.value)


@pytest.mark.parametrize(("name", "place"), [("features", (3, 3)), ("class_offsets", 4)])
def test_altered_features_and_labels_are_noticed(path: Path, name: str, place: object) -> None:
    def change(file: h5py.File) -> None:
        file[f"novel/{name}"][place] += 1

    with pytest.raises(FsbenchError, match="SHA-256 differs"):
        FeatureFile.open(edit(path, change)).read("novel")


def test_a_failed_write_leaves_the_old_file_and_a_truncated_one_is_refused(path: Path, features: Features) -> None:
    before = path.read_bytes()
    for splits in ({}, {"train": features.base}):
        with pytest.raises(FsbenchError, match="holds the splits base, val, novel"):
            write_features(path, Provenance("x", "y"), splits)
    with pytest.raises(TypeError):
        write_features(path, Provenance("x", object()), {"novel": features.novel})  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir()] == [path.name]
    with pytest.raises(FsbenchError, match="Could not write"):
        features.write(path / "f.h5")
    path.write_bytes(before[: len(before) // 2])
    with pytest.raises(FsbenchError, match="it is truncated"):
        FeatureFile.open(path)
