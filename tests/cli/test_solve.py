"""`fsbench solve`, `compare` and `scatter`: options reach methods and tasks, and records are reused."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from fsbench.features.scatter import BaseStatistics
from fsbench.results.record import load_record
from tests.cli import run, succeed

pytestmark = pytest.mark.usefixtures("folder")
FEW = ("--shots", "1", "--tasks", "4", "--quiet")


def rows(*words: str) -> list[dict[str, Any]]:
    done = succeed(*words, "--json")
    return json.loads(done.stdout)


def test_solve_prints_one_json_list() -> None:
    solved = rows("solve", "--alpha", "2", "--tasks", "40", "--quiet")
    assert [(row["method"], row["shots"]) for row in solved] == [
        (method, shots) for method in ("soft-kmeans", "bavardage") for shots in (1, 5)
    ]
    for row in solved:
        names = [row[field] for field in ("dataset", "backbone", "baseline", "setting", "protocol", "split")]
        assert names == ["synthetic", "none", "soft-kmeans", "unbalanced", "disjoint", "novel"]
        assert (row["alpha"], row["ways"], row["queries"], row["tasks"], row["seed"]) == (2, 5, 75, 40, 0)
        assert 20 < row["accuracy"] <= 100
    assert solved[2]["difference"] == pytest.approx(solved[2]["accuracy"] - solved[0]["accuracy"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--balanced", {"mixing": "uniform"}),
        ("--balanced --blind", {"mixing": "learned"}),
        ("--alpha 4", {"prior_alpha": 2}),
        ("--alpha 4 --set prior_alpha=sampler", {"prior_alpha": 4}),
        ("--set tau=learned --set sigma=inf --set steps=3", {"tau": "learned", "sigma": "inf", "steps": 3}),
        ("--set t-km=12 --set stage=vb", {"t_km": 12, "stage": "vb"}),
        ("--set variant=released", {"variant": "released"}),
        ("--method bavardage:released", {"variant": "released"}),
        ("--method pt-map --set rate=0.1", {"rate": 0.1}),
    ],
)
def test_parameters_reach_the_method(words: str, expected: dict[str, Any]) -> None:
    *_, row = rows("solve", *FEW, *words.split())
    assert {name: row["params"][name] for name in expected} == expected


def test_few_of_many_classes_are_among_the_queries() -> None:
    few = ("--protocol", "keff", "--present", "2", *FEW)
    *_, row = rows("solve", *few, "--method", "soft-kmeans", "--tune")
    assert f"keff:1|{row['ways']}w1s75q|keff:2|images" in row["signature"]
    assert row["ways"] > 5
    table = run("compare", *few, "--settings", "balanced", "--format", "markdown").stdout
    assert r"k\_eff=2 balanced 1-shot" in table
    assert "uniform prior" not in table.split("bavardage:transport")[0]  # most classes have no query


def test_a_record_names_the_file_that_was_solved(folder: Path) -> None:
    """Such as one with the word scatter in its name."""
    file = (folder / "features" / "synthetic-none.h5").rename(folder / "features" / "my.scatter-net-tagged.h5")
    assert len(rows("solve", *FEW)) == 2
    for path in (folder / "results").glob("*.h5"):
        words = shlex.split(load_record(path).command)
        assert words[:3] == ["fsbench", "solve", str(file.relative_to(folder))]
        succeed(*words[1:], "--quiet")
    succeed("report")
    assert f"fsbench solve {words[2]}" in (folder / "report.html").read_text(encoding="utf-8")


def test_scatter_writes_beside_the_features_and_summarises() -> None:
    shown = succeed("scatter", "features/synthetic-none.h5").stdout
    base = BaseStatistics.load("features/synthetic-none.scatter.h5")
    assert (len(base.class_counts), len(base.mean)) == (16, 48)
    assert all(words in shown for words in (" 16 ", " 48 ", f" {base.effective_rank:.1f} ", "% at σ = 20"))
