import json
from pathlib import Path

import pytest

from fsbench.cli.doctor import probe_environment
from fsbench.data.catalog import dataset_info
from tests.cli import run
from tests.unit.data.trees import put


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


def test_roots_come_from_the_environment_and_json_is_printed_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(here, ["d/mini/train.pkl", "w/mini/rn12.pt", "f/x.h5"])
    for name in ("data", "weights", "features"):
        monkeypatch.setenv(f"FSBENCH_{name.upper()}", name[0])
    content = json.loads(run("doctor", "--json").stdout)
    assert (content["data_root"], content["datasets"][0]["state"]) == ("d", "unreadable")
    assert content["environment"]["devices"] == {"cpu": "2 threads"}
    assert [*content["weights"], *content["features"]] == ["mini/rn12.pt", "x.h5"]


def test_this_machine_is_described_and_a_broken_pair_of_libraries_gets_advice() -> None:
    environment = probe_environment()
    assert environment.problem == ""
    assert "thread" in environment.devices["cpu"]
    assert environment.versions["torch"]
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    environment = probe_environment(f'print(\'{{"cpu": "4 threads"}}\', flush=True)\n{killed}')
    assert "exit status -4. Install torch and torchvision together" in environment.problem
    assert environment.devices == {"cpu": "4 threads"}
