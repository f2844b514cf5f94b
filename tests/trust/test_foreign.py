"""Files that lead elsewhere, take more memory than they can need, or say the label twice: refused, within bounds."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

from fsbench.data.layouts import load_own
from fsbench.data.splitting import read_split_file
from fsbench.errors import FsbenchError
from fsbench.exchange.detect import read_file
from fsbench.features import hdf5, probe
from fsbench.features.seal import seal, sealed_hdf5
from fsbench.features.store import FeatureFile, Provenance, make_split, write_features
from tests.images import write_images
from tests.trust.isolate import Outcome, judged, run_cases

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")
LABELS = np.arange(10) % 2


def imported(path: Path) -> Any:
    return read_file(path, "mini", "novel")[1].parts[0]


def outcome(path: Path, read: Callable[[Path], object]) -> Outcome:
    """What comes of reading a file in a process whose time and memory are watched."""
    return run_cases([0], lambda case: judged(case, lambda: bool(read(path)), path.name))[0]


def refused(path: Path, read: Callable[[Path], object] = imported) -> str:
    found = outcome(path, read)
    assert found.kind == "refused", f"{found.kind}: {found.told}"
    return found.told


def write_own(path: Path) -> Path:
    features = np.random.default_rng(0).random((12, 4), dtype=np.float32)
    split = make_split(features, np.arange(12) % 3, ["a", "b", "c"], [f"{i}.png" for i in range(12)])
    write_features(path, Provenance("mini", "wrn"), {"novel": split})
    return path


# HDF5: files that lead elsewhere


def test_a_name_with_a_slash_leads_into_no_other_file(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["features"] = np.full((10, 4), 42, dtype=np.float32)
    path = tmp_path / "novel.h5"
    with h5py.File(path, "w") as file:
        file["novel"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/")
        file["novelZfeatures"] = np.zeros(1, dtype=np.float32)
        file["novel_labels"] = LABELS
    path.write_bytes(path.read_bytes().replace(b"novelZfeatures", b"novel/features"))
    with h5py.File(path, "r") as file:  # the attack itself works
        assert isinstance(file.get("novel/features", getlink=True), h5py.HardLink)
        assert file["novel/features"][0, 0] == 42
    assert "'novel/features' is no name" in refused(path)


def test_splits_of_own_files_lie_in_them(tmp_path: Path) -> None:
    write_own(tmp_path / "other.h5")
    with h5py.File(write_own(tmp_path / "own.h5"), "r+") as file:
        del file["novel"]
        file["novel"] = h5py.ExternalLink("other.h5", "/novel")
    seal(tmp_path / "own.h5")
    with pytest.raises(FsbenchError, match="none of the splits"):
        FeatureFile.open(tmp_path / "own.h5")


def external(file: h5py.File, values: Any) -> None:
    raw = f"{file.filename}.raw"
    values.tofile(raw)
    file.create_dataset("novel/features", values.shape, "f4", external=[(raw, 0, values.nbytes)])


def virtual(file: h5py.File, values: Any) -> None:
    with h5py.File(f"{file.filename}.other", "w") as other:
        other["features"] = values
    layout = h5py.VirtualLayout(values.shape, "f4")
    layout[:] = h5py.VirtualSource(f"{file.filename}.other", "features", values.shape)
    file.create_virtual_dataset("novel/features", layout)


def chunked(file: h5py.File, values: Any) -> None:
    file.create_dataset("novel/features", data=values, chunks=values.shape)


def huge_chunks(file: h5py.File, values: Any) -> None:
    file.create_dataset(
        "novel/features", data=values, chunks=(1 << 20, 4), maxshape=(None, 4), compression="gzip", shuffle=False
    )


@pytest.mark.parametrize("store", [external, virtual, chunked, huge_chunks])
def test_features_of_own_files_are_stored_whole_in_them(tmp_path: Path, store: Any) -> None:
    with h5py.File(write_own(tmp_path / "own.h5"), "r+") as file:
        values = file["novel/features"][()]
        del file["novel/features"]
        store(file, values)
        np.testing.assert_array_equal(file["novel/features"][()], values)
    seal(tmp_path / "own.h5")
    with pytest.raises(FsbenchError, match="not stored whole inside the file"):
        FeatureFile.open(tmp_path / "own.h5")


# HDF5: memory


def deflate_bomb(path: Path) -> Path:
    """Ten rows in a chunk that inflates to more than a gigabyte."""
    deflate, zeros = zlib.compressobj(1), bytes(1 << 24)
    chunk = b"".join([*(deflate.compress(zeros) for _ in range(70)), deflate.flush()])
    with h5py.File(path, "w") as file:
        file["labels"] = LABELS
        features = file.create_dataset("features", (10, 4), "f4", chunks=(10, 4), compression="gzip")
        features.id.write_direct_chunk((0, 0), chunk)
    return path


def repeat_first_text(path: Path, length: int, count: int) -> None:
    """Let all texts of an array be the first one, which is stored once."""
    content = path.read_bytes()
    start = content.index(struct.pack("<I", length))
    path.write_bytes(content[:start] + content[start : start + 16] * count + content[start + 16 * count :])


def text_bomb(path: Path) -> Path:
    """Fifteen hundred texts of a megabyte, stored once."""
    with h5py.File(path, "w") as file:
        file["labels"] = LABELS
        file["features"] = np.zeros((10, 4), dtype=np.float32)
        file.create_dataset("images", data=["x" * 1_000_003, *["y"] * 1499], dtype=h5py.string_dtype())
    repeat_first_text(path, 1_000_003, 1500)
    return path


def sealed_bomb(path: Path) -> Path:
    """Fifteen hundred texts of a megabyte in the attribute that names the format, under a seal."""
    made = path.with_suffix(".made")
    with sealed_hdf5(made) as file:
        file.attrs.create("format", ["x" * 1_000_003, *["y"] * 1499], dtype=h5py.string_dtype())
    repeat_first_text(made, 1_000_003, 1500)
    seal(made)
    shutil.copy(made, path)  # this process has not written the copy
    return path


BOMBS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    "deflate": (deflate_bomb, imported),
    "texts": (text_bomb, imported),
    "sealed": (sealed_bomb, FeatureFile.open),
}


@pytest.mark.parametrize("name", BOMBS)
def test_hdf5_takes_no_more_memory_than_it_can_need(tmp_path: Path, name: str) -> None:
    make, read = BOMBS[name]
    refused(make(tmp_path / "bomb.h5"), read)


@pytest.mark.parametrize("name", BOMBS)
def test_without_the_trial_the_memory_is_gone(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above would prove nothing."""
    make, read = BOMBS[name]
    path = make(tmp_path / "bomb.h5")
    monkeypatch.setattr("fsbench.exchange.containers.hdf5_file.refuse_dangerous", lambda *given: None)
    monkeypatch.setattr("fsbench.features.hdf5.refuse_dangerous", lambda *given: None)
    assert outcome(path, read).kind in {"memory", "slow"}


