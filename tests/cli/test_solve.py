from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fsbench.cli.app import COMMANDS as COMMANDS_OF_FSBENCH
from fsbench.cli.app import load_command
from fsbench.methods.registry import METHODS, method_class
from fsbench.results.tuned import Trial, Tuned, write_memory
from tests.cli import Done, run
from tests.records import four_settings, store

if TYPE_CHECKING:
    from tests.synthetic import Features

FIELDS = {
    *("dataset", "backbone", "method", "variant", "setting", "alpha", "shots", "ways", "queries", "tasks", "seed"),
    *("accuracy", "ci95", "seconds", "tasks_per_second", "signature", "params"),
}


@pytest.fixture
def folder(features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    features.write(tmp_path / "features" / "synthetic-none.h5")
    return tmp_path


def fsbench(*arguments: str) -> Done:
    return run(*arguments)


@pytest.mark.usefixtures("folder")
def test_solve_prints_one_json_list() -> None:
    result = fsbench("solve", "--unbalanced", "--alpha", "2", "--tasks", "40", "--json", "--quiet")
    rows = json.loads(result.stdout)
    assert [row["shots"] for row in rows] == [1, 5]
    for row in rows:
        assert set(row) >= FIELDS
        assert (row["dataset"], row["backbone"], row["method"], row["variant"]) == (
            "synthetic",
            "none",
            "bavardage",
            "article",
        )
        assert (row["setting"], row["alpha"], row["ways"], row["queries"], row["tasks"]) == ("unbalanced", 2, 5, 75, 40)
        assert 20 < row["accuracy"] <= 100
        assert row["baseline"]["method"] == "soft-kmeans"


def test_solve_prints_a_table_of_at_most_100_columns_and_reuses_records(folder: Path) -> None:
    first = fsbench("solve", "features/synthetic-none.h5", "--tasks", "30", "--shots", "5")
    assert first.exit_code == 0, first.output
    assert "bavardage (article): accuracy in % ± 95 % interval over 30 tasks, α = 2" in first.stdout
    assert max(len(line) for line in first.stdout.splitlines() if "|" not in line) <= 100
    assert "disjoint:1|5w5s75q|dirichlet:2" in first.stdout
    records = sorted((folder / "results").glob("*.json"))
    assert len(records) == 2
    stamps = [path.stat().st_mtime_ns for path in records]
    assert fsbench("solve", "--tasks", "30", "--shots", "5").stdout == first.stdout
    assert [path.stat().st_mtime_ns for path in records] == stamps
    fsbench("solve", "--tasks", "30", "--shots", "5", "--force")
    assert [path.stat().st_mtime_ns for path in records] != stamps


@pytest.mark.usefixtures("folder")
def test_balanced_has_no_alpha() -> None:
    (row,) = json.loads(fsbench("solve", "--balanced", "--shots", "1", "--tasks", "20", "--json").stdout)
    assert row["setting"] == "balanced"
    assert row["alpha"] is None
    assert row["params"]["mixing"] == "uniform"
    assert fsbench("solve", "--balanced", "--alpha", "2").exit_code == 2


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("given", "prior"), [((), 2), (("--prior-alpha", "1"), 1), (("--prior-alpha", "sampler"), 4)])
def test_the_prior_is_2_unless_asked(given: tuple[str, ...], prior: float) -> None:
    arguments = ("solve", "--alpha", "4", "--shots", "1", "--tasks", "5", "--json")
    (row,) = json.loads(fsbench(*arguments, *given).stdout)
    assert row["params"]["prior_alpha"] == prior


@pytest.mark.usefixtures("folder")
def test_who_is_told_alpha_says_so_in_its_column() -> None:
    arguments = ("compare", "--methods", "soft-kmeans,bavardage", "--shots", "1", "--tasks", "5", "--alpha", "4")
    told = json.loads(fsbench(*arguments, "--prior-alpha", "sampler", "--format", "json").stdout)
    assert [row["assumes"] for row in told] == ["no prior", "no prior", "free prior, told α", "uniform prior"]
    usual = json.loads(fsbench(*arguments, "--format", "json").stdout)
    assert [row["assumes"] for row in usual] == ["no prior", "no prior", "free prior", "uniform prior"]
    assert "free / uniform prior" in fsbench(*arguments, "--format", "markdown").stdout
    for command in ("sweep --over tau=0.3", "ablate", "tune --over tau=0.3"):
        done = fsbench(*command.split(), "--prior-alpha", "sampler", "--alpha", "4", "--shots", "1", "--tasks", "5")
        assert done.exit_code == 0
    refused = fsbench("compare", "--methods", "ncm", "--prior-alpha", "3")
    assert refused.exit_code == 2
    assert "no method has such a prior" in refused.stderr
    assert "expected a number or `sampler`" in fsbench("solve", "--prior-alpha", "two").stderr


