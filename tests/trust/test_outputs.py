"""What is written replaces nothing but its own kind."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fsbench.errors import FsbenchError
from fsbench.io.files import whole_file, write_text
from tests.trust.runs import run

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork")


WRITERS: dict[str, Callable[[Path], object]] = {
    "an HDF5 file": lambda path: h5py.File(path, "w").close(),
    "an archive": lambda path: torch.save({"x": torch.zeros(3)}, path),
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


def test_a_device_stays_a_device_and_a_link_a_link(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for device in (Path(os.devnull), tmp_path / "pipe"):
        with pytest.raises(FsbenchError, match="it is a device or a pipe"):
            write_text(device, "x")
        assert not device.is_file()
    (tmp_path / "far").mkdir()
    link = tmp_path / "table.md"
    link.symlink_to(tmp_path / "far" / "table.md")
    for text in ("first", "second"):
        write_text(link, text)
        assert link.is_symlink()
        assert (tmp_path / "far" / "table.md").read_text() == text


def test_an_import_does_not_overwrite_what_it_reads(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.h5"
    with h5py.File(theirs, "w") as file:
        file["all_feats"], file["all_labels"] = np.eye(20, 8, dtype=np.float32), np.arange(20) // 4
        file["count"] = [20]
    before = theirs.read_bytes()
    line = "import novel=theirs.h5 --out ./theirs.h5 --dataset a --backbone b --force"
    ended = run(line.split(), tmp_path)
    assert (ended.status, "by what is read from it" in ended.errors) == (1, True), ended
    assert theirs.read_bytes() == before
