from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from fsbench.cli.doctor import doctor
from fsbench.data.catalog import dataset_info
from fsbench.machine import Device, Environment
from tests.unit.data.trees import put

if TYPE_CHECKING:
    from pathlib import Path

app = typer.Typer()
app.command()(doctor)

ENVIRONMENT = Environment(
    {"python": "3.11.7", "torch": "2.15.0", "torchvision": ""},
    "RuntimeError: operator torchvision::nms does not exist",
    "Install torch and torchvision together.",
    (Device("cpu", "2 threads", {"bfloat16": "the process died with SIGILL", "float16": ""}),),
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fsbench.doctor.diagnose.probe_environment", lambda: ENVIRONMENT)
    for root in ("DATA", "WEIGHTS", "FEATURES", "RESULTS"):
        monkeypatch.delenv(f"FSBENCH_{root}", raising=False)
    return tmp_path


def run(*arguments: str, **environment: str) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "140", "NO_COLOR": "1", **environment})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_tables_fit_a_hundred_columns(here: Path) -> None:
    info = dataset_info("mini")
    put(here, (f"data/mini/train/{name}/1.jpg" for name in info.classes("base")))
    put(
        here,
        ["weights/mini/wrn.tar", "features/" + "long" * 40 + ".h5", "data/[red]odd/x.txt"],
        b"1" * 2_000_000,
    )
    output = run()
    assert max(map(len, output.splitlines())) <= 100
    flat = " ".join(output.split())
    assert "mini-ImageNet is incomplete: 64 of 60,000 images are here." in flat
    assert "wrn.tar" in flat
    assert "2.0" in flat
    assert "[red]odd" in flat
    assert "torchvision missing" in flat
    assert "torchvision::nms does not exist" in flat
    assert "Install torch and torchvision together." in flat
    assert "the process died with SIGILL" in flat
    assert "works" in flat


def test_nothing_here(here: Path) -> None:
    flat = " ".join(run().split())
    assert "There is no folder data." in flat
    assert "Weights in weights: none" in flat
    assert "Features in features: none" in flat
    assert "Weights that come with fsbench" in flat
    assert "glyphs/rn12.safetensors" in flat


def test_weights_that_ship_are_told_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(here, ["weights/glyphs/rn12.safetensors"])
    monkeypatch.setattr("fsbench.doctor.diagnose.shipped_weights", lambda: here / "weights")
    assert run().count("glyphs/rn12.safetensors") == 1


def test_json_is_all_that_is_printed(here: Path) -> None:
    put(here, ["elsewhere/mini/train.pkl"])
    content = json.loads(run("--json", "--data-dir", "elsewhere"))
    assert content["data_root"] == "elsewhere"
    assert content["datasets"][0]["state"] == "unreadable"
    assert content["environment"]["devices"][0]["name"] == "cpu"


def test_roots_come_from_the_environment(here: Path) -> None:
    put(here, ["w/mini/rn12.pt", "f/x.h5"])
    output = run("--json", FSBENCH_DATA="d", FSBENCH_WEIGHTS="w", FSBENCH_FEATURES="f")
    content = json.loads(output)
    assert content["data_root"] == "d"
    assert content["weights"][0]["path"] == "mini/rn12.pt"
    assert content["features"][0]["path"] == "x.h5"


def test_importing_the_command_does_not_import_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys, fsbench.cli.doctor, fsbench.doctor.diagnose; "
        "assert not {'torch', 'torchvision', 'timm'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_the_real_probes_find_this_machine() -> None:
    from fsbench.machine import probe_environment

    environment = probe_environment()
    assert environment.devices[0].name == "cpu"
    assert set(environment.devices[0].precisions) == {"bfloat16", "float16"}
    assert environment.versions["torch"]
