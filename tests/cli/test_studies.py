from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.cli import Done, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.synthetic import Features


@pytest.fixture
def folder(features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    features.write(tmp_path / "features" / "mini-wrn.h5", "mini", "wrn")
    return tmp_path


def fsbench(*arguments: str) -> Done:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.usefixtures("folder")
def test_the_ablation_has_the_rows_of_table_2_for_both_variants() -> None:
    rows = json.loads(fsbench("ablate", "--tasks", "20", "--shots", "1", "--format", "json").stdout)
    assert [row["method"] for row in rows if row["accuracy"] is not None] == [
        "soft-kmeans",
        "+ VB",
        "+ VB + PLDA",
        "+ VB (released)",
        "+ VB + PLDA (released)",
    ]
    published = {row["method"]: row["published"] for row in rows}
    assert published["+ VB"] == 71.8  # Table 2
    assert published["+ VB + PLDA"] == 74.10  # Table 3, which has more digits than Table 2
    assert "stage:vb" in next(row["signature"] for row in rows if row["method"] == "+ VB")
    assert all(row["difference"] is not None for row in rows if row["method"].startswith("+"))


def test_a_sweep_prints_draws_and_stores(folder: Path) -> None:
    arguments = ("sweep", "--over", "t-vb=40,50", "--split", "val,novel", "--shots", "1", "--tasks", "10")
    result = fsbench(*arguments, "--plot", "curve.svg")
    assert "T_vb" in result.stdout
    assert "(published 74.10)" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines() if not line.startswith(("Picture", "fsbench:"))) <= 100
    assert "|disjoint:1|5w1s75q|dirichlet:2|bavardage|seed:0|tasks:10|over:t_vb=40,50|" in result.stdout
    assert (folder / "curve.svg").read_text().startswith("<?xml")
    (stored,) = (folder / "results" / "sweeps").glob("*.json")
    assert " " not in stored.name
    assert len(json.loads(stored.read_text())["panels"][0]["curves"]) == 2
    assert len(list((folder / "results" / "points").glob("*.json"))) == 4


def test_a_figure_of_the_article_is_one_command(folder: Path) -> None:
    result = fsbench("sweep", "--figure", "4", "--tasks", "4", "--quiet")
    assert "queries" in result.stdout
    assert len(list((folder / "results" / "sweeps").glob("mini-wrn-figure-4-*.png"))) == 1


def test_tuned_parameters_serve_solve_and_compare(folder: Path) -> None:
    tuned = fsbench(
        "tune", "--over", "tau=0.2,0.4", "--set", "variant=released", "--shots", "1", "--tasks", "10", "--plot", "s.png"
    )
    assert "Kept in features/mini-wrn.tuned.json" in tuned.stdout
    assert (folder / "s-mini-wrn-unbalanced-1shot.png").exists()
    fsbench("tune", "--method", "soft-kmeans", "--trials", "2", "--shots", "1", "--tasks", "10")
    solved = json.loads(
        fsbench("solve", "--tune", "--variant", "released", "--shots", "1", "--tasks", "5", "--json").stdout
    )
    assert solved[0]["params_from"] == "tuned:val:grid:2x10"
    compared = json.loads(
        fsbench(
            "compare", "--tune", "--methods", "soft-kmeans,bavardage:released", "--settings", "unbalanced",
            "--shots", "1", "--tasks", "5", "--format", "json",
        ).stdout
    )  # fmt: skip
    assert "params:tuned:val:optuna:2x10" in compared[0]["signature"]
    assert "params:tuned:val:grid:2x10" in compared[1]["signature"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sweep",), "give either --over"),
        (("sweep", "--over", "tau=1", "--figure", "3"), "give either --over"),
        (("sweep", "--over", "tau"), "expected NAME=VALUE"),
        (("tune", "--over", "=3"), "expected NAME=VALUE"),
        (("ablate", "--settings", "odd"), "unbalanced, balanced or both"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_wrong_usage_is_said_and_exits_with_2(arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.replace("│", " ").split())


@pytest.mark.usefixtures("folder")
def test_what_cannot_be_done_is_said_and_exits_with_1() -> None:
    for arguments, words in (
        (("sweep", "--over", "taus=1,2", "--tasks", "5"), "taus"),
        (("sweep", "--over", "tau=0.1", "--split", "vall", "--tasks", "5"), "vall"),
        (("sweep", "--over", "tau=0.1", "--plot", "x.gif", "--tasks", "5"), ".png, .pdf, .svg"),
        (("sweep", "--figure", "9"), "no sweep for figure 9"),
        (("tune", "--over", "shots=1,5"), "shots belongs to the tasks"),
    ):
        result = run(*arguments)
        assert result.returncode == 1, result.stderr
        assert words in result.stderr
        assert "Traceback" not in result.stderr


def test_json_of_every_study(folder: Path) -> None:
    few = ("--shots", "1", "--tasks", "4", "--json")
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
    rows = json.loads(fsbench("compare", "--methods", "ncm", *few).stdout)
    assert {row["method"] for row in rows} >= {"ncm", "soft-kmeans"}
