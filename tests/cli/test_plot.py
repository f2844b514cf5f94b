from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli import run

if TYPE_CHECKING:
    from tests.synthetic import Features

SIGNATURES = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


@pytest.fixture
def folder(features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    features.write(tmp_path / "features" / "synthetic-none.h5")
    return tmp_path


@pytest.mark.parametrize(("kind", "ending"), [("simplex", "png"), ("task", "pdf"), ("spectrum", "svg")])
def test_a_figure_is_written_in_the_format_of_its_ending(folder: Path, kind: str, ending: str) -> None:
    done = run("plot", kind, "--out", f"figures/mine.{ending}")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Wrote figures/mine." in done.stderr
    assert (folder / "figures" / f"mine.{ending}").read_bytes().startswith(SIGNATURES[ending])


@pytest.mark.usefixtures("folder")
def test_a_figure_has_a_name_without_being_given_one() -> None:
    assert run("plot", "spectrum", "features/synthetic-none.h5", "--quiet").stderr == ""
    assert Path("spectrum.png").exists()


@pytest.mark.usefixtures("folder")
def test_every_option_reaches_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    monkeypatch.setattr("fsbench.cli.plot.save", lambda figure, out: None)
    monkeypatch.setattr(
        "fsbench.cli.plot.draw_task", lambda task, views, width: seen.append(task.assignments.tobytes())
    )
    different = [
        (), ("--task", "1"), ("--seed", "1"), ("--balanced",), ("--alpha", "9"), ("--shots", "2"), ("--ways", "4"),
        ("--split", "val"), ("--variant", "released"), ("--t-km", "3"), ("--tau", "1"), ("--sigma", "3"),
        ("--steps", "1"), ("--set", "km_steps=2"), ("--tau", "learned"), ("--t-vb", "1"), ("--s-max", "1"),
        ("--protocol", "veilleux"), ("--queries", "29"),
    ]  # fmt: skip
    for options in different:
        assert run("plot", "task", "--queries", "30", *options).returncode == 0
    assert len(set(seen)) == len(different)


@pytest.mark.usefixtures("folder")
def test_every_option_reaches_the_simplex(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, int]] = []
    monkeypatch.setattr("fsbench.cli.plot.save", lambda figure, out: None)
    monkeypatch.setattr(
        "fsbench.cli.plot.draw_simplex", lambda task, root, width: seen.append((task.assignments.tobytes(), root))
    )
    different = [
        (), ("--task", "1"), ("--seed", "1"), ("--balanced",), ("--alpha", "9"), ("--shots", "2"), ("--queries", "29"),
        ("--split", "val"), ("--variant", "released"), ("--t-km", "3"), ("--tau", "1"), ("--sigma", "3"),
        ("--steps", "1"), ("--set", "km_steps=2"), ("--t-vb", "1"), ("--s-max", "1"), ("--protocol", "veilleux"),
        ("--root", "1"),
    ]  # fmt: skip
    for options in different:
        assert run("plot", "simplex", "--queries", "30", *options).returncode == 0
    assert len(set(seen)) == len(different)
    assert {root for _, root in seen} == {1, 4}


def test_one_file_is_shown_and_that_is_said(folder: Path, features: Features) -> None:
    features.write(folder / "features" / "more-none.h5", dataset="more")
    done = run("plot", "simplex")
    assert "Plotting a task of features/more-none.h5, the first of 2 feature files" in done.stderr
    assert run("plot", "spectrum", "--out", "both.svg").returncode == 0
    text = Path("both.svg").read_text()
    assert "<!-- more-none: effective rank" in text
    assert "<!-- synthetic-none: effective rank" in text


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("simplex", "--out", "a.jpg"), "A figure file ends in .png, .pdf, .svg, got 'a.jpg'"),
        (("task", "--out", "features"), "A figure file ends in"),
        (("spectrum", "--out", "a.h5"), "A figure file ends in"),
        (("simplex", "nothing.h5"), "No such file: nothing.h5"),
        (("task", "--ways", "2"), "span a line"),
        (("task", "--ways", "11"), "11 ways asked for, but the split has 10 classes"),
        (("task", "--shots", "0"), "shots of at least 1"),
        (("simplex", "--alpha", "0"), "must be positive and finite, got 0.0"),
        (("simplex", "--split", "test"), "Unknown split 'test'"),
        (("simplex", "--t-vb", "3", "--sigma", "3", "--tau", "1"), "a value was given in both"),
        (("simplex", "--set", "sgima=3"), "Unknown parameter of bavardage 'sgima'"),
        (("spectrum", "--sigma", "0"), "sigma must be a positive number"),
        (("spectrum", "--sigma", "3", "--s-max", "2"), "a value was given in both"),
    ],
)
def test_errors_are_sentences_without_traceback(arguments: tuple[str, ...], words: str) -> None:
    done = run("plot", *arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stdout == ""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "arguments", [("simplex", "--balanced", "--alpha", "2"), ("task", "--task", "-1"), ("simplx",)]
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    assert run("plot", *arguments).returncode == 2


@pytest.mark.usefixtures("folder")
def test_options_of_solve_that_are_set_by_name_too() -> None:
    """--set of a parameter that has an option of its own, and an α of zero, which is not the default."""
    done = run("solve", "--set", "sigma=7", "--shots", "1", "--tasks", "3", "--json")
    assert '"sigma": 7' in done.stdout
    assert "must be positive and finite" in run("solve", "--alpha", "0", "--tasks", "3").stderr
