from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fsbench.backbones.load import load_backbone, save_backbone
from fsbench.cli.app import app
from fsbench.features.store import FeatureFile
from tests.cli import Done, run
from tests.images import SPLITS, write_images


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "photos", SPLITS)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_own_images_in_two_commands() -> None:
    result = CliRunner().invoke(
        app, ["extract", "--data", "photos", "--backbone", "rn18", "--random-weights", "3", "--workers", "0", "--quiet"]
    )
    assert result.exit_code == 0, result.output
    file = FeatureFile.open("features/photos-rn18.h5")
    assert file.provenance.weights == "none, seed 3"
    assert "novel: 12 images of 3 classes" in result.stdout
    result = CliRunner().invoke(
        app, ["solve", "--ways", "2", "--queries", "4", "--shots", "1", "--tasks", "20", "--quiet"]
    )
    assert result.exit_code == 0, result.output


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dataset", "mini"), "mini-ImageNet is not under data/"),
        (("--dataset", "mni"), "Did you mean 'mini'"),
        (("--data", "photos", "--backbone", "resnet"), "Unknown backbone"),
        (("--data", "photos"), "No weights for rn12 on photos"),
        (("--data", "nothing", "--random-weights", "0"), "nothing"),
        (("--data", "photos", "--weights", "none.pth"), "none.pth"),
        (("--data", "photos", "--random-weights", "0", "--split-fractions", "a,b"), "three shares"),
        (("--data", "photos", "--random-weights", "0", "--split-fractions", "60,20,20"), "add up to 1"),
        (("--split-file", "split.json"), "no folder of images is given"),
        (("--dataset", "mini", "--split-fractions", "0.6,0.2,0.2"), "Only classes of your own images can be divided"),
        (("--data", "photos", "--random-weights", "0", "--crops", "1001"), "from 1 to 1,000"),
        (("--data", "photos", "--random-weights", "0", "--transform", "ptmp"), "Did you mean 'ptmap'"),
    ],
)
def test_errors_are_sentences(arguments: tuple[str, ...], words: str) -> None:
    done = run("extract", *arguments)
    assert done.returncode == 1
    assert words in done.stderr


def test_small_classes_are_left_out_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "photos", {"novel": ["a", "b", "c"]}, images=4)
    next((tmp_path / "photos" / "novel" / "b").iterdir()).unlink()
    done = run("extract", "--data", "photos", "--min-images", "4", "--random-weights", "0", "--out", "f.h5")
    assert done.returncode == 0, done.stderr
    assert FeatureFile.open("f.h5").splits["novel"].class_names == ("a", "c")
    assert "b" in done.stderr
    assert "--data" in run("extract", "--dataset", "glyphs", "--min-images", "4").stderr


FRACTIONS = ("--split-fractions", "0.5,0.25,0.25")


def own(*arguments: str, backbone: str = "rn18") -> Done:
    return run("extract", "--data", "photos", "--backbone", backbone, "--workers", "0", *arguments)


def test_what_is_there_and_differs_is_refused_with_the_difference_and_both_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "photos", {"": [f"c{number}" for number in range(8)]})
    random = ("--random-weights", "0")
    assert own(*FRACTIONS, *random).returncode == 0
    place = Path("features/photos-rn18.h5")
    content = place.read_bytes()
    assert "exists already" in own(*FRACTIONS, *random).stderr
    save_backbone(load_backbone("rn18", random_seed=1, width=4), Path("my.safetensors"), {})
    for arguments, words in (
        ((*FRACTIONS, *random, "--split-seed", "1"), "4 classes move: c4 (base → val), "),
        (("--split-fractions", "0.25,0.25,0.5", *random), "classes move: "),
        ((*FRACTIONS, "--random-weights", "1"), "weights: random seed 0 there, random seed 1 asked for"),
        ((*FRACTIONS, "--weights", "my.safetensors"), "weights: random seed 0 there, my.safetensors@"),
        ((*FRACTIONS, *random, "--transform", "torchvision"), "transform crop: 32 there, 224 asked for"),
        ((*FRACTIONS, *random, "--crops", "2"), "crops: 1 there, 2 asked for"),
        ((*FRACTIONS, *random, "--min-images", "9"), "no"),
    ):
        done = own(*arguments)
        assert done.returncode == 1, arguments
        assert words in done.stderr, done.stderr
        assert place.read_bytes() == content
    assert "--force" in own(*FRACTIONS, "--random-weights", "1").stderr
    done = own(*FRACTIONS, *random, "--split-seed", "1", "--tag", "seed1")
    assert done.returncode == 0, done.stderr
    assert "Reusing the features of 32 of 32 images" in done.stderr
    done = own(*FRACTIONS, *random, "--split-seed", "1", "--out", "elsewhere.h5")
    assert "Reusing the features of 32 of 32 images" in done.stderr
    assert own(*FRACTIONS, "--random-weights", "1", "--force").returncode == 0
    assert FeatureFile.open(place).provenance.weights == "none, seed 1"


@pytest.mark.usefixtures("folder")
def test_two_networks_of_one_backbone_live_side_by_side() -> None:
    assert own("--random-weights").returncode == 0  # of seed 0
    assert own("--random-weights", "1", "--tag", "other").returncode == 0
    assert {path.name for path in Path("features").glob("*.h5")} == {"photos-rn18.h5", "photos-rn18-other.h5"}
    done = run("compare", "--methods", "simpleshot", "--ways", "2", "--queries", "4", "--shots", "1", "--tasks", "5")
    assert done.returncode == 0, done.stderr
    for seed in (0, 1):
        assert f"photos rn18 (rn18-simpleshot, random seed {seed})" in done.stdout
    signature = done.stdout.replace("\n", "")
    assert all(f"photos/rn18(rn18-simpleshot@seed{seed})" in signature for seed in (0, 1))
    settings = ("--shots", "1", "--ways", "2", "--queries", "4", "--tasks", "5")
    done = run("solve", "--method", "simpleshot", *settings, "features/photos-rn18.h5")
    assert "(random" in done.stdout.partition("fsbench:")[0]
    table = run("compare", "--methods", "simpleshot", *settings, "--format", "csv").stdout
    assert "random seed 1" in table
    for wrong in ("a/b", "..", "-", "x" * 99):
        assert "--tag" in own("--random-weights", "0", f"--tag={wrong}").stderr
    assert "--tag" in own("--random-weights", "0", "--tag", "a", "--out", "f.h5").stderr


@pytest.mark.usefixtures("folder")
def test_the_preflight_says_which_tasks_are_feasible() -> None:
    done = own("--random-weights")
    start = "photos: 3-way tasks of its novel classes: balanced 1-shot with --queries 9 or fewer; "
    assert f"{start}unbalanced 1-shot with --queries 6 or fewer; " in done.stderr
    assert "unbalanced 5-shot, balanced 5-shot not at all (smallest class: 4 images)" in done.stderr