def test_a_file_is_tried_once_and_never_by_its_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Path] = []
    monkeypatch.setattr(hdf5, "refuse_dangerous", lambda path, *given: tried.append(path))
    own = FeatureFile.open(write_own(tmp_path / "own.h5"))
    own.read("novel")
    assert tried == []
    shutil.copy(own.path, tmp_path / "copy.h5")
    FeatureFile.open(tmp_path / "copy.h5").read("novel")
    assert tried == [tmp_path / "copy.h5"]
    write_own(tmp_path / "later.h5").replace(tmp_path / "copy.h5")
    FeatureFile.open(tmp_path / "copy.h5").read("novel")
    assert len(tried) == 1


@pytest.mark.parametrize(("status", "words"), [(1, "breaks down"), (-11, "breaks down"), (3, "more memory")])
def test_every_end_of_the_trial_but_success_is_a_refusal(
    tmp_path: Path, status: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(write_own(tmp_path / "own.h5"), tmp_path / "copy.h5")
    ended = subprocess.CompletedProcess([], status, b"", b"")
    monkeypatch.setattr(probe.subprocess, "run", lambda *given, **options: ended)  # type: ignore[attr-defined]
    with pytest.raises(FsbenchError, match=words):
        FeatureFile.open(tmp_path / "copy.h5")


# npz


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_npz_is_compressed_as_numpy_does_it(tmp_path: Path, method: int) -> None:
    path = tmp_path / "novel.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        stream = io.BytesIO()
        np.save(stream, np.ones((10, 4), dtype=np.float32))
        archive.writestr("features.npy", stream.getvalue())
    assert "compressed in a way that numpy does not use" in refused(path)


# Tables: memory


def whole_number(value: int, width: int = 1) -> bytes:
    """A number as parquet writes it, in at least so many bytes."""
    value *= 2
    found: list[int] = []
    while value or len(found) < width:
        found.append(value & 127)
        value >>= 7
    return bytes([*(byte | 128 for byte in found[:-1]), found[-1]])


def test_parquet_takes_no_more_memory_than_it_can_need(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "novel.parquet"
    for text, count in (("x" * 1_000_000, 7000), ("x" * 1000, 1_000_000)):
        texts = pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), [text])
        numbers = {"label": np.arange(count) % 2, "f0": np.ones(count, dtype=np.float32)}
        for keep_schema in (True, False):
            parquet.write_table(
                pa.table({**numbers, "image": texts}), path, compression="zstd", store_schema=keep_schema
            )
            refused(path)
    rows = 150_000_000
    vector = pa.ListArray.from_arrays(np.array([0, rows], dtype=np.int32), np.zeros(rows, dtype=np.float32))
    parquet.write_table(pa.table({"label": [0], "embedding": vector}), path)
    assert "more than a file of its size can hold" in refused(path)
    content = path.read_bytes()
    end = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
    stated = whole_number(rows)
    path.write_bytes(content[:end] + content[end:].replace(stated, whole_number(1, len(stated))))
    assert parquet.read_metadata(path).row_group(0).column(1).num_values == 1
    refused(path)


