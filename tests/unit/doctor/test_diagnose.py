from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fsbench.data.catalog import SPLITS, dataset_info
from fsbench.doctor import diagnose
from fsbench.machine import Environment
from fsbench.reporter import Reporter
from tests.unit.data.trees import put

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.doctor import DoctorReport

NAMES = {"base": "train", "val": "val", "novel": "test"}


@pytest.fixture(autouse=True)
def _no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbench.doctor.probe_environment", lambda: Environment({}, "", "", ()))


def look(root: Path, deep: Reporter | None = None) -> DoctorReport:
    return diagnose(root / "data", root / "weights", root / "features", deep)


def test_no_data_folder(tmp_path: Path) -> None:
    (sentence,) = look(tmp_path).data_sentences
    assert "There is no folder" in sentence
    assert "FSBENCH_DATA" in sentence


def test_empty_data_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (sentence,) = look(tmp_path).data_sentences
    assert "is empty" in sentence
    assert "data/mini" in sentence


def test_only_unknown_folders(tmp_path: Path) -> None:
    (tmp_path / "data/holiday").mkdir(parents=True)
    sentences = look(tmp_path).data_sentences
    assert "No folder" in sentences[0]
    assert "cifarfs" in sentences[0]
    assert "holiday" in sentences[1]


def test_decoded_images_are_counted_and_are_no_data_set(tmp_path: Path) -> None:
    (tmp_path / "data/.pixels").mkdir(parents=True)
    (tmp_path / "data/holiday").mkdir()
    (tmp_path / "data/.pixels/mini-novel-84px-0.npy").write_bytes(bytes(2_000_000))
    report = look(tmp_path)
    assert report.datasets == ()
    assert report.data_sentences[1:] == (
        "Other folders: holiday. Check your own images with --data FOLDER.",
        f"Decoded images in {tmp_path}/data/.pixels: 2 MB, which may be deleted at any time.",
    )


def test_empty_data_set_folder(tmp_path: Path) -> None:
    (tmp_path / "data/mini").mkdir(parents=True)
    (dataset,) = look(tmp_path).datasets
    assert dataset.state == "unreadable"
    assert "found an empty folder" in dataset.sentences[0]
    assert "Copy the data set into it" in dataset.sentences[1]


def test_half_copied_data_set(tmp_path: Path) -> None:
    info = dataset_info("mini")
    put(tmp_path / "data/mini", (f"train/{name}/1.jpg" for name in info.classes("base")[:30]))
    (dataset,) = look(tmp_path).datasets
    assert dataset.state == "incomplete"
    base, val, _ = dataset.splits
    assert (base.expected_classes, base.found_classes, base.expected_images, base.found_images) == (
        64,
        30,
        38400,
        30,
    )
    assert val.found_classes == 0
    assert "30 of 60,000 images are here" in dataset.sentences[0]
    text = " ".join(dataset.sentences)
    assert f"base: 34 classes are missing: {info.classes('base')[30]}" in text
    assert "The split novel is missing." in text
    assert "(1 of 600)" in text


def test_complete_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = dataset_info("cub")
    for counts in info.splits.values():
        for name in counts:
            monkeypatch.setitem(counts, name, 1)
    put(tmp_path / "data/cub/images", (f"{name}/1.jpg" for name in info.split_of))
    (dataset,) = look(tmp_path).datasets
    assert (dataset.state, dataset.sentences) == ("complete", ("CUB-200-2011 is complete.",))
    assert [split.found_images for split in dataset.splits] == [100, 50, 50]


def test_split_of_feat_is_recognised(tmp_path: Path) -> None:
    feat = dataset_info("cub-feat")
    put(tmp_path / "data/cub", (f"{NAMES[s]}/{name}/1.jpg" for s in SPLITS for name in feat.classes(s)))
    (dataset,) = look(tmp_path).datasets
    assert dataset.name == "cub-feat"
    assert "this looks like FEAT's split, not CloserLook's" in dataset.sentences[1]


def test_split_of_nobody_is_called_wrong(tmp_path: Path) -> None:
    info = dataset_info("mini")
    one = info.classes("novel")[0]
    files = [f"train/{name}/1.jpg" for name in (*info.classes("base"), one)]
    put(tmp_path / "data/mini", files)
    (dataset,) = look(tmp_path).datasets
    assert dataset.state == "wrong split"
    assert any(f"{one} belongs to novel, found in base" in sentence for sentence in dataset.sentences)


def test_weights_and_features_are_listed(tmp_path: Path) -> None:
    put(
        tmp_path / "weights",
        ["mini/wrn.tar", "mini/timm/vit.pth", "cub/rn12.pt", "cub/rn12.md", "README.md", "mini/.hidden.pt"],
        b"1234",
    )
    put(tmp_path / "features", ["mini-wrn.h5", "mini-wrn.txt", "deep/x.h5"], b"12")
    report = look(tmp_path)
    assert [(file.path, file.size) for file in report.weights] == [
        ("cub/rn12.pt", 4),
        ("mini/wrn.tar", 4),
        ("mini/timm/vit.pth", 4),
    ]
    assert [(file.path, file.size) for file in report.features] == [("mini-wrn.h5", 2)]


def test_report_is_plain_data(tmp_path: Path) -> None:
    put(tmp_path / "data/mini", [f"train/{dataset_info('mini').classes('base')[0]}/1.jpg"])
    content = json.loads(json.dumps(look(tmp_path).to_dict()))
    assert content["datasets"][0]["splits"][0]["found_images"] == 1


def test_plain_doctor_says_that_no_image_was_read(tmp_path: Path) -> None:
    put(tmp_path / "data/mini", [f"train/{dataset_info('mini').classes('base')[0]}/1.jpg"], b"no image")
    plain, deep = look(tmp_path), look(tmp_path, Reporter(quiet=True))
    assert plain.deep_sentences == ()
    assert "Images were counted, not read" in " ".join(plain.data_sentences)
    assert "counted, not read" not in " ".join(deep.data_sentences)


def test_deep_doctor_lists_every_broken_image(tmp_path: Path) -> None:
    name = dataset_info("mini").classes("base")[0]
    put(tmp_path / "data/mini", [f"train/{name}/good{i}.png" for i in range(3)])
    put(tmp_path / "data/mini", [f"train/{name}/bad{i}.jpg" for i in range(7)], b"no image")
    sentences = look(tmp_path, Reporter(quiet=True)).deep_sentences
    assert any("7 of 10 images cannot be read" in sentence for sentence in sentences)
    for number in range(7):
        assert sum(f"bad{number}.jpg" in sentence and "Could not read" in sentence for sentence in sentences) == 1
    assert not any("good" in sentence and "Could not read" in sentence for sentence in sentences)


def test_folders_that_divide_images_are_reported(tmp_path: Path) -> None:
    names = sorted(dataset_info("cifarfs").split_of)
    put(tmp_path / "data/cifarfs", (f"{top}/{name}/1.png" for top in ("train", "test") for name in names))
    (dataset,) = look(tmp_path).datasets
    assert dataset.state == "incomplete"
    assert [split.found_images for split in dataset.splits] == [128, 32, 40]
    assert any("test/ and train/ hold the same 100 classes" in sentence for sentence in dataset.sentences)
