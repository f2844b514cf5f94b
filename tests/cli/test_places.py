"""Files and folders that cannot be read or written are named before anything is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import fsbench.evaluation.run
from tests.cli import run

if TYPE_CHECKING:
    from pathlib import Path


FEW = ("--shots", "1", "--tasks", "4", "--quiet")
COMMANDS = {
    "solve": ("solve", "--method", "ncm"),
    "compare": ("compare", "--methods", "ncm"),
    "sweep": ("sweep", "--over", "tau=0.1"),
    "tune": ("tune", "--over", "tau=0.1"),
    "ablate": ("ablate",),
}


@pytest.fixture(autouse=True)
def folder(folder: Path) -> Path:
    (folder / "taken").write_text("a file\n")
    return folder


@pytest.fixture
def nothing_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        pytest.fail("tasks were solved before the folder was looked at")

    monkeypatch.setattr(fsbench.evaluation.run, "solve_tasks", refuse)


@pytest.mark.usefixtures("nothing_computed")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("results", ["taken", "taken/below/it", "/proc/nowhere"])
def test_a_results_folder_that_takes_no_file_is_named_first(command: str, results: str) -> None:
    done = run(*COMMANDS[command], *FEW, "--results-dir", results)
    assert done.returncode == 1
    assert f"Could not write into {results}" in done.stderr
    assert ("taken is a file" in done.stderr) == results.startswith("taken")


@pytest.mark.usefixtures("nothing_computed")
@pytest.mark.parametrize(
    ("command", "option", "ending"),
    [
        ("solve", "--out", ".json"),
        ("compare", "--out", ".csv"),
        ("ablate", "--out", ".md"),
        ("sweep", "--plot", ".png"),
    ],
)
def test_a_file_that_cannot_be_written_is_named_first(folder: Path, command: str, option: str, ending: str) -> None:
    (folder / f"made{ending}").mkdir()
    (folder / f"record{ending}").write_text('{"a": 1}')
    for name, words in (
        (f"taken/t{ending}", "taken is a file"),
        (f"/proc/nowhere/t{ending}", "Could not write into /proc/nowhere"),
        (f"made{ending}", "it is a folder"),
        (f"record{ending}", "would be replaced by something else"),
    ):
        done = run(*COMMANDS[command], *FEW, option, name)
        assert done.returncode == 1, done.stderr
        assert words in done.stderr
    assert not (folder / "results").exists()


@pytest.mark.usefixtures("nothing_computed")
def test_a_folder_that_takes_no_pictures_of_a_search_is_named_first() -> None:
    assert "taken is a file" in run(*COMMANDS["tune"], *FEW, "--plot", "taken/t.png").stderr


def test_records_of_someone_else_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(*COMMANDS["compare"], *FEW)

    def refuse(**options: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert run(*COMMANDS["compare"], *FEW).stdout == first.stdout
    done = run(*COMMANDS["compare"], *FEW, "--seed", "1")
    assert "Could not write into results: Permission denied" in done.stderr


def test_what_was_tuned_cannot_be_kept_in_a_folder_of_someone_else(folder: Path) -> None:
    (folder / "features" / ".synthetic-none.tuned.json.lock").mkdir()  # nobody can make a file of that name
    done = run(*COMMANDS["tune"], *FEW)
    assert done.returncode == 0, done.stderr
    assert "will be searched again. Could not write features/synthetic-none.tuned.json" in done.stderr
    assert "Kept in" not in done.stdout
    done = run("solve", "--method", "soft-kmeans", "--tune", "--json", *FEW)
    assert done.returncode == 0, done.stderr
    assert "will be searched again" in done.stderr


@pytest.mark.parametrize("command", ["solve", "compare", "scatter"])
@pytest.mark.parametrize("name", ["featurs", "taken"])
def test_a_mistyped_feature_folder_gets_no_features(
    folder: Path, command: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"Folder not found: {name}, given by --features-dir or FSBENCH_FEATURES"
    assert words in run(command, "--features-dir", name).stderr
    monkeypatch.setenv("FSBENCH_FEATURES", name)
    assert words in run(command).stderr
    assert not (folder / "featurs").exists()


def test_the_feature_folder_does_not_matter_where_files_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSBENCH_FEATURES", "elsewhere")
    assert run(*COMMANDS["solve"], "features/synthetic-none.h5", *FEW).returncode == 0


def test_a_feature_file_that_is_given_twice_is_taken_once() -> None:
    again = "features/../features/synthetic-none.h5"
    done = run(*COMMANDS["solve"], *FEW[:-1], "features/synthetic-none.h5", again)
    assert f"{again} is given twice; it is used once" in done.stderr
    once = run(*COMMANDS["solve"], *FEW[:-1], "features/synthetic-none.h5")
    assert done.stdout == once.stdout


@pytest.mark.parametrize("name", ["foo.txt", "foo.hdf5", "taken.npz"])
def test_features_are_not_extracted_into_a_folder_with_the_name_of_a_file(folder: Path, name: str) -> None:
    done = run("extract", "--dataset", "glyphs", "--out", name)
    assert done.returncode == 2
    assert "--out" in done.stderr
    assert f"{name} is neither a .h5 file nor an existing folder" in done.stderr
    assert not (folder / name).exists()
