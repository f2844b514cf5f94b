from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fsbench.features.store import FeatureFile
from tests.cli import run

if TYPE_CHECKING:
    from tests.synthetic import Features


@pytest.fixture
def pickles(features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name, split in (("base_cub.plk", features.base), ("cub.plk", features.novel)):
        classes = {c: list(split.features[split.labels == c]) for c in range(len(split.class_names))}
        (tmp_path / name).write_bytes(pickle.dumps(classes))
    return tmp_path


@pytest.mark.usefixtures("pickles")
def test_a_pair_of_pickles_becomes_a_comparison_in_two_commands() -> None:
    done = run("import", "base=base_cub.plk", "novel=cub.plk", "--dataset", "cub-200", "--backbone", "rn18")
    assert done.returncode == 0, done.stderr
    assert "features/cub-rn18.h5: cub, rn18, D = 48" in done.stdout
    assert "base: " in done.stdout
    table = run("compare", "--tasks", "20", "--shots", "1", "--settings", "unbalanced")
    assert table.returncode == 0, table.stderr
    assert "bavardage:released" in table.stdout
    assert run("scatter").returncode == 0
    assert run("solve", "--tasks", "5", "--shots", "1").returncode == 0


@pytest.mark.usefixtures("pickles")
def test_novel_features_alone_with_another_files_base() -> None:
    assert run("import", "novel=cub.plk", "--dataset", "own", "--backbone", "rn18", "-q").stderr == ""
    alone = run("compare", "features/own-rn18.h5", "--tasks", "5")
    assert alone.returncode == 1
    needy = "soft-kmeans, bavardage, bavardage:released, bavardage:transport"
    assert f"has no base classes, which {needy} need" in alone.stderr
    assert run("import", "base=base_cub.plk", "--dataset", "mini", "--backbone", "rn18", "-q").returncode == 0
    arguments = ("features/own-rn18.h5", "--base", "features/mini-rn18.h5", "--tasks", "5", "--shots", "1")
    crossed = run("compare", *arguments)
    assert crossed.returncode == 0, crossed.stderr
    assert "/novel|base:mini@" in crossed.stdout.replace("\n", "")
    solved = run("solve", *arguments)
    assert "own/rn18/novel|base:mini@" in solved.stdout


@pytest.mark.usefixtures("pickles")
def test_export_and_back() -> None:
    run("import", "base=base_cub.plk", "novel=cub.plk", "--dataset", "cub", "--backbone", "rn18")
    done = run("export", "features/cub-rn18.h5", "--out", "all.npz", "--json")
    assert json.loads(done.stdout) == {"file": "all.npz"}
    named = run("import", "all.npz", "--dataset", "cub", "--backbone", "again", "--json", "-q")
    assert json.loads(named.stdout)["file"] == "features/cub-again.h5"
    files = [FeatureFile.open(Path("features") / f"cub-{name}.h5") for name in ("rn18", "again")]
    assert np.array_equal(files[0].read("novel").features, files[1].read("novel").features)


@pytest.mark.usefixtures("pickles")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("import", "cub.plk"), "Name the split: base=cub.plk, val=cub.plk or novel=cub.plk"),
        (("import", "new=cub.plk"), "'new' in 'new=cub.plk' is not a split"),
        (("import", "nothing.plk"), "No such file: nothing.plk"),
    ],
)
def test_errors_are_sentences(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments, "--dataset", "cub", "--backbone", "rn18")
    assert done.returncode == 1
    assert words in done.stderr
    assert not Path("features").exists()


@pytest.mark.usefixtures("pickles")
def test_the_longest_names_can_be_used() -> None:
    name = 100 * "é"
    done = run("import", "base=base_cub.plk", "novel=cub.plk", "--dataset", name, "--backbone", name, "--out", "own.h5")
    assert done.returncode == 0, done.stderr
    for _ in range(2):
        solved = run("solve", "own.h5", "--method", "ncm", "--tasks", "3", "--shots", "1")
        assert solved.returncode == 0, solved.stderr
