"""`fsbench sweep`, `tune` and `reproduce`."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli import run, succeed
from tests.synthetic import Features

FEW = ("--shots", "1", "--tasks", "4")


@pytest.fixture(autouse=True)
def _features(features: Features, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    features.write(here / "features" / "mini-wrn.h5", "mini", "wrn")


def output_of(*arguments: str) -> str:
    return succeed(*arguments).stdout


def test_a_sweep_prints_draws_and_stores(here: Path) -> None:
    shown = output_of("sweep", "--over", "t-vb=40,50", "--split", "val,novel", *FEW, "--out", "curve.svg")
    assert "T_vb" in shown
    assert "(published" not in shown  # beside other images than the benchmark's
    assert max(len(line) for line in shown.splitlines() if not line.startswith(("Figure", "fsbench:"))) <= 100
    assert "|disjoint:1|5w1s75q|dirichlet:2|seed:0|tasks:4|" in shown
    assert "|over:t_vb=40,50" in shown
    assert (here / "curve.svg").read_text().startswith("<?xml")
    (stored,) = (here / "results" / "sweeps").glob("*.json")
    assert len(json.loads(stored.read_text())["panels"][0]["curves"]) == 2


def test_a_table_and_a_figure_of_the_article_are_one_command_each(here: Path) -> None:
    table = output_of("reproduce", "table2", "--tasks", "10")
    for step in ("Soft-KMEANS ", "Soft-KMEANS+VB", "BAVARDAGE "):
        assert step in table
    assert "queries" in output_of("reproduce", "figure4", "--tasks", "4", "--quiet")
    assert len(list((here / "results" / "sweeps").glob("mini-wrn-figure-4-*.png"))) == 1


def test_tuned_parameters_serve_solve(here: Path) -> None:
    search = ("tune", "--over", "tau=0.2,0.4", "--set", "variant=released", "--shots", "1", "--tasks", "10")
    assert "Kept in features/mini-wrn.tuned.json" in output_of(*search)
    (tuned,) = json.loads(output_of(*search, "--json"))
    assert tuned["params"]["tau"] in (0.2, 0.4)
    assert "tuned:val:grid:2x10" in output_of("solve", "--tune", "--set", "variant=released", *FEW)


def test_curves_of_several_files_are_the_json_of_a_sweep(here: Path) -> None:
    two = "features/mini-wrn.h5", shutil.copy(here / "features" / "mini-wrn.h5", "other.h5")
    sweep = ("sweep", *two, "--over", "tau=0.2,0.3", *FEW, "--json")
    first, second = json.loads(output_of(*sweep))
    assert first["panels"] == second["panels"]
    assert [point["x"] for point in first["panels"][0]["curves"][0]["points"]] == [0.2, 0.3]
    assert "one figure is drawn per feature file" in run(*sweep, "--out", "curve.svg").stderr
