from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from safetensors import safe_open
from typer.testing import CliRunner, Result

from fsbench.cli.app import app
from fsbench.data.scan import load_own
from fsbench.errors import FsbenchError, UsageError
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


def facts(path: str) -> dict[str, Any]:
    with safe_open(path, "pt") as file:
        header: dict[str, Any] = json.loads(file.metadata()["fsbench"])
        return header


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
        "--lr", "0.03", "--seed", "5", "--rotation", "--mixup", "--no-flip", "--out", "mine.safetensors",
        "--eval-every", "1", "--workers", "0", "--device", "cpu", "--quiet", "--image-size", "24",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    expected = {"backbone": "wrn", "width": 0.125, "epochs": 1, "batch": 12, "lr": 0.03, "seed": 5, "image_size": 24}
    expected |= {"rotation": True, "mixup": True, "flip": False}
    assert expected.items() <= facts("mine.safetensors").items()


def test_characters_are_not_mirrored(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless that is asked for; other images are."""
    monkeypatch.setattr("fsbench.cli.train.choose_datasets", lambda *given: [replace(load_own(folder), name="glyphs")])
    for out, option in (("a.safetensors", ()), ("b.safetensors", ("--flip",))):
        assert fsbench("train", "--dataset", "glyphs", *QUICK, *option, "--out", out).exit_code == 0
    assert [facts(name)["flip"] for name in ("a.safetensors", "b.safetensors")] == [False, True]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--backbone", "rn21"), "Unknown backbone 'rn21'"),
        (("--width", "1.5"), "width of rn12 must be a positive whole number"),
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


@pytest.mark.parametrize("option", ["--epochs=0", "--lr=-1", "--lr=nan", "--batch=0", "--seed=-1", "--head=none"])
def test_wrong_usage_is_refused(option: str) -> None:
    assert isinstance(fsbench("train", option).exception, UsageError)


@pytest.fixture
def tasks_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Images that tasks can be drawn from, where methods on images look for them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fsbench.train.episodes.UPDATES", 2)
    monkeypatch.setattr("fsbench.train.run.METHOD_TASKS", 4)
    counts = {"base": (6, 25), "val": (5, 20), "novel": (5, 25)}
    return write_stripes(tmp_path / "data" / "stripes", 16, counts)


def test_methods_on_images_use_what_train_made_for_them(tasks_folder: Path) -> None:
    given = ("--data", "data/stripes", "--width", "4", "--epochs", "1", "--device", "cpu", "--quiet")
    for recipe, made in (("maml", "conv4-maml"), ("versa", "conv4-versa"), ("protonet", "conv4")):
        done = fsbench("train", "--recipe", recipe, *given)
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[0] == f"weights/stripes/{made}.safetensors"
        assert facts(f"weights/stripes/{made}.safetensors")["recipe"] == recipe
    extracted = fsbench("extract", "--data", "data/stripes", "--backbone", "conv4", "--device", "cpu", "--workers", "0")
    assert extracted.exit_code == 0, extracted.output
    few = ("--tasks", "3", "--queries", "20", "--shots", "1", "--settings", "unbalanced", "--no-published", "--json")
    methods = "ncm,maml,versa,entropy-min"
    done = fsbench("compare", "--methods", methods, "--baseline", "ncm", *few)
    assert done.exit_code == 0, done.output
    cells = {cell["method"]: cell for cell in json.loads(done.stdout)}
    assert set(cells) == set(methods.split(","))
    assert {cell["tasks"] for cell in cells.values()} == {3}
    missing = fsbench("compare", "--methods", "ncm,maml:transductive", *few)
    assert isinstance(missing.exception, FsbenchError)
    assert "conv4-maml-transductive" in missing.exception.message
    shutil.rmtree(tasks_folder / "novel")
    left_out = fsbench("compare", "--methods", "maml", *few, "--results-dir", "others")
    assert isinstance(left_out.exception, FsbenchError)
    assert "are not in data/stripes" in left_out.exception.message


def test_options_that_belong_to_another_recipe_are_refused(folder: Path) -> None:
    done = fsbench("train", "--recipe", "maml", "--mixup", "--data", str(folder))
    assert isinstance(done.exception, FsbenchError)
    assert "belong to a training on classes" in done.exception.message
    unknown = fsbench("train", "--recipe", "mamml", "--data", str(folder))
    assert isinstance(unknown.exception, FsbenchError)
    assert "Did you mean 'maml'" in str(unknown.exception)
