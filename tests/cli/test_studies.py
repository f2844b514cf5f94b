"""`fsbench sweep`, `tune` and `reproduce`."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.cli import Done, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.synthetic import Features

FEW = ("--shots", "1", "--tasks", "4")


@pytest.fixture
def folder(features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    features.write(tmp_path / "features" / "mini-wrn.h5", "mini", "wrn")
    return tmp_path


def fsbench(*arguments: str) -> Done:
    result = run(*arguments)
    assert result.returncode == 0, result.output
    return result


@pytest.mark.usefixtures("folder")
def test_table_2_shows_what_each_element_of_bavardage_adds() -> None:
    table = fsbench("reproduce", "table2", "--tasks", "10").stdout
    for step in ("Soft-KMEANS ", "Soft-KMEANS+VB", "BAVARDAGE "):
        assert step in table


def test_a_sweep_prints_draws_and_stores(folder: Path) -> None:
    arguments = ("sweep", "--over", "t-vb=40,50", "--split", "val,novel", "--shots", "1", "--tasks", "10")
    result = fsbench(*arguments, "--out", "curve.svg")
    assert "T_vb" in result.stdout
    assert "(published 74.10)" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines() if not line.startswith(("Figure", "fsbench:"))) <= 100
    assert "|disjoint:1|5w1s75q|dirichlet:2|bavardage|seed:0|tasks:10|over:t_vb=40,50|" in result.stdout
    assert (folder / "curve.svg").read_text().startswith("<?xml")
    (stored,) = (folder / "results" / "sweeps").glob("*.json")
    assert " " not in stored.name
    assert len(json.loads(stored.read_text())["panels"][0]["curves"]) == 2


def test_a_figure_of_the_article_is_one_command(folder: Path) -> None:
    assert "queries" in fsbench("reproduce", "figure4", "--tasks", "4", "--quiet").stdout
    assert len(list((folder / "results" / "sweeps").glob("mini-wrn-figure-4-*.png"))) == 1


def test_tuned_parameters_serve_solve(folder: Path) -> None:
    search = ("tune", "--over", "tau=0.2,0.4", "--set", "variant=released", "--shots", "1", "--tasks", "10")
    tuned = fsbench(*search, "--out", "s.png")
    assert "Kept in features/mini-wrn.tuned.json" in tuned.stdout
    assert (folder / "s-mini-wrn-unbalanced-1shot.png").exists()
    solved = fsbench("solve", "--tune", "--variant", "released", "--shots", "1", "--tasks", "5")
    assert "tuned:val:grid:2x10" in solved.stdout
    assert "nothing to tune" in run("solve", "--method", "soft-kmeans", "--tune", "--t-km", "10", *FEW).stderr


def test_json_of_every_study(folder: Path) -> None:
    few = (*FEW, "--json")
    (curves,) = json.loads(fsbench("sweep", "--over", "tau=0.2,0.3", *few, "--out", "curve.svg").stdout)
    (panel,) = curves["panels"]
    assert [point["x"] for point in panel["curves"][0]["points"]] == [0.2, 0.3]
    two = "features/mini-wrn.h5", shutil.copy(folder / "features" / "mini-wrn.h5", "other.h5")
    first, second = json.loads(fsbench("sweep", *two, "--over", "tau=0.2,0.3", *few).stdout)
    assert first["panels"] == second["panels"] == curves["panels"]
    refused = run("sweep", *two, "--over", "tau=0.2,0.3", *few, "--out", "curve.svg")
    assert "one figure is drawn per feature file" in refused.stderr
    (tuned,) = json.loads(fsbench("tune", "--over", "tau=0.2,0.3", *few).stdout)
    assert tuned["params"]["tau"] in (0.2, 0.3)
