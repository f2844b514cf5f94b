"""`fsbench train`, and who uses its weights."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fsbench.data.scan import OwnData
from fsbench.features.store import FeatureFile
from tests.cli import run, succeed
from tests.unit.train.tints import facts, write_tints

QUICK = ("--width", "1", "--epochs", "1", "--batch", "24", "--device", "cpu")


@pytest.fixture
def images(here: Path) -> Path:
    return write_tints(here / "tints", 16, {"base": (3, 8), "val": (5, 20)})


@pytest.mark.usefixtures("images")
def test_extract_finds_what_train_wrote_without_further_words() -> None:
    done = succeed("train", "--data", "tints", *QUICK)
    assert done.stdout.splitlines()[0] == "weights/tints/rn12.safetensors"
    assert "epoch 1 of 1: loss" in done.stderr
    done = succeed("extract", "--data", "tints", "--workers", "0", "--device", "cpu")
    features = FeatureFile.open("features/tints-rn12.h5")
    assert (features.provenance.weights, features.dimension) == ("rn12.safetensors", 10)
    again = run("train", "--data", "tints", *QUICK)
    assert "exists already, trained in the same way" in again.stderr
    assert again.stdout == "weights/tints/rn12.safetensors\n"


@pytest.mark.usefixtures("images")
def test_every_option_reaches_the_training() -> None:
    done = run(
        "train", "--backbone", "wrn", "--data", "tints", "--width", "0.125", "--epochs", "1", "--batch", "12",
        "--lr", "0.03", "--seed", "5", "--rotation", "--mixup", "--no-flip", "--out", "mine.safetensors",
        "--eval-every", "1", "--device", "cpu", "--quiet", "--image-size", "24",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    expected = {"backbone": "wrn", "width": 0.125, "epochs": 1, "batch": 12, "lr": 0.03, "seed": 5, "image_size": 24}
    expected |= {"rotation": True, "mixup": True, "flip": False}
    assert expected.items() <= facts("mine.safetensors").items()


def test_characters_are_mirrored_only_if_that_is_asked_for(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    glyphs = replace(OwnData(images).load(), name="glyphs")
    monkeypatch.setattr("fsbench.cli.train.choose_datasets", lambda *given: [glyphs])
    for out, option in (("a.safetensors", ()), ("b.safetensors", ("--flip",))):
        succeed("train", "--dataset", "glyphs", *QUICK, *option, "--out", out)
    assert [facts(name)["flip"] for name in ("a.safetensors", "b.safetensors")] == [False, True]
    refused = run("train", "--dataset", "glyphs", "--recipe", "maml", "--precision", "bf16")
    assert "belong to a training on classes" in refused.stderr


def test_methods_on_images_use_what_train_made_for_them(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbench.train.episodes.UPDATES", 2)
    monkeypatch.setattr("fsbench.train.run.METHOD_TASKS", 4)
    write_tints(here / "data" / "tints", 16, {"base": (6, 25), "val": (5, 20), "novel": (5, 25)})
    given = ("--data", "data/tints", "--width", "4", "--epochs", "1", "--device", "cpu", "--quiet")
    for recipe, made in (("maml", "conv4-maml"), ("versa", "conv4-versa")):
        done = succeed("train", "--recipe", recipe, *given)
        assert done.stdout.splitlines()[0] == f"weights/tints/{made}.safetensors"
        assert facts(f"weights/tints/{made}.safetensors")["recipe"] == recipe
    succeed(
        "extract",
        "--data",
        "data/tints",
        "--backbone",
        "conv4",
        "--random-weights",
        "0",
        "--device",
        "cpu",
        "--workers",
        "0",
    )
    few = ("--tasks", "3", "--queries", "20", "--shots", "1", "--settings", "unbalanced", "--no-published", "--json")
    methods = "ncm,maml,versa,entropy-min"
    done = succeed("compare", "--methods", methods, "--baseline", "ncm", *few)
    tasks = {cell["method"]: cell["tasks"] for cell in json.loads(done.stdout)}
    assert tasks == dict.fromkeys(methods.split(","), 3)
