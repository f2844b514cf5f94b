"""HDF5 and npz files that lead elsewhere, or take more memory than they can need: refused, within bounds."""

from __future__ import annotations

import io
import struct
import subprocess
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

from fsbench.errors import FsbenchError
from fsbench.exchange.detect import read_file
from fsbench.features.store import FeatureFile, Provenance, make_split, write_features
from fsbench.io import trial
from fsbench.io.hdf5 import seal, sealed_hdf5
from tests.trust.isolate import read_in_child, refused

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")
LABELS = np.arange(10) % 2


def imported(path: Path) -> Any:
    return read_file(path, "mini", "novel")[1].parts[0]


def write_own(path: Path) -> Path:
    features = np.random.default_rng(0).random((12, 4), dtype=np.float32)
    split = make_split(features, np.arange(12) % 3, ["a", "b", "c"], [f"{i}.png" for i in range(12)])
    write_features(path, Provenance("mini", "wrn"), {"novel": split})
    return path


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
    assert "'novel/features' is not a valid name" in refused(path, imported)


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
    with sealed_hdf5(path) as file:
        file.attrs.create("format", ["x" * 1_000_003, *["y"] * 1499], dtype=h5py.string_dtype())
    repeat_first_text(path, 1_000_003, 1500)
    seal(path)
    return path


BOMBS = {"deflate": deflate_bomb, "texts": text_bomb}


@pytest.mark.parametrize("name", BOMBS)
def test_imported_hdf5_takes_no_more_memory_than_it_can_need(tmp_path: Path, name: str) -> None:
    refused(BOMBS[name](tmp_path / "bomb.h5"), imported)


@pytest.mark.parametrize("name", BOMBS)
def test_without_the_trial_the_memory_is_gone(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above would prove nothing."""
    path = BOMBS[name](tmp_path / "bomb.h5")
    monkeypatch.setattr("fsbench.exchange.containers.arrays.refuse_dangerous", lambda *given: None)
    assert read_in_child(path, imported).kind in {"memory", "slow"}


def test_attributes_of_own_files_are_single_values(tmp_path: Path) -> None:
    path = sealed_bomb(tmp_path / "bomb.h5")
    assert "of another program" in refused(path, FeatureFile.open)
    with h5py.File(path, "r") as file:  # the attack itself works
        assert file.attrs.get_id("format").shape == (1500,)


@pytest.mark.parametrize(("status", "words"), [(1, "crashes"), (-11, "crashes"), (3, "more memory")])
def test_every_end_of_the_trial_but_success_is_a_refusal(
    tmp_path: Path, status: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(tmp_path / "novel.h5", "w") as file:
        file["labels"], file["features"] = LABELS, np.zeros((10, 4), dtype=np.float32)
    assert imported(tmp_path / "novel.h5").features.shape == (10, 4)
    ended = subprocess.CompletedProcess([], status, b"", b"")
    monkeypatch.setattr(trial.subprocess, "run", lambda *given, **options: ended)  # type: ignore[attr-defined]
    with pytest.raises(FsbenchError, match=words):
        imported(tmp_path / "novel.h5")


def test_a_trial_that_does_not_finish_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    with h5py.File(tmp_path / "novel.h5", "w") as file:
        file["labels"] = LABELS
    monkeypatch.setattr(trial.subprocess, "run", hang)  # type: ignore[attr-defined]
    with pytest.raises(FsbenchError, match="does not finish"):
        imported(tmp_path / "novel.h5")


def without_a_seal(path: Path) -> Path:
    """The same file as it was before there were seals: HDF5's own bytes from the beginning."""
    content = path.read_bytes()
    with h5py.File(path, "r") as sealed, h5py.File(path.with_name("old.h5"), "w") as plain:
        plain.attrs.update(dict(sealed.attrs))
        for name in sealed:
            sealed.copy(name, plain)
    assert content.startswith(b"fsbench sealed HDF5")
    return path.with_name("old.h5")


def test_files_without_a_seal_are_read(tmp_path: Path) -> None:
    own = write_own(tmp_path / "own.h5")
    old = FeatureFile.open(without_a_seal(own)).read("novel")
    new = FeatureFile.open(own).read("novel")
    np.testing.assert_array_equal(old.features, new.features)
    assert (old.class_names, old.images, old.digest) == (new.class_names, new.images, new.digest)


def test_changed_features_without_a_seal_are_noticed(tmp_path: Path) -> None:
    old = without_a_seal(write_own(tmp_path / "own.h5"))
    with h5py.File(old, "r+") as file:
        file["novel/features"][3, 1] += 1
    with pytest.raises(FsbenchError, match="SHA-256 differs"):
        FeatureFile.open(old).read("novel")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_npz_is_compressed_as_numpy_does_it(tmp_path: Path, method: int) -> None:
    path = tmp_path / "novel.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        stream = io.BytesIO()
        np.save(stream, np.ones((10, 4), dtype=np.float32))
        archive.writestr("features.npy", stream.getvalue())
    assert "compressed in a way that numpy does not use" in refused(path, imported)