def test_one_long_name_does_not_widen_a_million_cells(tmp_path: Path) -> None:
    path = tmp_path / "novel.csv"
    path.write_text("label,f0\n" + "x" * 1000 + ",1\n" + "a,2\n" * 1_000_000)
    assert "1000001 names of up to 1000 letters" in refused(path)


# Tables: labels among the features


def table(path: Path, header: str, row: Callable[[int], str]) -> Path:
    path.write_text("\n".join([header, *map(row, range(9))]) + "\n")
    return path


@pytest.mark.parametrize(
    ("header", "row", "words"),
    [
        ("class_name,class_id,f0,f1", lambda i: f"c{i % 3},{i % 3},{i / 9},{i / 7}", "'class_id' holds numbers"),
        ("label,width,f0,f1", lambda i: f"c{i % 3},{i},{i / 9},{i / 7}", "'width' holds numbers"),
        ("Label,label,f0", lambda i: f"{i % 3},{i % 3},{i / 9}", "'Label', 'label'"),
        ("label, LABEL ,f0", lambda i: f"{i % 3},{i % 3},{i / 9}", "two columns of the same name"),
        ("class_name,class_id,f0", lambda i: f"c{i % 3},{i % 3},{i / 9}", "'class_id' is the same for all"),
        ("label,code,a", lambda i: f"c{i % 3},{(i % 3) ** 2 / 7},{i / 9}", "'code' is the same for all"),
        (
            "label,is_0,is_1,is_2,f0,f1",
            lambda i: f"{i % 3},{i % 3 == 0:d},{i % 3 == 1:d},{i % 3 == 2:d},{i / 9},{i / 7}",
            "'is_0' is the same for all",
        ),
        ("label,f0", lambda i: f"{i % 3},{'1_0' if i == 4 else i}", "holds '1_0' in row 5"),
    ],
)
def test_labels_are_no_features(tmp_path: Path, header: str, row: Any, words: str) -> None:
    with pytest.raises(FsbenchError, match=r"novel\.csv") as caught:
        imported(table(tmp_path / "novel.csv", header, row))
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("header", "row", "dimension"),
    [
        ("label,f0,f1,f2", lambda i: f"{i % 3},{i / 9},0,{i % 3}", 3),  # dead features are features
        ("label,0,1", lambda i: f"{i % 3},{i / 9},{i}", 2),
        ("y,mean,spread", lambda i: f"{i % 3},{i / 9},{i}", 2),
        ("label,conv0,conv1,fc0,fc1", lambda i: f"{i % 3},{i / 9},{i},{i},{i / 3}", 4),
        ("label,f0", lambda i: f"{i},{i / 9}", 1),  # one row per class
        ("id,label,f0,f1", lambda i: f"{i},{i % 3},{i / 9},{i}", 2),
    ],
)
def test_tables_that_people_write_are_read(tmp_path: Path, header: str, row: Any, dimension: int) -> None:
    assert imported(table(tmp_path / "novel.csv", header, row)).features.shape == (9, dimension)


