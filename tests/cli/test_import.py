from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fsbench.features.store import FeatureFile
from tests.cli import run
from tests.workspace import write_pickles

NAMES = ("--dataset", "cub-200", "--backbone", "rn18")


@pytest.fixture(autouse=True)
def _pickles(here: Path) -> None:
    write_pickles(here)


def test_a_pair_of_pickles_is_imported_exported_and_imported_again() -> None:
    done = run("import", "base=base_cub.plk", "novel=cub.plk", *NAMES)
    assert done.returncode == 0, done.stderr
    assert "features/cub-rn18.h5: cub, rn18, D = 48" in done.stdout
    done = run("export", "features/cub-rn18.h5", "--out", "all.npz", "--json")
    assert json.loads(done.stdout) == {"file": "all.npz"}
    named = run("import", "all.npz", "--dataset", "cub", "--backbone", "again", "--json", "-q")
    assert json.loads(named.stdout)["file"] == "features/cub-again.h5"
    files = [FeatureFile.open(Path("features") / f"cub-{name}.h5") for name in ("rn18", "again")]
    assert np.array_equal(files[0].read("novel").features, files[1].read("novel").features)


def test_novel_features_alone_with_another_files_base() -> None:
    assert run("import", "novel=cub.plk", "--dataset", "own", "--backbone", "rn18", "-q").stderr == ""
    alone = run("compare", "features/own-rn18.h5", "--tasks", "5")
    assert alone.returncode == 1
    assert "has no base classes, which soft-kmeans, bavardage, " in alone.stderr
    assert run("import", "base=base_cub.plk", "--dataset", "mini", "--backbone", "rn18", "-q").returncode == 0
    crossed = run("solve", "features/own-rn18.h5", "--base", "features/mini-rn18.h5", "--tasks", "5", "--shots", "1")
    assert "own/rn18/novel|base:mini@" in crossed.stdout


def test_the_longest_names_can_be_used() -> None:
    name = 100 * "é"
    names = ("--dataset", name, "--backbone", name, "--out", "own.h5")
    assert run("import", "base=base_cub.plk", "novel=cub.plk", *names).returncode == 0
    for _ in range(2):
        solved = run("solve", "own.h5", "--method", "ncm", "--tasks", "3", "--shots", "1")
        assert solved.returncode == 0, solved.stderr
