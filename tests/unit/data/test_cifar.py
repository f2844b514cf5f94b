from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fsbench.data.catalog import SPLITS, dataset_info
from fsbench.data.scan import load_dataset, scan_folder
from fsbench.errors import FsbenchError
from fsbench.io.pickles import read_plain_pickle
from tests.unit.data.trees import put, write_cifar

if TYPE_CHECKING:
    from pathlib import Path

NAMES = sorted(dataset_info("fc100").split_of)


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("name", ["fc100", "cifarfs"])
def test_both_parts_are_merged_and_split_by_class(tmp_path: Path, protocol: int, name: str) -> None:
    labels = {"train": list(range(100)) * 2, "test": list(range(100))}
    data = write_cifar(tmp_path, NAMES, labels, protocol)
    dataset = load_dataset(tmp_path, name)
    info = dataset_info(name)
    assert dataset.split_digest == info.split_digest
    for split in SPLITS:
        found = dataset.splits[split]
        assert np.bincount(found.labels).tolist() == [3] * len(info.classes(split))
        for row in range(0, len(found), 7):
            part, file = found.image_name(row).split("/")
            original = len(labels[part]) - int(file[4:10])
            assert NAMES[labels[part][original]] == found.class_names[found.labels[row]]
            planes = data[part][original].reshape(3, 32, 32)
            assert (np.asarray(found.open(row)) == planes.transpose(1, 2, 0)).all()


def test_order_within_a_class_follows_the_file_names(tmp_path: Path) -> None:
    write_cifar(tmp_path, NAMES, {"train": [0] * 5, "test": [0] * 3})
    split = next(iter(load_dataset(tmp_path, "cifarfs").splits.values()))
    files = [split.image_name(row).split("/")[1] for row in range(len(split))]
    assert files == sorted(files)


def test_same_order_as_class_folders_with_the_same_file_names(tmp_path: Path) -> None:
    write_cifar(tmp_path / "raw", NAMES, {"train": [0] * 5, "test": []})
    put(tmp_path / "folders", (f"data/{NAMES[0]}/x_s_{i:06d}.png" for i in (4, 2, 1, 5, 3)))
    raw, folders = (load_dataset(tmp_path / kind, "cifarfs").splits["base"] for kind in ("raw", "folders"))
    files = [[s.image_name(row).split("/")[-1] for row in range(len(s))] for s in (raw, folders)]
    assert files[0] == files[1]


def test_missing_part_is_an_error_but_can_be_reported(tmp_path: Path) -> None:
    write_cifar(tmp_path, NAMES, {"train": list(range(100))})
    with pytest.raises(FsbenchError, match=r"1 files .* missing: test"):
        load_dataset(tmp_path, "fc100")
    assert sum(scan_folder(tmp_path, dataset_info("fc100")).counts("base").values()) == 60


def test_archive_is_found_one_folder_down(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar-100-python", NAMES, {"train": list(range(100)), "test": []})
    put(tmp_path, ["other/readme.txt"])
    assert load_dataset(tmp_path, "fc100").root == tmp_path / "cifar-100-python"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b"data", np.zeros((2, 3071), np.uint8), "shape"),
        (b"data", np.zeros((2, 3072), np.float32), "uint8"),
        (b"data", [1, 2], "shape"),
        (b"fine_labels", [0, 100], "from 0 to 99"),
        (b"fine_labels", [0, -1], "from 0 to 99"),
        (b"fine_labels", [0, "a"], "from 0 to 99"),
        (b"fine_labels", [0], "as many labels"),
        (b"filenames", "ab", "list of names"),
        (b"filenames", [1, 2], "list of names"),
    ],
)
def test_wrong_content_is_refused(tmp_path: Path, key: bytes, value: object, message: str) -> None:
    write_cifar(tmp_path, NAMES, {"test": [0, 1]})
    content = {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, 1], b"filenames": [b"a", b"b"]}
    (tmp_path / "train").write_bytes(pickle.dumps({**content, key: value}, protocol=2))
    with pytest.raises(FsbenchError, match=message):
        load_dataset(tmp_path, "fc100")


def test_missing_key_is_refused(tmp_path: Path) -> None:
    write_cifar(tmp_path, NAMES, {"test": [0, 1]})
    (tmp_path / "meta").write_bytes(pickle.dumps({b"label_names": [b"cat"]}))
    with pytest.raises(FsbenchError, match="key 'fine_label_names'"):
        load_dataset(tmp_path, "fc100")


class Attack:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.target),)


def test_a_pickle_with_code_is_refused_and_does_not_run(tmp_path: Path) -> None:
    target = tmp_path / "pwned"
    path = tmp_path / "train"
    path.write_bytes(pickle.dumps({b"data": Attack(target)}, protocol=2))
    with pytest.raises(FsbenchError, match=r"mkdir, which is not admitted"):
        read_plain_pickle(path)
    assert not target.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cnumpyish\ndtype\n(Vu1\ntR.",
        b"cnumpy.core.multiarray\nscalar\n.",
        b"cnumpy.testing._private.utils\nrunstring\n.",
        b"c_codecs\ndecode\n.",
        b"c__builtin__\nbytes\n(I9\ntR.",
        b"c_codecs\nencode\n(Vx\nVrot13\ntR.",
        b"",
        b"garbage",
        b"\x80\x02}q\x00",
    ],
)
def test_other_names_and_damaged_pickles_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(FsbenchError, match=r"Could not read .* as a pickle of plain data"):
        read_plain_pickle(tmp_path / "p")


def test_arrays_of_objects_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(pickle.dumps(np.array([{}, []], dtype=object)))
    with pytest.raises(FsbenchError, match="not admitted"):
        read_plain_pickle(tmp_path / "p")


def test_truncated_array_is_refused(tmp_path: Path) -> None:
    content = pickle.dumps(np.arange(100, dtype=np.uint8), protocol=2)
    (tmp_path / "p").write_bytes(content[:-40] + content[-20:])
    with pytest.raises(FsbenchError, match="Could not read"):
        read_plain_pickle(tmp_path / "p")


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        np.arange(6, dtype=">i4").reshape(3, 2),
        np.linspace(0, 1, 4, dtype=np.float32),
        np.zeros((0, 3), np.uint8),
    ],
)
def test_plain_data_round_trips(tmp_path: Path, protocol: int, array: np.ndarray) -> None:
    content = {"a": array, "l": [1, "x", {"b": array}], "n": 2.5}
    (tmp_path / "p").write_bytes(pickle.dumps(content, protocol=protocol))
    found = read_plain_pickle(tmp_path / "p")
    assert isinstance(found, dict)
    for value in (found["a"], found["l"][2]["b"]):
        assert value.dtype == array.dtype
        assert value.shape == array.shape
        assert (value == array).all()
    assert found["l"][:2] == [1, "x"]
    assert found["n"] == 2.5
