from pathlib import Path

import pytest

from fsbench.cli.doctor import DoctorReport, Environment, diagnose
from fsbench.data.catalog import dataset_info
from tests.unit.data.trees import put


@pytest.fixture(autouse=True)
def _no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbench.cli.doctor.probe_environment", lambda: Environment({}))


def look(root: Path) -> DoctorReport:
    return diagnose(root / "data", root / "weights", root / "features")


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