@pytest.mark.usefixtures("folder")
def test_every_parameter_reaches_the_method() -> None:
    result = fsbench(
        "solve", "--variant", "released", "--t-km", "12", "--t-vb", "30", "--s-max", "2", "--beta", "7", "--steps", "3",
        "--mixing", "uniform", "--ways", "3", "--queries", "21", "--seed", "9", "--split", "val", "--shots", "2",
        "--protocol", "veilleux", "--tasks", "10", "--batch", "4", "--device", "cpu", "--json",
    )  # fmt: skip
    (row,) = json.loads(result.stdout)
    params = row["params"]
    assert (params["variant"], params["t_km"], params["beta"], params["steps"]) == ("released", 12, 7, 3)
    assert params["tau"] * (params["sigma"] / 2) ** 2 == pytest.approx(30)  # τ σ² = T_vb s_max²
    assert (row["ways"], row["queries"], row["seed"], row["split"], row["protocol"]) == (3, 21, 9, "val", "veilleux")


@pytest.mark.usefixtures("folder")
def test_few_of_many_classes_are_among_the_queries() -> None:
    arguments = ("--protocol", "keff", "--present", "2", "--shots", "1", "--tasks", "5")
    (row,) = json.loads(fsbench("solve", *arguments, "--json").stdout)
    ways = row["ways"]
    assert ways > 5
    assert f"keff:1|{ways}w1s75q|keff:2|images" in row["signature"]
    assert row["params"]["mixing"] == "learned"
    table = fsbench("compare", *arguments, "--settings", "balanced", "--over-data", "--format", "markdown").stdout
    assert "k_eff=2 balanced 1-shot" in table
    assert "uniform prior" not in table.split("bavardage:transport")[0]  # most classes have no query
    tuned = fsbench("tune", *arguments[:2], "--method", "soft-kmeans", "--tasks", "3", "--shots", "1")
    assert tuned.exit_code == 0  # on all val classes, of which there are fewer
    (row,) = json.loads(fsbench("solve", *arguments, "--method", "soft-kmeans", "--tune", "--json").stdout)
    assert (row["ways"], row["present"]) == (ways, 2)
    assert row["params_from"].startswith("tuned")
    assert "has all classes among the queries" in fsbench("solve", "--present", "2").stderr


@pytest.mark.usefixtures("folder")
def test_blind_methods_do_not_know_that_tasks_are_balanced() -> None:
    arguments = ("solve", "--balanced", "--shots", "1", "--tasks", "5", "--json")
    (told,), (blind,) = (json.loads(fsbench(*arguments, *more).stdout) for more in ((), ("--blind",)))
    assert (told["params"]["mixing"], told["params_from"]) == ("uniform", "default")
    assert (blind["params"]["mixing"], blind["params_from"]) == ("learned", "blind")
    assert "choose one of both" in fsbench(*arguments, "--blind", "--preset", "article").stderr
    assert "not known" in run(*arguments, "--blind", "--prior-alpha", "sampler").stderr


@pytest.mark.usefixtures("folder")
def test_no_clamp_at_all_is_recorded_as_a_word() -> None:
    arguments = ("solve", "--sigma", "inf", "--shots", "1", "--tasks", "5", "--json")
    (row,) = json.loads(fsbench(*arguments).stdout)
    assert row["params"]["sigma"] == "inf"
    assert json.loads(fsbench(*arguments).stdout) == [row]  # the record is found again


@pytest.mark.usefixtures("folder")
def test_other_parameters_are_set_by_name() -> None:
    arguments = ("solve", "--method", "pt-map", "--shots", "1", "--tasks", "5", "--json", "--set", "rate=0.1")
    (row,) = json.loads(fsbench(*arguments, "--set", "epochs=3").stdout)
    assert (row["params"]["rate"], row["params"]["epochs"]) == (0.1, 3)
    assert "Unknown parameter of pt-map 'raet'" in run(*arguments[:-1], "raet=1").stderr
    assert fsbench(*arguments[:-1], "rate").exit_code == 2


@pytest.mark.usefixtures("folder")
def test_tau_can_be_learned_and_out_is_written() -> None:
    result = fsbench("solve", "--tau", "learned", "--shots", "1", "--tasks", "10", "--out", "rows.json", "--json")
    assert json.loads(Path("rows.json").read_text()) == json.loads(result.stdout)
    assert json.loads(result.stdout)[0]["params"]["tau"] == "learned"


