"""Feature files and the statistics beside them: what is written is read, and damage is noticed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from fsbench.errors import FsbenchError
from fsbench.features.scatter import BaseStatistics, base_statistics, scatter_path
from fsbench.features.store import FeatureFile, Provenance, make_split, write_features
from fsbench.io.hdf5 import seal
from tests.comparing import QUIET
from tests.synthetic import Features, make_features


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


def same(a: BaseStatistics, b: BaseStatistics) -> None:
    for name in ("mean", "scatter", "class_weighted", "eigenvalues"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=1e-10, atol=1e-12)
    assert a.class_counts == b.class_counts


@pytest.mark.parametrize("rows", [1, 7, 50, 10_000])
def test_streaming_in_blocks(features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr("fsbench.features.store._CHUNK_BYTES", rows * 48 * 4)
    path = features.write(tmp_path / "f.h5")
    seen: list[int] = []
    same(BaseStatistics.fit_file(FeatureFile.open(path), seen.append), features.statistics)
    assert sum(seen) == 2 * len(features.base.features)


def test_order_of_rows_and_names_of_labels_do_not_matter(features: Features) -> None:
    order = np.random.default_rng(0).permutation(len(features.base.features))
    shuffled = BaseStatistics.fit(features.base.features[order], 1000 - 3 * features.base.labels[order])
    torch.testing.assert_close(shuffled.scatter, features.statistics.scatter, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(shuffled.class_weighted, features.statistics.class_weighted, rtol=1e-10, atol=1e-12)
    tensors = BaseStatistics.fit(torch.from_numpy(features.base.features), torch.from_numpy(features.base.labels))
    same(tensors, features.statistics)


def test_the_scatter_file_is_made_once_and_again_when_it_is_damaged_or_the_features_change(tmp_path: Path) -> None:
    path = make_features(seed=1).write(tmp_path / "f.h5")
    first = base_statistics(FeatureFile.open(path), QUIET)
    assert scatter_path(path).name == "f.scatter.h5"
    made = scatter_path(path).stat().st_mtime_ns
    again = base_statistics(FeatureFile.open(path), QUIET)
    same(again, first)
    assert torch.equal(again.eigenvectors, first.eigenvectors)
    assert scatter_path(path).stat().st_mtime_ns == made
    with h5py.File(scatter_path(path), "r+") as stored:
        stored["mean"][3] = 0.5
    with pytest.raises(FsbenchError, match="not as it was written"):
        BaseStatistics.load(scatter_path(path))
    same(base_statistics(FeatureFile.open(path), QUIET), first)
    same(BaseStatistics.load(scatter_path(path)), first)
    make_features(seed=2).write(path)
    other = base_statistics(FeatureFile.open(path), QUIET)
    assert not torch.equal(other.mean, first.mean)


def test_a_class_of_one_image_and_identical_images(features: Features) -> None:
    rows = np.concatenate([features.base.features, np.ones((1, 48)), np.ones((4, 48)) * 2])
    labels = np.concatenate([features.base.labels, [90], [91] * 4])
    fitted = BaseStatistics.fit(rows, labels)
    assert torch.isfinite(fitted.class_weighted).all()
    assert torch.isfinite(fitted.scatter).all()


def test_effective_rank_and_share_clamped() -> None:
    base = make_features().statistics
    flat = replace(base, eigenvalues=torch.full((48,), 0.01).double())
    assert flat.effective_rank == pytest.approx(48)
    assert flat.share_clamped(9.9) == 1
    assert flat.share_clamped(10.1) == 0
