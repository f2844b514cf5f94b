"""Files built to execute something, through every door that reads files of others: a canary stays dead."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import torch

from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.data.catalog import dataset_info
from fsbench.data.layouts import load_own
from fsbench.data.probes import run_child
from fsbench.errors import FsbenchError
from fsbench.exchange.detect import read_file
from fsbench.features.store import FeatureFile
from fsbench.plain_pickle import read_plain_pickle
from fsbench.train.checkpoint import CheckpointFile
from tests.images import write_images

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable
    from pathlib import Path


class Reduce:
    """A call, as soon as it is unpickled in earnest."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.canary),)


class Chained(Reduce):
    """A call hidden in the arguments of a harmless one."""

    def __reduce__(self) -> tuple[Any, ...]:
        return list, ((Reduce(self.canary),),)


class State(Reduce):
    """A call hidden in the state that is given to an object."""

    def __reduce__(self) -> tuple[Any, ...]:
        return np.dtype, ("f4",), (3, "<", Reduce(self.canary), None, None, -1, -1, 0)


class Setter(Reduce):
    """A call as the function that sets the state."""

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (), str(self.canary), None, None, _set_state


def _set_state(item: object, state: str) -> None:
    os.mkdir(state)  # noqa: PTH102


class Items(Reduce):
    """A call among the items of a list and the pairs of a dict."""

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (), None, None, iter([("a", Reduce(self.canary))])


def persistent(canary: Path) -> bytes:
    class Pickler(pickle.Pickler):
        def persistent_id(self, item: object) -> object:
            return ("storage", Reduce(canary), "0", "cpu", 1) if item == "here" else None

    stream = io.BytesIO()
    Pickler(stream, 2).dump({"features": "here"})
    return stream.getvalue()


def by_hand(template: str) -> Callable[[Path], bytes]:
    return lambda canary: template.format(canary=canary).encode("latin1")


PICKLES: dict[str, Callable[[Path], bytes]] = {
    **{
        f"{kind.__name__} {protocol}": lambda canary, kind=kind, protocol=protocol: pickle.dumps(  # type: ignore[misc]
            {"features": [kind(canary)]}, protocol
        )
        for kind in (Reduce, Chained, State, Setter, Items)
        for protocol in (2, 5)
    },
    "persistent id": persistent,
    "inst": by_hand("\x80\x02(V{canary}\nios\nmkdir\n."),
    "obj": by_hand("\x80\x02(cos\nmkdir\nV{canary}\no."),
    "newobj": by_hand("\x80\x02cos\nmkdir\n(V{canary}\nt\x81."),
    "newobj_ex": by_hand("\x80\x04cos\nmkdir\n(V{canary}\nt}}\x92."),
    "build": by_hand("\x80\x02cargparse\nNamespace\n)\x81}}(V__class__\ncos\nmkdir\nub."),
    "stack global": by_hand("\x80\x04\x8c\x02os\x8c\x05mkdir\x93(V{canary}\ntR."),
    "dotted": by_hand("\x80\x04\x8c\x05torch\x8c\x14_C.os.mkdir.__call__\x93(V{canary}\ntR."),
    "extension": by_hand("\x80\x02\x82\x01(V{canary}\ntR."),
    "getattr": by_hand("\x80\x02cbuiltins\ngetattr\n(cos\npath\nVexists\ntR(V{canary}\ntR."),
    "eval": by_hand("\x80\x02cbuiltins\neval\n(V__import__('os').mkdir('{canary}')\ntR."),
    "numpy": by_hand("\x80\x02cnumpy.testing._private.utils\nrunstring\n(V__import__('os').mkdir('{canary}')\n}}tR."),
    "torch": by_hand("\x80\x02ctorch.utils.collect_env\nrun\n(Vmkdir {canary}\ntR."),
    "load": by_hand("\x80\x02ctorch.serialization\nload\n(V{canary}\ntR."),
}


def test_the_payloads_work(tmp_path: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    works = [name for name in PICKLES if name not in {"persistent id", "extension", "getattr", "load", "build"}]
    for number, name in enumerate(works):
        canary = tmp_path / str(number)
        try:
            pickle.loads(PICKLES[name](canary))
        except Exception:  # what comes after the deed
            continue
    done = {name for number, name in enumerate(works) if (tmp_path / str(number)).exists()}
    assert {"Reduce 2", "Chained 5", "Setter 5", "Items 2", "inst", "obj", "stack global", "eval"} <= done


def in_zip(content: bytes) -> bytes:
    """A torch file of the newer kind around a pickle."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", b"3\n")
        archive.writestr("archive/data/0", bytes(64))
    return stream.getvalue()


def in_legacy(content: bytes) -> bytes:
    """A torch file of the older kind, with the pickle in the place of its content."""
    head = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}})
    return b"".join(pickle.dumps(part, 2) for part in head) + content + pickle.dumps([], 2)


def in_npz(content: bytes) -> bytes:
    """An npz archive whose array of objects is the pickle."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in ("features.npy", "labels.npy"):
            archive.writestr(name, header.getvalue() + content)
    return stream.getvalue()


def in_tensor(content: bytes) -> bytes:
    """A pickled tensor of the oldest kind, whose data are the pickle."""

    class Tensor:
        def __reduce__(self) -> tuple[Any, ...]:
            storage = type("S", (), {"__reduce__": lambda self: (torch.storage._load_from_bytes, (content,))})()
            return torch._utils._rebuild_tensor_v2, (storage, 0, (1,), (1,), False, {})

    return pickle.dumps({"concat_features": Tensor(), "concat_labels": Tensor()})


CONTAINERS: dict[str, Callable[[bytes], bytes]] = {
    "raw": bytes, "zip": in_zip, "legacy": in_legacy, "npz": in_npz, "tensor": in_tensor,
}  # fmt: skip


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
