from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from safetensors import safe_open
from typer.testing import CliRunner, Result

from fsbench.cli.app import app
from fsbench.data.scan import load_own
from fsbench.errors import FsbenchError
from fsbench.features.store import FeatureFile
from tests.unit.train.stripes import write_stripes

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ("--width", "1", "--epochs", "1", "--batch", "24", "--device", "cpu")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stripes(tmp_path_factory.mktemp("images") / "stripes", 16, {"base": (3, 8), "val": (5, 20)})


@pytest.fixture
def folder(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stripes").symlink_to(images)
    return images


def fsbench(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def facts(path: str) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        found: dict[str, str] = json.loads(file.metadata()["fsbench"])
        return found


@pytest.mark.usefixtures("folder")
def test_extract_finds_what_train_wrote_without_further_words() -> None:
    done = fsbench("train", "--data", "stripes", *QUICK)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == "weights/stripes/rn12.safetensors"
    assert "1-shot" in done.stdout
    assert "5-shot" in done.stdout
    assert "epoch 1 of 1: loss" in done.stderr
    done = fsbench("extract", "--data", "stripes", "--workers", "0", "--device", "cpu")
    assert done.exit_code == 0, done.output
    features = FeatureFile.open("features/stripes-rn12.h5")
    assert features.provenance.weights == "rn12.safetensors"
    assert features.dimension == 10
    again = fsbench("train", "--data", "stripes", *QUICK)
    assert "exists already, trained in the same way" in again.stderr
    assert again.stdout == "weights/stripes/rn12.safetensors\n"


@pytest.mark.usefixtures("folder")
def test_every_option_reaches_the_training() -> None:
    done = fsbench(
        "train", "--backbone", "wrn", "--data", "stripes", "--width", "0.125", "--epochs", "1", "--batch", "12",
        "--lr", "0.03", "--seed", "5", "--no-rotation", "--no-mixup", "--no-flip", "--out", "mine.safetensors",
        "--eval-every", "1", "--save-every", "1", "--workers", "0", "--device", "cpu", "--quiet", "--image-size", "24",
        "--small-first",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    command = facts("mine.safetensors")["command"]
    for words in (
        "--backbone wrn",
        "--width 0.125",
        "--epochs 1",
        "--batch 12",
        "--lr 0.03",
        "--seed 5",
        "--image-size 24",
    ):
        assert words in command
    assert command.endswith("--no-rotation --no-mixup --no-flip --small-first")


def test_characters_are_not_mirrored(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless that is asked for; other images are."""
    monkeypatch.setattr("fsbench.cli.train.choose_datasets", lambda *given: [load_own(folder, name="glyphs")])
    for out, option in (("a.safetensors", ()), ("b.safetensors", ("--flip",))):
        assert fsbench("train", "--dataset", "glyphs", *QUICK, *option, "--out", out).exit_code == 0
    assert " --no-flip " in facts("a.safetensors")["command"]
    assert " --flip " in facts("b.safetensors")["command"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--backbone", "rn21"), "Unknown backbone 'rn21'"),
        (("--backbone", "timm/resnet18"), "Unknown backbone"),
        (("--width", "1.5"), "width of rn12 must be a positive whole number"),
        (("--lr", "-1"), "learning rate must be positive"),
        (("--lr", "1e30"), "diverged"),
        (("--out", "x.pth"), "ends in .safetensors"),
        (("--device", "cuda:7"), "cannot be used"),
    ],
)
def test_errors_are_sentences(arguments: tuple[str, ...], words: str) -> None:
    done = fsbench("train", "--data", "stripes", *QUICK, *arguments)
    assert isinstance(done.exception, FsbenchError)
    assert words in done.exception.message


def test_one_data_set_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [load_own(folder, name="one"), load_own(folder, name="other")]
    monkeypatch.setattr("fsbench.cli.train.choose_datasets", lambda *given: both)
    done = fsbench("train", *QUICK)
    assert isinstance(done.exception, FsbenchError)
    assert "found one, other" in done.exception.message


@pytest.mark.parametrize("arguments", [("--epochs", "0"), ("--batch", "0"), ("--seed", "-1"), ("--eval-every", "0")])
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    assert fsbench("train", *arguments).exit_code == 2
