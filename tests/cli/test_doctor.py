import re
from pathlib import Path

import pytest

from fsbench.cli.doctor import check_datasets, probe_environment
from fsbench.data.catalog import dataset_info
from tests.cli import run
from tests.unit.data.trees import put


def test_an_absent_a_foreign_and_an_unreadable_data_folder(here: Path) -> None:
    assert "There is no folder data. Put data sets there" in run("doctor").stdout
    put(here / "data", ["holiday/1.png"])
    assert "No folder in data is named as a known data set: mini, " in run("doctor").stdout
    (here / "data/mini").mkdir()
    (dataset,) = check_datasets(Path("data"))
    assert dataset.state == "unreadable"
    assert "found nothing" in dataset.sentences[0]


def test_a_complete_data_set(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = dataset_info("cub")
    for counts in info.splits.values():
        for name in counts:
            monkeypatch.setitem(counts, name, 1)
    put(here / "data/cub/images", (f"{name}/1.jpg" for name in info.split_of))
    (dataset,) = check_datasets(here / "data")
    assert (dataset.state, dataset.sentences) == ("complete", ("CUB-200-2011 is complete.",))
    assert dataset.splits == {"base": (100,) * 4, "val": (50,) * 4, "novel": (50,) * 4}
    put(here / "data/cub/images", ["201.Dodo/1.jpg"])
    assert check_datasets(here / "data")[0].state == "differs"


def test_all_that_is_here_fits_a_hundred_columns(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    put(here, (f"data/mini/train/{name}/1.jpg" for name in dataset_info("mini").classes("base")))
    put(here, ["weights/mini/wrn.tar", f"features/{'long' * 40}.h5"], b"1" * 2_000_000)
    output = run("doctor").stdout
    assert max(map(len, output.splitlines())) <= 100
    flat = " ".join(output.split())
    assert "mini-ImageNet is incomplete: 64 of 60,000 images are here." in flat
    for words in ("wrn.tar 2.0 MB", "glyphs/rn12.safetensors", "torchvision missing", "They do not", "cpu: 2 threads"):
        assert words in flat


def test_roots_come_from_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(here, ["d/mini/train.pkl", "w/mini/rn12.pt", "w/mini/timm/vit.pth", "w/mini/.hidden.pt", "w/README.md"])
    put(here, ["f/x.h5", "f/x.txt", "f/deep/y.h5"])
    for name in ("data", "weights", "features"):
        monkeypatch.setenv(f"FSBENCH_{name.upper()}", name[0])
    shown = run("doctor").stdout
    own = shown.partition("Weights that come")[0] + shown.partition("Features")[2]
    assert re.findall(r"unreadable|\S+(?=  \d)", own) == ["unreadable", "mini/rn12.pt", "mini/timm/vit.pth", "x.h5"]


def test_this_machine_is_described_and_a_broken_pair_of_libraries_gets_advice() -> None:
    environment = probe_environment()
    assert (environment.problem, "thread" in environment.devices["cpu"]) == ("", True)
    assert environment.versions["torch"]
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    environment = probe_environment(f'print(\'{{"cpu": "4 threads"}}\', flush=True)\n{killed}')
    assert "exit status -4. Install torch and torchvision together" in environment.problem
    assert environment.devices == {"cpu": "4 threads"}
