"""Words that cannot be obeyed are refused in a sentence, with a status, before anything is computed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fsbench.evaluation.run
from tests.cli import run

pytestmark = pytest.mark.usefixtures("folder")
FEW = ("--shots", "1", "--tasks", "4", "--quiet")


@pytest.fixture
def _nothing_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = "tasks were solved before the command line was checked"
    monkeypatch.setattr(fsbench.evaluation.run, "solve", lambda *arguments, **options: pytest.fail(sentence))


@pytest.mark.usefixtures("_nothing_computed")
@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("compare --out table.docx", 2, "--out: cannot write a table as .docx"),
        ("compare --out table.md --format csv", 2, "--format: csv does not fit --out table.md"),
        ("compare --settings odd", 2, "--settings: expected unbalanced, balanced or both, got 'odd'"),
        ("compare --settings balanced --alpha 3", 2, "--alpha: α has no meaning for balanced tasks"),
        ("compare --methods bavardage,bavardage:article", 2, "--methods: bavardage and bavardage:article are the same"),
        ("compare --methods ncm,bavardage --baseline ncm --fail-if-worse ncm", 2, "ncm is the baseline itself"),
        ("compare --blind --preset article", 2, "choose one of both"),
        ("compare --tune --preset article", 2, "choose one of tune and preset"),
        ("compare --tune --split val", 2, "--tune: parameters are tuned on the val classes"),
        ("solve --tasks many", 2, "--tasks: expected a whole number such as 10000 or 1e4, got 'many'"),
        ("solve --seed -1", 2, "--seed: expected at least 0, got -1"),
        ("solve --set rate", 2, "--set: expected NAME=VALUE, got 'rate'"),
        ("solve --set tau=0.5 --set tau=0.9", 2, "--set: tau is given twice: 0.5 and 0.9"),
        ("solve --method bavardage:released --set variant=article", 1, "is given by bavardage:released already"),
        ("solve --split test", 1, "has no split 'test'; it has"),
        ("solve nothing.h5", 1, "No such file: nothing.h5"),
        ("nonsense", 2, "No such command 'nonsense'"),
        ("sweep --over tau=0.1,0.2 --set tau=0.5", 2, "--over: tau has a value already, by --set"),
        ("sweep --balanced --over alpha=1,2", 2, "--over: α has no meaning for balanced tasks"),
        ("tune --over shots=1,5", 1, "shots belongs to the tasks"),
        ("extract --crops 1001", 2, "--crops: expected at most 1000"),
        ("import new=cub.plk --dataset cub --backbone rn18", 1, "'new' in 'new=cub.plk' is not a split"),
        ("train --lr nan", 2, "--lr: "),
        ("train --recipe mamml", 1, "Did you mean 'maml'"),
        ("methods ncm --protocols", 2, "choose one"),
        ("extract --dataset glyphs --out foo.txt", 2, "--out: foo.txt is neither a .h5 file nor an existing folder"),
    ],
)
def test_it_is_refused_in_one_sentence(line: str, status: int, said: str) -> None:
    done = run(*line.split())
    assert done.returncode == status, done.output
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert not done.stdout


@pytest.mark.usefixtures("_nothing_computed")
@pytest.mark.parametrize("command", ["solve", "compare", "sweep --over tau=0.1"])
def test_a_place_that_takes_no_file_is_named_first(folder: Path, command: str) -> None:
    (folder / "taken").write_text("a file\n")
    for results in ("taken/below/it", "/proc/nowhere"):
        done = run(*command.split(), *FEW, "--results-dir", results)
        assert (done.returncode, f"Could not write into {results}" in done.stderr) == (1, True)
    if command == "solve":  # which writes records alone
        return
    out = "x.csv" if command == "compare" else "x.png"
    assert "taken is a file" in run(*command.split(), *FEW, "--out", f"taken/{out}").stderr
    (folder / out).write_text('{"a": 1}')
    assert "would be replaced by something else" in run(*command.split(), *FEW, "--out", out).stderr


def test_feature_files_are_found_or_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSBENCH_FEATURES", "featurs")
    assert "No feature files in featurs, given by --features-dir or FSBENCH_FEATURES" in run("compare").stderr
    assert not (folder / "featurs").exists()
    file, again = "features/synthetic-none.h5", "features/../features/synthetic-none.h5"
    run("scatter", file)
    scatter = "features/synthetic-none.scatter.h5"  # as the shell gives it for features/*.h5
    done = run("solve", "--method", "ncm", *FEW, file, again, scatter)
    assert done.stdout == run("solve", "--method", "ncm", *FEW, file).stdout
    assert run("solve", scatter).returncode == 1


def test_help_and_version_are_no_errors() -> None:
    for words, status in ((["--help"], 0), (["--version"], 0), (["solve", "-h"], 0), ([], 2)):
        done = run(*words)
        assert (done.returncode, bool(done.stdout), done.stderr) == (status, True, "")


def test_characters_that_cannot_be_printed_are_replaced() -> None:
    done = fsbench_process("solve", "--help", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert b"Dirichlet ?" in done.stdout


def test_closed_streams_are_no_errors() -> None:
    for words, status in (("methods --protocols", 0), ("solve --nonsense", 2)):
        done = fsbench_process(*words.split(), closed=">&- 2>&-")
        assert done.returncode == status, done.stderr
        assert b"Traceback" not in done.stdout + done.stderr


def fsbench_process(*words: str, closed: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, with some streams closed."""
    command = ["sh", "-c", f'exec "$0" -m fsbench "$@" {closed}', sys.executable, *words]
    env = {**os.environ, "PYTHONPATH": str(Path(fsbench.__file__).parents[1]), **environment}
    return subprocess.run(command, capture_output=True, env=env, check=False)
