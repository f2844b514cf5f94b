from pathlib import Path

import pytest

from fsbench.features.store import FeatureFile
from tests.cli import Done, run, succeed
from tests.images import SPLITS, write_images
from tests.workspace import write_pickles

RANDOM = ("--random-weights", "0")


@pytest.fixture(autouse=True)
def _photos(here: Path) -> None:
    write_images(here / "photos", SPLITS)


def extract(*arguments: str) -> Done:
    return run("extract", "--data", "photos", "--backbone", "rn18", "--workers", "0", *arguments)


def test_what_is_there_and_differs_is_refused_with_the_difference() -> None:
    assert extract(*RANDOM).returncode == 0
    place = Path("features/photos-rn18.h5")
    content = place.read_bytes()
    assert "exists already" in extract(*RANDOM).stderr
    for arguments, words in (
        (("--random-weights", "1"), "weights: random seed 0 there, random seed 1 asked for"),
        ((*RANDOM, "--transform", "torchvision"), "transform crop: 32 there, 224 asked for"),
        ((*RANDOM, "--crops", "2"), "crops: 1 there, 2 asked for"),
    ):
        done = extract(*arguments)
        assert done.returncode == 1, arguments
        assert words in done.stderr, done.stderr
        assert "--force, or keep both with --out FILE" in done.stderr
        assert place.read_bytes() == content
    assert extract("--random-weights", "1", "--force").returncode == 0
    assert FeatureFile.open(place).provenance.weights == "none, seed 1"


def test_two_networks_of_one_backbone_live_side_by_side() -> None:
    assert extract(*RANDOM).returncode == 0
    assert extract("--random-weights", "1", "--out", "features/photos-rn18-other.h5").returncode == 0
    assert {path.name for path in Path("features").glob("*.h5")} == {"photos-rn18.h5", "photos-rn18-other.h5"}
    few = ("--ways", "2", "--queries", "4", "--shots", "1", "--tasks", "5")
    done = succeed("compare", "--methods", "simpleshot", *few)
    for seed in (0, 1):
        assert f"photos rn18 (rn18-simpleshot, random seed {seed})" in done.stdout
        assert f"photos/rn18(rn18-simpleshot@seed{seed})" in done.stdout.replace("\n", "")


def test_the_preflight_says_which_tasks_are_feasible() -> None:
    done = extract(*RANDOM)
    start = "photos: 3-way tasks of its novel classes: unbalanced 1-shot with --queries 6 or fewer; "
    middle = "unbalanced 5-shot, balanced 5-shot not at all; balanced 1-shot with --queries 9 or fewer"
    assert f"{start}{middle} (smallest class: 4 images)." in done.stderr


def test_an_import_says_which_file_it_wrote(here: Path) -> None:
    write_pickles(here)
    words = ("base=base_cub.plk", "novel=cub.plk", "--dataset", "cub-200", "--backbone", "rn18", "--quiet")
    assert succeed("import", *words).stdout.startswith("features/cub-rn18.h5: cub, rn18, D = ")
