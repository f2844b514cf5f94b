from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fsbench.backbones.find_weights import shipped_weights
from fsbench.data.catalog import dataset_info
from fsbench.doctor import Environment, probe_environment
from tests import cli
from tests.unit.data.trees import put

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = Environment(
    {"python": "3.11.7", "torch": "2.15.0", "torchvision": ""},
    "torch and torchvision do not work together: operator torchvision::nms does not exist. Install them together.",
    {"cpu": "2 threads"},
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fsbench.doctor.probe_environment", lambda: ENVIRONMENT)
    for root in ("DATA", "WEIGHTS", "FEATURES", "RESULTS"):
        monkeypatch.delenv(f"FSBENCH_{root}", raising=False)
    return tmp_path


def run(*arguments: str) -> str:
    done = cli.run("doctor", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tables_fit_a_hundred_columns(here: Path) -> None:
    info = dataset_info("mini")
    put(here, (f"data/mini/train/{name}/1.jpg" for name in info.classes("base")))
    put(here, ["weights/mini/wrn.tar", f"features/{'long' * 40}.h5"], b"1" * 2_000_000)
    output = run()
    assert max(map(len, output.splitlines())) <= 100
    flat = " ".join(output.split())
    assert "mini-ImageNet is incomplete: 64 of 60,000 images are here." in flat
    for words in ("wrn.tar 2.0 MB", "torchvision missing", "::nms does not exist", "cpu: 2 threads"):
        assert words in flat
    assert "Install them together." in flat


def test_nothing_here(here: Path) -> None:
    flat = " ".join(run().split())
    assert "There is no folder data." in flat
    assert "Weights in weights: none" in flat
    assert "Features in features: none" in flat
    assert "Weights that come with fsbench" in flat
    assert "glyphs/rn12.safetensors" in flat
    assert run("--weights-dir", str(shipped_weights())).count("glyphs/rn12.safetensors") == 1


def test_roots_come_from_the_environment_and_json_is_all_that_is_printed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(here, ["d/mini/train.pkl", "w/mini/rn12.pt", "f/x.h5"])
    for name in ("data", "weights", "features"):
        monkeypatch.setenv(f"FSBENCH_{name.upper()}", name[0])
    content = json.loads(run("--json"))
    assert (content["data_root"], content["datasets"][0]["state"]) == ("d", "unreadable")
    assert content["environment"]["devices"] == {"cpu": "2 threads"}
    assert [*content["weights"], *content["features"]] == ["mini/rn12.pt", "x.h5"]


def test_this_machine_is_found() -> None:
    environment = probe_environment()
    assert environment.problem == ""
    assert "thread" in environment.devices["cpu"]
    assert environment.versions["torch"]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("raise RuntimeError('operator torchvision::nms does not exist')", "operator torchvision::nms does not exist"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "exit status -4"),
    ],
)
def test_a_broken_pair_of_libraries_gets_advice(code: str, problem: str) -> None:
    environment = probe_environment(f'print(\'{{"cpu": "4 threads"}}\', flush=True)\n{code}')
    assert f"{problem}. Install torch and torchvision together" in environment.problem
    assert environment.devices == {"cpu": "4 threads"}
    assert probe_environment(code).devices == {}
