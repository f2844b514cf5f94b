import shutil
from pathlib import Path

import pytest

from fsbench.cli.doctor import DoctorReport, Environment, diagnose
from fsbench.data.catalog import dataset_info
from fsbench.reporter import Reporter
from tests.comparing import QUIET
from tests.images import write_images
from tests.unit.data.trees import put


@pytest.fixture(autouse=True)
def _no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbench.cli.doctor.probe_environment", lambda: Environment({}))


def look(root: Path, deep: Reporter | None = None) -> DoctorReport:
    return diagnose(root / "data", root / "weights", root / "features", deep)


def test_an_absent_a_foreign_and_an_unreadable_data_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert look(tmp_path).data_sentences[0].startswith(f"There is no folder {data}. Put data sets there")
    put(data, ["holiday/1.png"])
    assert look(tmp_path).data_sentences[0].startswith(f"No folder in {data} is named as a known data set: mini, ")
    (data / "mini").mkdir()
    (dataset,) = look(tmp_path).datasets
    assert dataset.state == "unreadable"
    assert "found nothing" in dataset.sentences[0]


def test_complete_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = dataset_info("cub")
    for counts in info.splits.values():
        for name in counts:
            monkeypatch.setitem(counts, name, 1)
    put(tmp_path / "data/cub/images", (f"{name}/1.jpg" for name in info.split_of))
    (dataset,) = look(tmp_path).datasets
    assert (dataset.state, dataset.sentences) == ("complete", ("CUB-200-2011 is complete.",))
    assert [split.found_images for split in dataset.splits] == [100, 50, 50]
    put(tmp_path / "data/cub/images", ["201.Dodo/1.jpg"])
    assert look(tmp_path).datasets[0].state == "differs"


def test_weights_and_features_are_listed(tmp_path: Path) -> None:
    weights = ["mini/wrn.tar", "mini/timm/vit.pth", "cub/rn12.pt", "cub/rn12.md", "README.md", "mini/.hidden.pt"]
    put(tmp_path / "weights", weights, b"1234")
    put(tmp_path / "features", ["mini-wrn.h5", "mini-wrn.txt", "deep/x.h5"], b"12")
    report = look(tmp_path)
    assert report.weights == {"cub/rn12.pt": 4, "mini/wrn.tar": 4, "mini/timm/vit.pth": 4}
    assert report.features == {"mini-wrn.h5": 2}


def test_deep_doctor_lists_every_broken_image(tmp_path: Path) -> None:
    name = dataset_info("mini").classes("base")[0]
    put(tmp_path / "data/mini", [f"train/{name}/good.png"])
    put(tmp_path / "data/mini", [f"train/{name}/bad{i}.jpg" for i in range(7)], b"no image")
    plain, deep = look(tmp_path), look(tmp_path, QUIET)
    assert plain.deep_sentences == ()
    assert "Images were counted, not read" in " ".join(plain.data_sentences)
    assert "counted, not read" not in " ".join(deep.data_sentences)
    text = " ".join(deep.deep_sentences)
    assert "7 of 8 images cannot be read" in text
    assert all(text.count(f"/bad{number}.jpg: it is not an image") == 1 for number in range(7))


def test_equal_images_are_told_those_across_splits_first(tmp_path: Path) -> None:
    root = write_images(tmp_path / "own", {"base": ["b0", "b1"], "novel": ["n0", "n1"]})
    shutil.copy(root / "base/b1/000.png", root / "base/b1/001.png")
    shutil.copy(root / "base/b1/002.png", root / "novel/n0/001.png")
    *_, doubles = diagnose(tmp_path, tmp_path, tmp_path, QUIET, own=root).deep_sentences
    across, within = "base base/b1/002.png = novel novel/n0/001.png", "base base/b1/000.png = base base/b1/001.png"
    assert doubles.endswith(f"2 images occur more than once, across splits first: {across}, {within}.")
