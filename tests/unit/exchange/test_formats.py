"""Features of other programs: every format gives the very rows, and what does not fit is named."""

import hashlib
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from fsbench.data.catalog import dataset_info
from fsbench.errors import FsbenchError
from fsbench.exchange.importing import Naming, import_files
from fsbench.exchange.layouts import read_file
from fsbench.features.store import FeatureFile
from tests.comparing import QUIET
from tests.synthetic import Features
from tests.unit.exchange.samples import WRITERS, Rows, by_class, easy, make_rows

ROWS = make_rows()


def imported(*sources: str, out: Path, dataset: str = "own", force: bool = False) -> FeatureFile:
    return import_files(sources, out, Naming(dataset, "rn12"), QUIET, force=force)


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_very_rows(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"  # no name to go by
    WRITERS[name](path, ROWS)
    file = imported(f"novel={path}", out=tmp_path / "out.h5")
    stored = file.read("novel")
    assert stored.features.dtype == np.float32
    assert np.array_equal(stored.features, ROWS.features)
    assert np.array_equal(np.unique(ROWS.labels, return_inverse=True)[1], stored.labels)
    assert list(file.splits) == ["novel"]
    assert file.splits["novel"].class_names == ("3", "7", "11")


def test_provenance_names_the_sources(tmp_path: Path) -> None:
    path = tmp_path / "novel.plk"
    WRITERS["ptmap"](path, ROWS)
    made = imported(f"novel={path}", out=tmp_path / "out.h5", dataset="mini").provenance
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    expected = {"file": "novel.plk", "sha256": digest, "format": "pickle: vectors by class", "splits": "novel"}
    assert list(made.imported) == [expected]
    assert (made.dataset, made.backbone, made.precision) == ("mini", "rn12", "")


def test_every_split_is_named_once_and_the_users_word_does_not_win_over_the_content(tmp_path: Path) -> None:
    WRITERS["npz"](tmp_path / "plain.npz", ROWS)
    assert list(imported(f"test={tmp_path / 'plain.npz'}", out=tmp_path / "a.h5").splits) == ["novel"]
    with pytest.raises(FsbenchError, match="Two files hold the split novel"):
        imported(*2 * [f"novel={tmp_path / 'plain.npz'}"], out=tmp_path / "out.h5")
    WRITERS["npz_splits"](tmp_path / "s.npz", ROWS)
    with pytest.raises(FsbenchError, match="says itself that it holds novel, not base"):
        imported(f"base={tmp_path / 's.npz'}", out=tmp_path / "b.h5")


def test_easy_tensors_divide_by_classes_padding_is_left_out_and_augmented_samples_are_remarked(tmp_path: Path) -> None:
    tensor = np.random.default_rng(0).gamma(2.0, size=(200, 60, 3)).astype(np.float32)
    counts = np.array([n for split in ("base", "val", "novel") for n in dataset_info("cub").splits[split].values()])
    easy(tmp_path / "as.pt", tensor)
    notes = imported(str(tmp_path / "as.pt"), out=tmp_path / "as.h5", dataset="cub").provenance.notes
    assert any("augmented samples" in note for note in notes)
    for c, count in enumerate(counts):
        tensor[c, count:] = tensor[c, count - 1] * (1 + 1e-6)  # round-off of another batch
    easy(tmp_path / "plain.pt", tensor)
    file = imported(str(tmp_path / "plain.pt"), out=tmp_path / "plain.h5", dataset="cub")
    sizes = [np.diff(file.splits[split].offsets) for split in ("base", "val", "novel")]
    assert np.array_equal(np.concatenate(sizes), counts)
    assert file.splits["val"].class_names[0] == "100"
    assert np.array_equal(file.read("novel").features[0], tensor[150, 0])
    assert not any("augmented" in note for note in file.provenance.notes)


def test_easy_tensors_that_do_not_divide_say_what_to_do(tmp_path: Path) -> None:
    tensor = np.random.default_rng(0).normal(size=(7, 6, 3)).astype(np.float32)
    tensor[2, 4:] = 0  # padded with zeros
    easy(tmp_path / "f.pt", tensor)
    for dataset, words in (("own", "own has an unknown number"), ("mini", "mini has 64 \\+ 16 \\+ 20")):
        with pytest.raises(FsbenchError, match=words):
            imported(str(tmp_path / "f.pt"), out=tmp_path / "out.h5", dataset=dataset)
    file = imported(f"novel={tmp_path / 'f.pt'}", out=tmp_path / "out.h5")
    assert np.diff(file.splits["novel"].offsets).tolist() == [6, 6, 4, 6, 6, 6, 6]


def test_names_of_classes_stay_names(tmp_path: Path) -> None:
    tensors = {f"bird {c:02d}": torch.from_numpy(np.stack(vectors)) for c, vectors in by_class(ROWS).items()}
    torch.save(tensors, tmp_path / "novel.pt")
    file = imported(f"novel={tmp_path / 'novel.pt'}", out=tmp_path / "out.h5")
    assert file.splits["novel"].class_names == ("bird 03", "bird 07", "bird 11")


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    WRITERS["npz"](tmp_path / "novel.npz", ROWS)
    out = tmp_path / "out.h5"
    imported(f"novel={tmp_path / 'novel.npz'}", out=out)
    written = out.stat().st_mtime_ns
    imported(f"novel={tmp_path / 'novel.npz'}", out=out)
    assert out.stat().st_mtime_ns == written  # the same files again
    WRITERS["npz"](tmp_path / "novel.npz", make_rows(seed=5))
    with pytest.raises(FsbenchError, match="exists already"):
        imported(f"novel={tmp_path / 'novel.npz'}", out=out)
    imported(f"novel={tmp_path / 'novel.npz'}", out=out, force=True)
    assert out.stat().st_mtime_ns > written


def test_names_must_be_names() -> None:
    for dataset, backbone in (("a\nb", "rn12"), ("", "rn12"), ("../x", "rn12"), (256 * "d", "rn12"), ("mini", "a/b/c")):
        with pytest.raises(FsbenchError, match="cannot name a"):
            Naming(dataset, backbone)
    assert Naming("mini", "timm/vit_tiny").file_name() == "mini-timm_vit_tiny.h5"
    assert Naming("鳥の写真", "rn12").file_name() == "鳥の写真-rn12.h5"


def test_names_of_rows_are_not_names_of_classes(tmp_path: Path) -> None:
    names = [f"bird{row:02d}.png" for row in range(12)]
    np.savez(tmp_path / "a.npz", features=np.ones((12, 4)), labels=np.arange(12) % 3, names=names)
    with pytest.raises(FsbenchError, match="a name for every row"):
        imported(f"novel={tmp_path / 'a.npz'}", out=tmp_path / "out.h5")


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
        ({"labels": np.append(ROWS.labels, 0)}, r"12 rows of features, but labels of shape \(13,\)"),
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
            labels = np.char.add(name, rows.labels.astype(str))
            arrays |= {f"{split}_features": rows.features, f"{split}_labels": labels}
        return save(tmp_path / "f.npz", **arrays)

    with pytest.raises(FsbenchError, match=r"base has 5 \(.*\), novel has 6 \("):
        imported(pair(make_rows(dimension=6)), out=tmp_path / "out.h5")
    with pytest.raises(FsbenchError, match="share 12 identical rows"):
        imported(pair(ROWS), out=tmp_path / "out.h5")
    assert len(imported(pair(make_rows(seed=1), ("", "")), out=tmp_path / "numbers.h5").splits) == 2
