from __future__ import annotations

import shutil
from dataclasses import astuple
from typing import TYPE_CHECKING

import pytest

from fsbench.data.catalog import SPLITS, dataset_info
from fsbench.doctor import diagnose
from fsbench.machine import Environment
from fsbench.reporter import Reporter
from tests.images import write_images
from tests.unit.data.trees import put

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.doctor import DoctorReport

QUIET = Reporter(quiet=True)
NAMES = {"base": "train", "val": "val", "novel": "test"}


@pytest.fixture(autouse=True)
def _no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbench.doctor.probe_environment", lambda: Environment({}))


def look(root: Path, deep: Reporter | None = None) -> DoctorReport:
    return diagnose(root / "data", root / "weights", root / "features", deep)


def test_an_absent_an_empty_and_a_foreign_data_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert look(tmp_path).data_sentences[0].startswith(f"There is no folder {data}. Put data sets there")
    data.mkdir()
    assert look(tmp_path).data_sentences == (
        f"The folder {data} is empty. Copy a data set into it, for example as {data / 'mini'}.",
    )
    put(data, [".pixels/mini-novel-84px-0.npy", "holiday/1.png"], bytes(2_000_000))
    report = look(tmp_path)
    assert report.datasets == ()
    assert "No folder" in report.data_sentences[0]
    assert report.data_sentences[1:] == (
        "Other folders: holiday. Check your own images with --data FOLDER.",
        f"Decoded images in {data}/.pixels: 2 MB, which may be deleted at any time.",
    )


def test_empty_data_set_folder(tmp_path: Path) -> None:
    (tmp_path / "data/mini").mkdir(parents=True)
    (dataset,) = look(tmp_path).datasets
    assert dataset.state == "unreadable"
    assert "found nothing" in dataset.sentences[0]


def test_half_copied_data_set(tmp_path: Path) -> None:
    info = dataset_info("mini")
    put(tmp_path / "data/mini", (f"train/{name}/1.jpg" for name in info.classes("base")[:30]))
    (dataset,) = look(tmp_path).datasets
    assert dataset.state == "incomplete"
    base, val, _ = dataset.splits
    assert astuple(base) == ("base", 64, 30, 38400, 30)
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


def test_weights_and_features_are_listed(tmp_path: Path) -> None:
    weights = ["mini/wrn.tar", "mini/timm/vit.pth", "cub/rn12.pt", "cub/rn12.md", "README.md", "mini/.hidden.pt"]
    put(tmp_path / "weights", weights, b"1234")
    put(tmp_path / "features", ["mini-wrn.h5", "mini-wrn.txt", "deep/x.h5"], b"12")
    report = look(tmp_path)
    assert report.weights == {"cub/rn12.pt": 4, "mini/wrn.tar": 4, "mini/timm/vit.pth": 4}
    assert report.features == {"mini-wrn.h5": 2}


def test_deep_doctor_lists_every_broken_image(tmp_path: Path) -> None:
    name = dataset_info("mini").classes("base")[0]
    put(tmp_path / "data/mini", [f"train/{name}/good{i}.png" for i in range(3)])
    put(tmp_path / "data/mini", [f"train/{name}/bad{i}.jpg" for i in range(7)], b"no image")
    plain, deep = look(tmp_path), look(tmp_path, QUIET)
    assert plain.deep_sentences == ()
    assert "Images were counted, not read" in " ".join(plain.data_sentences)
    assert "counted, not read" not in " ".join(deep.data_sentences)
    sentences = deep.deep_sentences
    assert any("7 of 10 images cannot be read" in sentence for sentence in sentences)
    for number in range(7):
        assert sum(f"bad{number}.jpg" in sentence and "Could not read" in sentence for sentence in sentences) == 1
    assert not any("good" in sentence and "Could not read" in sentence for sentence in sentences)


def test_equal_images_are_told_by_the_harm_they_do(tmp_path: Path) -> None:
    root = write_images(tmp_path / "own", {"base": ["b0", "b1", "b2"], "novel": ["n0", "n1"]})
    for here, there in (("base/b0/0", "novel/n0/1"), ("base/b1/0", "base/b2/0"), ("novel/n1/2", "novel/n1/3")):
        shutil.copy(root / f"{here[:-1]}00{here[-1]}.png", root / f"{there[:-1]}00{there[-1]}.png")
    *_, splits, classes, within = diagnose(tmp_path, tmp_path, tmp_path, QUIET, own=root).deep_sentences
    assert "1 images occur in more than one split" in splits
    assert splits.endswith(": base base/b0/000.png = novel novel/n0/001.png.")
    assert classes.endswith(": base base/b1/000.png = base base/b2/000.png.")
    assert within.endswith(": novel novel/n1/002.png = novel novel/n1/003.png.")
