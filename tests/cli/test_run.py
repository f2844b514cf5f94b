"""`fsbench run`: tables of a TOML file that mean command lines."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fsbench.cli.run import EXAMPLE
from fsbench.cli.run_file import STEPS, _command, keys_of, override, steps_of, text_of
from tests.cli import run

if TYPE_CHECKING:
    from collections.abc import Iterator

STUDY = """
[report]
out = "page.html"

[compare]
methods = ["ncm", "bavardage:released"]
shots = 1
settings = "unbalanced"
tasks = 12

[[sweep]]
over = { tau = [0.2, 0.4] }
shots = 1
tasks = 5

[[sweep]]
methods = "soft-kmeans"
over = { t_km = [5.0, 10.0] }
shots = 1
tasks = 5

[plot.dots]
out = "dots.svg"
"""
LINES = [
    "fsbench compare --methods ncm,bavardage:released --shots 1 --settings unbalanced --tasks 12",
    "fsbench sweep --over tau=0.2,0.4 --shots 1 --tasks 5",
    "fsbench sweep --over t_km=5.0,10.0 --methods soft-kmeans --shots 1 --tasks 5",
    "fsbench plot dots --out dots.svg",
    "fsbench report --out page.html",
]


def lines(text: str) -> list[str]:
    return [step.line for step in steps_of(tomllib.loads(text), Path("study.toml"))]


def outcomes(folder: Path) -> dict[str, Any]:
    """The counts of all records, by the names of their files."""
    return {str(path.relative_to(folder)): json.loads(path.read_text())["correct"]
            for path in folder.rglob("*.json") if path.parent.name != "sweeps"}  # fmt: skip


def commands() -> Iterator[tuple[str, Any]]:
    for name in STEPS:
        command = _command(name)
        yield from (
            (f"{name} {below}".strip(), leaf) for below, leaf in getattr(command, "commands", {"": command}).items()
        )


@pytest.mark.heavy
@pytest.mark.usefixtures("empty")
def test_the_example_goes_from_an_empty_folder_to_the_report() -> None:
    Path("study.toml").write_text(run("run", "--example").stdout)
    done = run("run", "study.toml", "--set", "compare.tasks=60", "--set", "sweep.tasks=20", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in Path().iterdir()} >= {"features", "results", "dots.png", "report.html"}
    page = Path("report.html").read_text()
    assert "<h1>Three methods on the built-in data set</h1>" in page
    assert "How to repeat this page" in page
    assert "12 cells: 12 recorded, 0 to compute" in run("run", "results/study.toml", "--dry-run").stdout


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for root in ("DATA", "WEIGHTS", "FEATURES", "RESULTS"):
        monkeypatch.delenv(f"FSBENCH_{root}", raising=False)


def test_a_study_is_the_same_as_its_command_lines(folder: Path) -> None:
    (folder / "study.toml").write_text(STUDY)
    assert lines(STUDY) == LINES
    shown = run("run", "study.toml", "--dry-run")
    assert [line.partition("  #")[0] for line in shown.stdout.splitlines()[:-1]] == LINES
    assert not (folder / "results").exists()
    done = run("run", "study.toml")
    assert done.returncode == 0, done.stderr
    assert [f"Step {number} of 5: {line}" in done.stderr for number, line in enumerate(LINES, start=1)] == [True] * 5
    for line in LINES:
        assert run(*line.split()[1:], *(() if "dots" in line else ("--results-dir", "typed"))).returncode == 0
    assert outcomes(folder / "results") == outcomes(folder / "typed") != {}
    assert (folder / "dots.svg").exists()


def test_a_dry_run_counts_cells_and_minutes(folder: Path) -> None:
    (folder / "study.toml").write_text(STUDY)
    compare, one, two, *_, total = run("run", "study.toml", "--dry-run").stdout.splitlines()
    assert compare.endswith("# 3 cells: 0 recorded, 3 to compute, ? minutes")  # the baseline is one of them
    assert (one.partition("#")[2], two.partition("#")[2]) == (" 2 cells: 0 recorded, 2 to compute, ? minutes",) * 2
    assert total == "# 7 cells: 0 recorded, 7 to compute, ? minutes"
    run("compare", "--methods", "ncm", "--shots", "1", "--settings", "unbalanced", "--tasks", "12")
    compare, one, two, *_ = run("run", "study.toml", "--dry-run").stdout.splitlines()
    assert compare.endswith("# 3 cells: 2 recorded, 1 to compute, ? minutes")  # no record of BAVARDAGE yet
    assert two.endswith("# 2 cells: 0 recorded, 2 to compute, seconds")  # by the speed of the baseline
    run("run", "study.toml")
    assert run("run", "study.toml", "--dry-run").stdout.endswith("# 7 cells: 7 recorded, 0 to compute\n")
    more = run("run", "study.toml", "--dry-run", "--set", "compare.tasks=10_000_000").stdout
    assert "0 recorded, 3 to compute, about" in more
    assert "minutes" in more
    forced = run("run", "study.toml", "--dry-run", "--set", "compare.force=true").stdout
    assert "3 cells: 0 recorded, 3 to compute, seconds" in forced
    wrong = run("run", "study.toml", "--dry-run", "--set", "compare.shots=99")
    assert (wrong.returncode, wrong.stderr.startswith("error: [compare]: ")) == (1, True)
    later = run("run", "study.toml", "--dry-run", "--set", "compare.features=features/later.h5").stdout
    assert "3 cells: 0 recorded, 3 to compute, ? minutes" in later


def test_the_report_shows_the_study_with_what_was_overridden(folder: Path) -> None:
    (folder / "study.toml").write_text("# <mine>\n[solve]\nmethod = 'ncm'\ntasks = 5\nbalanced = true\n[report]\n")
    assert run("run", "study.toml").returncode == 0
    assert "# &lt;mine&gt;\n[solve]" in (folder / "report.html").read_text()  # word for word
    assert run("run", "study.toml", "--set", "solve.tasks=7").returncode == 0
    stored = tomllib.loads((folder / "results" / "study.toml").read_text())
    assert stored == {"solve": {"method": "ncm", "tasks": 7, "balanced": True}, "report": {}}
    assert "tasks = 7" in (folder / "report.html").read_text()
    (folder / "other.toml").write_text("[scatter]\n")
    assert run("report", "--study", "other.toml").returncode == 0
    assert "[scatter]" in (folder / "report.html").read_text()
    assert run("report", "--study", "none.toml").returncode == 1


@pytest.mark.parametrize(("title", "command"), [*commands()])
def test_every_option_of_every_step_has_a_key(title: str, command: Any) -> None:
    keys = keys_of(command)
    assert {key.parameter.name for key in keys.values()} == {one.name for one in command.params}
    assert "quiet" in keys
    for key in keys.values():
        if key.option and key.kind[0] is bool:
            opposite = key.words(False)
            assert key.words(True) == [key.option]
            assert opposite == ([key.opposite] if key.opposite else [])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[solve]\nbalanced = true", "solve --balanced"),
        ("[solve]\nunbalanced = false", "solve --balanced"),
        ("[solve]\nbalanced = false", "solve --unbalanced"),
        ("[compare]\npublished = false\nsort = false", "compare --no-published"),
        ("[compare]\nresults-dir = 'r'\nskip-infeasible = true", "compare --results-dir r --skip-infeasible"),
        ("[compare]\nfeatures = ['a.h5', 'b c.h5']", "compare a.h5 'b c.h5'"),
        ("[solve]\nset = { tau = 0.2, steps = 3 }", "solve --set tau=0.2 --set steps=3"),
        ("[solve]\nset = ['tau=0.2']", "solve --set tau=0.2"),
        ("[plot.differences]\nmethod = 'ncm'\nrecords = 'r'", "plot differences ncm soft-kmeans r"),
        ("[[plot.dots]]\nwidth = 'column'", "plot dots --width column"),
        ("[extract]\ndataset = ['cub', 'mini']\nrandom_weights = 3", "extract --dataset cub,mini --random-weights 3"),
    ],
)
def test_a_table_means_one_command_line(table: str, words: str) -> None:
    assert lines(table) == [f"fsbench {words}"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[comparr]", "Unknown step in study.toml 'comparr'.\nDid you mean 'compare'?"),
        ("[compare]\ntask = 3", "Unknown key in [compare] of study.toml 'task'.\nDid you mean 'tasks'?"),
        ("[compare]\ntasks = 'x'", 'tasks cannot be "x".\nGive a whole number.'),
        ("[compare]\ntune = 1", "tune cannot be 1.\nGive true or false."),
        ("[compare]\nmethods = true", "methods cannot be true.\nGive a text, a number, or a list of them."),
        ("[compare]\nseed = -1", "[compare]: Invalid value for '--seed'"),
        ("[plot.dot]", "Unknown plot in study.toml 'dot'.\nDid you mean 'dots'?"),
        ("[plot.differences]\nbaseline = 'ncm'", "baseline needs method too"),
        ("[plot.differences]", "[plot differences]: Missing argument 'method'"),
        ("compare = 3", "compare is not a table"),
        ("[compare", "study.toml is not a TOML file"),
        ("", "study.toml has no steps"),
        ("[solve]\nmethod = 'ncmm'\n", "[solve]: Unknown method 'ncmm'"),
        ("[solve]\nbalanced = true\nalpha = 2", "[solve]: --alpha: α has no meaning for balanced tasks"),
    ],
)
def test_what_is_wrong_names_its_step(folder: Path, text: str, words: str) -> None:
    (folder / "study.toml").write_text(text)
    done = run("run", "study.toml")
    assert done.returncode == 1
    assert words in done.stderr
    assert not (folder / "results").exists()


def test_values_are_overridden_by_name_and_number() -> None:
    study = tomllib.loads(STUDY)
    override(study, ["compare.shots=1,5", "compare.skip-infeasible=true", "sweep.tasks=9", "sweep.2.over.t_km=[3]"])
    assert study["compare"] | {"shots": "1,5", "skip_infeasible": True} == study["compare"]
    assert [sweep["tasks"] for sweep in study["sweep"]] == [9, 9]
    assert [sweep["over"] for sweep in study["sweep"]] == [{"tau": [0.2, 0.4]}, {"t_km": [3]}]
    override(study, ["plot.dots.out=a b.pdf"])
    assert tomllib.loads(text_of(study)) == study
    assert lines(text_of(study)) == [step.line for step in steps_of(study, Path("study.toml"))]


@pytest.mark.usefixtures("folder")
def test_wrong_usage_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("study.toml").write_text(EXAMPLE)
    for arguments, status, words in (
        ((), 2, "give a run file, or --example alone"),
        (("study.toml", "--example"), 2, "give a run file, or --example alone"),
        (("studi.toml",), 1, "Did you mean study.toml?"),
        (("study.toml", "--set", "tasks=3"), 2, "expected STEP.KEY=VALUE"),
        (("study.toml", "--set", "solve.tasks=3"), 1, "Unknown table in --set 'solve'"),
    ):
        done = run("run", *arguments)
        assert (done.returncode, words in done.stderr) == (status, True), done.stderr
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("fsbench.cli.app.in_one_voice", lambda: __import__("contextlib").nullcontext(True))
    done = run("run", "study.toml")
    assert (done.returncode, "A study runs in one process" in done.stderr) == (1, True)
