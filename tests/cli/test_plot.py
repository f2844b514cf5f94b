"""`fsbench plot` of features and of one task; figures of records are in test_records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli import run

if TYPE_CHECKING:
    from tests.synthetic import Features


@pytest.fixture(autouse=True)
def folder(features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    features.write(tmp_path / "features" / "synthetic-none.h5")
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "ending", "start"),
    [("simplex", "png", b"\x89PNG"), ("simplex", "pdf", b"%PDF"), ("spectrum", "svg", b"<?xml")],
)
def test_a_figure_is_written_in_the_format_of_its_ending(kind: str, ending: str, start: bytes) -> None:
    done = run("plot", kind, "--out", f"figures/mine.{ending}")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Wrote figures/mine." in done.stderr
    assert Path(f"figures/mine.{ending}").read_bytes().startswith(start)


def test_every_option_reaches_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[bytes, int]] = []
    monkeypatch.setattr("fsbench.cli.plot.save", lambda figure, out: None)
    monkeypatch.setattr(
        "fsbench.cli.plot.draw_simplex", lambda task, root, width: drawn.append((task.assignments.tobytes(), root))
    )
    options = [
        (), ("--task", "1"), ("--seed", "1"), ("--balanced",), ("--alpha", "9"), ("--shots", "2"), ("--queries", "29"),
        ("--split", "val"), ("--variant", "released"), ("--t-km", "3"), ("--tau", "1"), ("--sigma", "3"),
        ("--steps", "1"), ("--set", "km_steps=2"), ("--t-vb", "1"), ("--s-max", "1"), ("--protocol", "veilleux"),
        ("--tau", "learned"), ("--root", "1"),
    ]  # fmt: skip
    for words in options:
        assert run("plot", "simplex", "--queries", "30", *words).returncode == 0
    assert len(set(drawn)) == len(options)
    assert [root for _, root in drawn] == [4] * (len(options) - 1) + [1]


def test_one_file_is_shown_and_a_note_says_so(folder: Path, features: Features) -> None:
    features.write(folder / "features" / "more-none.h5", dataset="more")
    done = run("plot", "simplex")
    assert "Plotting a task of features/more-none.h5, the first of 2 feature files" in done.stderr
    assert Path("simplex.png").exists()
    assert run("plot", "spectrum", "--out", "both.svg", "--quiet").stderr == ""
    assert Path("both.svg").read_text().count("none: effective rank") == 2


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("simplex", "--out", "a.jpg"), 1, "A figure file ends in .png, .pdf, .svg, got 'a.jpg'"),
        (("spectrum", "--out", "features"), 1, "A figure file ends in"),
        (("simplex", "nothing.h5"), 1, "No such file: nothing.h5"),
        (("simplex", "--alpha", "0"), 1, "must be positive and finite, got 0.0"),
        (("simplex", "--split", "test"), 1, "Unknown split 'test'"),
        (("simplex", "--t-vb", "3", "--sigma", "3", "--tau", "1"), 1, "in both"),
        (("simplex", "--set", "sgima=3"), 1, "Unknown parameter of bavardage 'sgima'"),
        (("spectrum", "--sigma", "0"), 1, "sigma"),
        (("simplex", "--balanced", "--alpha", "2"), 2, "--alpha"),
        (("simplex", "--task", "-1"), 2, "--task"),
        (("simplx",), 2, "simplx"),
    ],
)
def test_errors_are_sentences_without_traceback(arguments: tuple[str, ...], status: int, words: str) -> None:
    done = run("plot", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
