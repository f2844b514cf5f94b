"""No wish is ignored: one that cannot be obeyed is refused in a sentence that names the options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli import run

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("folder")
FEW = ("--shots", "1", "--tasks", "4", "--quiet")


def refusal(*arguments: str, status: int = 2) -> str:
    """What a command that is not obeyed says; nothing must have been computed for it."""
    done = run(*arguments)
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    return " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "given",
    [
        ("--methods", "ncm"),
        ("--split", "val"),
        ("--unbalanced",),
        ("--balanced",),
        ("--alpha", "2"),
        ("--shots", "1"),
        ("--ways", "5"),
        ("--queries", "75"),
        ("--protocol", "released"),
        ("--set", "tau=0.5"),
    ],
)
def test_a_figure_leaves_nothing_else_to_choose(given: tuple[str, ...]) -> None:
    words = refusal("sweep", "--figure", "4", *given)
    assert "--figure" in words
    assert f"leave out {given[0]}" in words


def test_all_that_a_figure_excludes_is_named_at_once() -> None:
    assert "leave out --methods, --balanced, --ways" in refusal(
        "sweep", "--figure", "3", "--ways", "3", "--balanced", "--methods", "ncm"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("sweep --over tau=0.1,0.2 --over tau=0.5", ("--over", "tau is given twice: 0.1,0.2 and 0.5")),
        ("sweep --over t-km=1,2 --over t_km=5", ("--over", "t_km is given twice")),
        ("tune --over tau=0.1,0.2 --over tau=0.5", ("--over", "tau is given twice")),
        ("solve --set tau=0.5 --set tau=0.9", ("--set", "tau is given twice: 0.5 and 0.9")),
        ("solve --tau 0.1 --set tau=0.9", ("--set", "tau is also given by --tau")),
        ("solve --t-km 1 --set t-km=2", ("--set", "t_km is also given by --t-km")),
        ("plot simplex --t-km 1 --set t_km=2", ("--set", "t_km is also given by --t-km")),
        ("plot task --tau 1 --set tau=2", ("--set", "tau is also given by --tau")),
        ("sweep --over tau=0.1,0.2 --set tau=0.5", ("--over", "tau is also given by --set")),
        ("tune --over tau=0.1,0.2 --set tau=0.5", ("--over", "tau is also given by --set")),
        ("tune --method unem-gaussian --out surface.png", ("--out", "no surface to draw")),
        ("sweep --balanced --over alpha=1,2", ("--over", "leave out --balanced")),
        ("sweep --alpha 3 --over alpha=1,2", ("--over", "also given by --alpha")),
        ("sweep --shots 7,9 --over shots=1,2", ("--over", "also given by --shots")),
        ("sweep --ways 7 --over ways=3,4", ("--over", "also given by --ways")),
        ("sweep --queries 7 --over tau=1 --over queries=3,4", ("--over", "also given by --queries")),
        ("compare --settings balanced --alpha 3", ("--alpha", "no meaning for balanced")),
        ("ablate --settings balanced --alpha 3", ("--alpha", "no meaning for balanced")),
        ("solve --method bavardage:released --variant article", ("--variant", "also given by bavardage:released")),
        ("tune --method bavardage:released --set variant=article", ("--set", "--method bavardage:released")),
        ("tune --method simpleshot:L2N --over norm=UN,CL2N", ("--over", "--method simpleshot:L2N")),
        ("sweep --methods bavardage:released --over variant=article", ("--over", "--methods bavardage:released")),
        ("sweep --methods bavardage:released --over tau=1 --set variant=article", ("--set", "bavardage:released")),
    ],
)
def test_what_is_given_twice_is_refused(arguments: str, words: tuple[str, ...]) -> None:
    said = refusal(*arguments.split())
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("compare --settings balanced,balanced", ("--settings", "balanced is given twice")),
        ("ablate --settings unbalanced,unbalanced", ("--settings", "unbalanced is given twice")),
        ("sweep --over tau=1 --split val,val", ("--split", "val is given twice")),
        (
            "compare --methods bavardage,bavardage:article",
            ("--methods", "bavardage and bavardage:article are the same"),
        ),
        ("compare --methods simpleshot:CL2N,simpleshot", ("--methods", "simpleshot:CL2N and simpleshot are the same")),
        ("compare --methods bavardage --baseline bavardage:article", ("--methods", "bavardage:article are the same")),
        ("sweep --over tau=1 --methods bavardage:article,bavardage", ("--methods", "are the same")),
    ],
)
def test_doubles_in_a_list_are_refused(arguments: str, words: tuple[str, ...]) -> None:
    said = refusal(*arguments.split())
    assert all(word in said for word in words), said


def test_what_is_swept_takes_the_place_of_a_default() -> None:
    assert run("sweep", "--over", "shots=1,2", "--methods", "ncm", "--tasks", "4", "--quiet").returncode == 0


def test_alpha_reaches_the_unbalanced_columns_alone() -> None:
    rows = json.loads(
        run("compare", "--methods", "ncm", "--baseline", "ncm", "--alpha", "3", "--format", "json", *FEW).stdout
    )
    assert {row["setting"]: row["alpha"] for row in rows} == {"unbalanced": 3.0, "balanced": None}


def test_solve_takes_a_variant_by_its_name() -> None:
    (row,) = json.loads(run("solve", "--method", "bavardage:released", "--json", *FEW).stdout)
    assert json.loads(run("solve", "--variant", "released", "--json", *FEW).stdout) == [row]
    assert row["variant"] == "released"


@pytest.mark.parametrize(
    "arguments",
    [
        "solve --method soft-kmeans --tune --t-km 10",
        "solve --tune --t-km 10 --tau 0.3 --sigma 20",
        "solve --tune --t-km 10 --t-vb 3 --s-max 2",
        "tune --method soft-kmeans --set t_km=10",
    ],
)
def test_there_must_be_something_to_tune(arguments: str) -> None:
    words = refusal(*arguments.split(), *FEW, status=1)
    assert "nothing to tune" in words
    assert "t_km" in words
    assert "--tune" in words


def test_a_temperature_given_by_hand_is_not_said_to_be_tuned_beside_parameters_that_are(folder: Path) -> None:
    run("tune", "--over", "tau=0.2,0.3", "--set", "t_km=10", *FEW)
    (row,) = json.loads(run("solve", "--tune", "--t-km", "10", "--json", *FEW).stdout)
    assert row["params_from"] == "tuned:val:grid:2x4"
    (record,) = (folder / "results").glob("*soft-kmeans*.json")
    assert '"params_from":"default + given:t_km"' in record.read_text().replace(": ", ":")


def test_a_number_with_and_without_a_point_is_one_record(folder: Path) -> None:
    named = run("solve", "--t-km", "10", "--tau", "1", "--json", *FEW)
    records = sorted((folder / "results").iterdir())
    assert run("solve", "--set", "t_km=10", "--set", "tau=1", "--json", *FEW).stdout == named.stdout
    assert sorted((folder / "results").iterdir()) == records
    assert '"t_km": 10.0' in named.stdout
    for text in ("1", "1.0"):
        run("sweep", "--over", f"alpha={text}", "--methods", "ncm", *FEW)
    assert len(list((folder / "results" / "points").iterdir())) == 1


def test_a_single_task_has_no_interval() -> None:
    done = run("solve", "--shots", "1", "--tasks", "1", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "nan" not in done.stdout


def test_too_few_images_for_an_interval_over_the_data_are_told() -> None:
    arguments = ("compare", "--methods", "ncm", "--baseline", "ncm", "--settings", "balanced", *FEW, "--over-data")
    assert "no interval over the data" not in run(*arguments, "--ways", "2", "--queries", "4").stderr
    done = run(*arguments, "--ways", "10", "--queries", "200")
    assert done.stderr.count("balanced 1-shot: fewer than two tasks that share no image fit into novel") == 1
