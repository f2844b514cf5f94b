"""Files built to execute something, through every door that reads files of others: a canary stays dead."""

from __future__ import annotations

import contextlib
import copyreg
import io
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest
import torch

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.data.catalog import dataset_info
from fsbench.data.scan import load_own
from fsbench.errors import FsbenchError
from fsbench.exchange.detect import read_file
from fsbench.features.store import FeatureFile
from fsbench.io import torch_files
from fsbench.io.pickles import read_plain_pickle
from fsbench.machine import run_child
from fsbench.train.checkpoint import CheckpointFile
from tests.images import write_images
from tests.trust.payloads import CONTAINERS, PICKLES, in_legacy, in_zip

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _extension() -> Iterator[None]:
    """A program that gives names to numbers of the pickle format."""
    copyreg.add_extension("os", "mkdir", 1)
    yield
    copyreg.remove_extension("os", "mkdir", 1)


@pytest.mark.parametrize("name", PICKLES)
def test_the_payloads_work(name: str, tmp_path: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    with contextlib.suppress(Exception):  # what comes after the deed
        pickle.loads(PICKLES[name](tmp_path / "canary"))
    assert (tmp_path / "canary").exists()


def doors(folder: Path) -> dict[str, Callable[[Path], object]]:
    """Everything that reads a file of unknown origin."""
    network = torch.nn.Linear(1, 1)
    optimiser = torch.optim.SGD(network.parameters(), 0.1)
    return {
        "weights": read_checkpoint,
        "import": lambda path: read_file(path, "mini", "novel"),
        "plain pickle": read_plain_pickle,
        "training": lambda path: CheckpointFile(path, "f").restore(network, optimiser),
        "features": FeatureFile.open,
        "cifar": lambda path: _cifar(path, folder),
    }


def _cifar(path: Path, folder: Path) -> object:
    from fsbench.data.cifar import list_cifar

    for name in ("train", "test", "meta"):
        (folder / name).write_bytes(path.read_bytes())
    return list_cifar(folder, dataset_info("cifarfs"))


@pytest.mark.parametrize("name", PICKLES)
def test_nothing_is_executed_through_any_door(name: str, tmp_path: Path, tally: Counter[str]) -> None:
    canary, path = tmp_path / "canary", tmp_path / "file"
    for wrap in CONTAINERS.values():
        path.write_bytes(wrap(PICKLES[name](canary)))
        for read in doors(tmp_path).values():
            with contextlib.suppress(FsbenchError):  # any other exception fails the test
                read(path)
            tally["payloads offered"] += 1
            tally["payloads executed"] += canary.exists()
            assert not canary.exists()


TORCH_FILES = {"zip": in_zip, "legacy": in_legacy}
TORCH_DOORS = ("weights", "import", "training")


@pytest.mark.parametrize("name", PICKLES)
def test_torch_alone_executes_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the inspection of files switched off, torch's own guard is what holds."""
    for check in ("_check_zip", "_check_legacy"):
        monkeypatch.setattr(torch_files, check, lambda *_: None)
    _offer_to_torch(PICKLES[name], tmp_path)


@pytest.mark.parametrize("name", PICKLES)
def test_the_inspection_alone_lets_nothing_through(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's own guard switched off, the inspection of files is what holds."""
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *given, **options: load(*given, **{**options, "weights_only": False}))
    _offer_to_torch(PICKLES[name], tmp_path)


def _offer_to_torch(payload: Callable[[Path], bytes], folder: Path) -> None:
    canary, path = folder / "canary", folder / "file"
    for wrap in TORCH_FILES.values():
        path.write_bytes(wrap(payload(canary)))
        for door in TORCH_DOORS:
            with pytest.raises(FsbenchError):
                doors(folder)[door](path)
            assert not canary.exists()


def test_files_without_any_guard_would_execute_the_payloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the two tests above would prove nothing."""
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *given, **options: load(*given, **{**options, "weights_only": False}))
    for check in ("_check_zip", "_check_legacy"):
        monkeypatch.setattr(torch_files, check, lambda *_: None)
    for name, wrap in TORCH_FILES.items():
        (tmp_path / "file").write_bytes(wrap(PICKLES["Reduce 2"](tmp_path / name)))
        with contextlib.suppress(FsbenchError):
            read_checkpoint(tmp_path / "file")
        assert (tmp_path / name).exists()


@pytest.mark.parametrize("member", ["../../canary", "/tmp/canary-of-fsbench", "a/../../canary", "link"])
def test_archives_are_never_unpacked(member: str, tmp_path: Path) -> None:
    """Members with paths that lead out, and links, stay where they are: in the archive."""
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    with tarfile.open(inside / "weights.tar", "w") as archive:
        entry = tarfile.TarInfo(member)
        if member == "link":
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(entry)
        else:
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"evil"))
    with zipfile.ZipFile(inside / "weights.zip", "w") as packed:
        packed.writestr(member, b"evil")
        packed.writestr("archive/data.pkl", pickle.dumps({}))
    before = sorted(tmp_path.rglob("*"))
    for name in ("weights.tar", "weights.zip"):
        for read in (read_checkpoint, lambda path: read_file(path, "mini", "novel")):
            with pytest.raises(FsbenchError):
                read(inside / name)
    assert sorted(tmp_path.rglob("*")) == before
    assert not os.path.lexists("/tmp/canary-of-fsbench")


@pytest.mark.parametrize("row", ["../secret.png,a", "/etc/passwd.png,a", "a\\..\\..\\secret.png,a", "link.png,a"])
def test_names_in_a_csv_never_lead_out_of_the_folder(row: str, tmp_path: Path) -> None:
    root = write_images(tmp_path / "photos", {"all": ["a"]}, images=1)
    (tmp_path / "secret.png").write_bytes((root / "all" / "a" / "000.png").read_bytes())
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    (root / "train.csv").write_text(f"filename,label\nall/a/000.png,a\n{row}\n")
    with pytest.raises(FsbenchError, match=r"line 3 of .*train\.csv|Line 3 of .*train\.csv"):
        load_own(root)


def test_features_that_lie_in_another_file_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["features"] = np.ones((2, 2), dtype=np.float32)
    with h5py.File(tmp_path / "novel.h5", "w") as file:
        file["features"] = h5py.ExternalLink("other.h5", "features")
        file["labels"] = np.zeros(2, dtype=np.int64)
    with pytest.raises(FsbenchError):
        read_file(tmp_path / "novel.h5", "mini", "novel")


@pytest.mark.parametrize("name", ["torch", "h5py", "numpy", "json"])
def test_modules_in_the_current_folder_are_not_imported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with data of strangers may hold a torch.py."""
    (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-c", f"import {name}"], check=False, capture_output=True)
    works = (tmp_path / "canary").exists()
    (tmp_path / "canary").unlink(missing_ok=True)
    assert works
    run_child(f"import {name}")
    with h5py.File(tmp_path / "novel.h5", "w") as file:
        file["nothing"] = np.zeros(1)
    with pytest.raises(FsbenchError):
        read_file(tmp_path / "novel.h5", "mini", "novel")
    assert not (tmp_path / "canary").exists()