def test_vectors_stand_alone(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    vectors = list(np.random.default_rng(0).random((10, 4), dtype=np.float32))
    for name, column in {"class_id": LABELS, "logits": [row[:2] for row in vectors]}.items():
        content = {"label": [f"c{label}" for label in LABELS], "embedding": vectors, name: column}
        parquet.write_table(pa.table(content), tmp_path / "novel.parquet")
        with pytest.raises(FsbenchError, match=name):
            imported(tmp_path / "novel.parquet")


def test_the_first_column_of_a_kind_counts(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "label,path,image,subset,split,f0", lambda i: f"{i % 3},p,i,base,novel,{i}")
    _, found = read_file(path, "mini")
    assert [(part.split, part.images[0]) for part in found.parts] == [("novel", "i")]
    assert found.remarks == ("columns left out, as they are no features: 'subset', 'path'",)


# Splits


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"base": ["a"], "base": ["b"], "novel": ["a"]}', "'base' stands there twice"),
        ('{"base": [' + "9" * 5000 + "]}", "Could not read"),
        ('{"base": ["a"], "novel": ["a"]}', "both base and novel"),
    ],
)
def test_split_files_that_contradict_themselves(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(FsbenchError, match=r"split\.json") as caught:
        read_split_file(tmp_path / "split.json")
    assert words in caught.value.message


def test_the_same_pictures_are_never_two_classes(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photos", {"base": ["a", "b"], "novel": ["c", "d"]}, images=2)
    for target in ("base/a", "novel/c", "base", "."):
        link = root / "novel" / "loop"
        link.symlink_to(root / target)
        with pytest.raises(FsbenchError, match="the same folder, or one lies in the other") as caught:
            load_own(root)
        assert str(link) in caught.value.message
        link.unlink()
    load_own(root)


def test_the_same_pictures_are_never_two_classes_of_a_list(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photos", {"images": ["a", "b"]}, images=2) / "images"
    (root / "c").symlink_to(root / "a")
    (tmp_path / "split.json").write_text('{"base": ["a"], "novel": ["b"]}')
    assert load_own(root, split_file=tmp_path / "split.json").notes  # a link that no split names does no harm
    (tmp_path / "split.json").write_text('{"base": ["a"], "novel": ["b", "c"]}')
    with pytest.raises(FsbenchError, match=r"/a and .*/c are the same folder"):
        load_own(root, split_file=tmp_path / "split.json")


def test_links_to_folders_elsewhere_are_followed(tmp_path: Path) -> None:
    store = write_images(tmp_path / "disk", {"all": ["a", "b", "c"]}, images=2) / "all"
    for split, name in (("base", "a"), ("base", "b"), ("novel", "c")):
        (tmp_path / "photos" / split).mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / split / name).symlink_to(store / name)
    (tmp_path / "root").symlink_to(tmp_path / "photos")
    found = load_own(tmp_path / "root")
    assert {name: len(split) for name, split in found.splits.items()} == {"base": 4, "novel": 2}