@pytest.mark.usefixtures("folder")
def test_scatter_writes_beside_the_features_and_summarises() -> None:
    result = fsbench("scatter")
    assert result.exit_code == 0
    assert Path("features/synthetic-none.scatter.h5").exists()
    assert "effective rank" in result.stdout
    (row,) = json.loads(fsbench("scatter", "features/synthetic-none.h5", "--json").stdout)
    assert (row["classes"], row["dimension"], row["sigma"]) == (16, 48, 20.0)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("solve", "nothing.h5"), "No such file: nothing.h5"),
        (("solve", "--method", "bavardge"), "Did you mean 'bavardage'"),
        (("solve", "--split", "test"), "Unknown split 'test'"),
        (("solve", "--ways", "11"), "11 ways asked for, but the split has 10 classes"),
        (("solve", "--protocol", "released!"), "Unknown protocol"),
        (("solve", "--t-vb", "3", "--sigma", "3", "--tau", "1"), "a value was given in both"),
        (("solve", "--method", "ncm", "--tau", "1"), "ncm takes no parameters"),
        (("solve", "--device", "cuda:7"), "cannot be used"),
        (("scatter", "features"), "features is a folder"),
    ],
)
def test_errors_are_sentences_without_traceback(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stdout == ""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "arguments",
    [
        ("solve", "--tau", "x"),
        ("solve", "--shots", "one"),
        ("solve", "--tasks", "0"),
        ("solve", "--tsks", "3"),
        ("slove",),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    assert fsbench(*arguments).exit_code == 2


def test_help_is_fast_because_torch_stays_out() -> None:
    code = (
        "import sys; import fsbench.cli.app; print([m for m in ('torch', 'timm', 'h5py', 'scipy') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


UNUSUAL = (
    "torch._dynamo",
    "torch._inductor",
    "sympy",
    "scipy.stats",
    "scipy.cluster",
    "matplotlib",
    "torchvision",
    "timm",
)
COMMANDS = """
import json, sys
from fsbench.cli.app import app
def modules(*words):
    try:
        app(words, standalone_mode=False)
    except SystemExit:
        pass
    return [name for name in json.loads(sys.argv[1]) if name in sys.modules]
tasks = ("--tasks", "8", "--shots", "1", "--quiet")
found = {"help": modules("--help"), "doctor": modules("doctor"), "solve": modules("solve", *tasks)}
found["compare"] = modules("compare", "--methods", "ncm,bavardage:released,tim-adm", *tasks)
print(json.dumps(found))
"""


@pytest.mark.heavy
@pytest.mark.usefixtures("folder")
def test_ordinary_commands_import_nothing_that_takes_seconds() -> None:
    """`doctor` tries torch in a child process; what it reads of libraries itself are their versions."""
    command = [sys.executable, "-c", COMMANDS, json.dumps(["torch", *UNUSUAL])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"help": [], "doctor": [], "solve": ["torch"], "compare": ["torch"]}


REPORT = """
import json, sys
from fsbench.cli.app import app
app(["report", "--quiet"], standalone_mode=False)
print(json.dumps([name for name in json.loads(sys.argv[1]) if name in sys.modules]))
"""


def test_a_report_imports_no_torch(tmp_path: Path) -> None:
    for method in METHODS:
        cls: Any = method_class(method)
        params, version = cls().params(), cls.info.version
        made = four_settings(method, 0.6, dataset="mini", backbone="wrn", params=params)
        store(tmp_path / "results", *(replace(one, key=replace(one.key, method_version=version)) for one in made))
    trials = [Trial({"tau": tau}, 60.0, 0.5) for tau in (0.1, 0.2, 0.3)]
    (tmp_path / "features").mkdir()
    write_memory(tmp_path / "features" / "mini-wrn.tuned.json", {"0": Tuned("bavardage", "", "grid", 50, trials)})
    names = json.dumps(["torch", "h5py", "matplotlib.pyplot", *UNUSUAL])
    command = [sys.executable, "-c", REPORT, names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout.splitlines()[-1]) == ["matplotlib"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(method_class(method).info.title in page for method in METHODS)
    assert "tuned on val" in page


HOLLOW = """
import json, sys
from fsbench.cli import app, fast_completion
sys.meta_path.insert(0, fast_completion.Hollow())
commands = {name: app.load_command(name) for name in app.COMMANDS}
assert not hasattr(sys.modules.get("torch"), "__file__"), "torch was imported"
print(json.dumps({name: [param.name for param in command.params] for name, command in commands.items()}))
"""


def test_completion_knows_all_options_without_torch() -> None:
    done = subprocess.run([sys.executable, "-c", HOLLOW], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == {name: [param.name for param in load_command(name).params] for name in COMMANDS_OF_FSBENCH}


def test_version() -> None:
    assert fsbench("--version").stdout.startswith("fsbench 0.")


@pytest.mark.usefixtures("folder")
def test_every_setting_is_checked_before_the_first_task_and_the_others_go_on_if_asked() -> None:
    arguments = ("compare", "--methods", "simpleshot", "--tasks", "5", "--shots", "1,38")
    done = run(*arguments)
    assert done.returncode == 1
    assert not Path("results").exists()
    for setting in ("unbalanced α=2 38-shot", "balanced 38-shot"):
        assert f"features/synthetic-none.h5, {setting}: " in done.stderr
    assert "Use --queries " in done.stderr
    assert "--skip-infeasible" in done.stderr
    done = run(*arguments, "--skip-infeasible")
    assert done.returncode == 0, done.stderr
    assert "Left out: features/synthetic-none.h5, balanced 38-shot" in done.stderr
    assert "1-shot" in done.stdout
    assert "38-shot" not in done.stdout
    assert run("solve", "--shots", "1,38", "--tasks", "5", "--skip-infeasible").returncode == 0
    assert "--skip-infeasible" not in run(*arguments[:-1], "38", "--skip-infeasible").stderr
