"""What is written replaces nothing but its own kind."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fsbench.errors import FsbenchError
from fsbench.io.files import whole_file, write_text
from tests.synthetic import make_features
from tests.trust.runs import run

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")


def write_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros(3)


def write_npz(path: Path) -> None:
    with path.open("wb") as stream:
        np.savez(stream, x=np.zeros(3))


WRITERS: dict[str, Callable[[Path], object]] = {
    "an HDF5 file": write_hdf5,
    "an archive": write_npz,
    "a pickle": lambda path: path.write_bytes(pickle.dumps({"x": 1})),
    "a weights file": lambda path: save_file({"x": torch.zeros(3)}, path),
    "a JSON file": lambda path: path.write_text(json.dumps({"x": 1})),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_what_took_work_is_not_replaced_by_another_kind(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    WRITERS[kind](path)
    before = path.read_bytes()
    for other in WRITERS.keys() - {kind}:
        with pytest.raises(FsbenchError, match=f"out is {kind}, and would be replaced"), whole_file(path) as temporary:
            WRITERS[other](temporary)
    with pytest.raises(FsbenchError, match="Choose another name"):
        write_text(path, "| a table |")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with whole_file(path) as temporary:
        WRITERS[kind](temporary)  # its own kind does


def test_features_are_not_overwritten_by_anything_else(tmp_path: Path) -> None:
    file = make_features(dimension=8).write(tmp_path / "features" / "a.h5")
    before = file.read_bytes()
    few = ("--tasks", "3", "--shots", "1", "--quiet")
    assert run(("solve", *few), tmp_path, tmp_path / "log").status == 0  # records for the report
    for line, status, words in (
        (("compare", "--methods", "ncm", "--out", str(file), *few), 2, "cannot write a table as .h5"),
        (("solve", "--out", str(file), *few), 1, "would be replaced by"),
        (("report", "--out", str(file)), 1, "would be replaced by"),
        (("export", str(file), "--out", str(file), "--force"), 1, "would be replaced by"),
    ):
        ended = run(line, tmp_path, tmp_path / "log")
        assert ended.status == status, ended
        assert words in ended.errors, ended.errors
        assert file.read_bytes() == before


def test_a_device_stays_a_device_and_a_link_a_link(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for device in (Path(os.devnull), pipe):
        before = device.lstat()
        with pytest.raises(FsbenchError, match="it is a device or a pipe"):
            write_text(device, "x")
        assert device.lstat().st_ino == before.st_ino
    (tmp_path / "far").mkdir()
    link = tmp_path / "table.md"
    link.symlink_to(tmp_path / "far" / "table.md")
    for text in ("first", "second"):
        write_text(link, text)
        assert link.is_symlink()
        assert (tmp_path / "far" / "table.md").read_text() == text


def test_an_export_replaces_nothing_unless_told_to(tmp_path: Path) -> None:
    make_features(dimension=8).write(tmp_path / "a.h5")
    original = tmp_path / "a.npz"
    original.write_text("the original")
    ended = run(("export", "a.h5"), tmp_path, tmp_path / "log")
    assert ended.status == 1
    assert "exists already" in ended.errors
    assert original.read_text() == "the original"
    assert run(("export", "a.h5", "--force"), tmp_path, tmp_path / "log").status == 0
    assert original.read_bytes() != b"the original"


def test_an_import_does_not_replace_what_it_reads(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.h5"
    with h5py.File(theirs, "w") as file:
        file["all_feats"], file["all_labels"] = np.eye(20, 8, dtype=np.float32), np.arange(20) // 4
        file["count"] = [20]
    before = theirs.read_bytes()
    names = ("--dataset", "a", "--backbone", "b", "--force")
    ended = run(("import", "novel=theirs.h5", "--out", "./theirs.h5", *names), tmp_path, tmp_path / "log")
    assert ended.status == 1
    assert "theirs.h5 would be replaced by what is read from it" in ended.errors
    assert theirs.read_bytes() == before
