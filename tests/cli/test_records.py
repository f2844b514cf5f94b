"""`fsbench plot` and `fsbench report`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from fsbench.results.studies import Curve, Panel, Point, Sweep, save_sweep
from tests.cli import run
from tests.records import make_record, store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.synthetic import Features


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two methods on one list of tasks, a third on another."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    store(tmp_path / "results", *(make_record(method) for method in ("ncm", "soft-kmeans")))
    store(tmp_path / "results", make_record("pt-map", tasks=20, seed=1))
    return tmp_path


def test_dots_show_the_comparison_of_most_tasks_and_name_the_others(folder: Path) -> None:
    done = run("plot", "dots", "--out", "dots.svg")
    assert done.returncode == 0
    assert done.stdout == ""
    assert (
        "Plotting the runs over 40 tasks, seed 0; pass record files to choose others (20 tasks, seed 1)." in done.stderr
    )
    assert "Wrote dots.svg" in done.stderr
    assert (folder / "dots.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "out", "start"),
    [
        ("dots --width column", "dots.png", b"\x89PNG"),
        ("differences ncm --out figures/d.pdf", "figures/d.pdf", b"%PDF"),
        ("spectrum --out s.svg", "s.svg", b"<?xml"),
    ],
)
def test_a_figure_is_written_in_the_format_of_its_ending(
    folder: Path, features: Features, words: str, out: str, start: bytes
) -> None:
    for name in ("one", "two"):
        features.write(folder / "features" / f"{name}.h5")
    given = [str(path) for path in (folder / "results").glob("*pt-map*")] if words.startswith("dots") else []
    done = run("plot", *words.split(), *given, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (folder / out).read_bytes().startswith(start)
    assert out != "s.svg" or b"two: effective rank" in (folder / out).read_bytes()  # one line for each file


def test_a_report_of_all_records(folder: Path) -> None:
    store(folder / "more", make_record("tim-gd", seed=4))
    done = run("report", "results", "more", "--baseline", "ncm", "--title", "Mine & yours")
    assert done.returncode == 0
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "<h1>Mine &amp; yours</h1>" in text
    assert len(re.findall("class=.accuracies", text)) == len(re.findall("class=.leaderboard", text)) == 3


def test_a_broken_sweep_is_left_out_of_a_report(folder: Path) -> None:
    curve = Curve("c", (Point(1, 50.0, 1.0), Point(5, 60.0, 1.0)))
    save_sweep(
        folder / "results/sweeps/sound.json", Sweep("sound", "A sound one", "s", (Panel("shots", "p", (curve,)),))
    )
    (folder / "results/sweeps/broken.json").write_text("{")
    done = run("report")
    assert done.returncode == 0, done.stderr
    assert "broken.json is damaged: it is not JSON as fsbench writes it. It is left out." in done.stderr
    assert "A sound one" in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plot", "differences", "ncm", "--out", "d.gif"), "A figure file ends in .png, .pdf, .svg, got 'd.gif'"),
        (("plot", "spectrum", "nothing.h5"), "No such file: nothing.h5"),
        (("plot", "differences", "ncmm"), "Did you mean 'ncm'"),
        (("plot", "dots", "--baseline", "ncmm"), "Did you mean 'ncm'"),
        (("plot", "differences", "pt-map"), "did not run on the same tasks"),
        (("plot", "dots", "none.json"), "No such file: none.json"),
        (("report", "--results-dir", "nowhere"), "no records in nowhere/"),
        (("report", "--baseline", "soft-kmean"), "Did you mean 'soft-kmeans'"),
    ],
)
def test_what_cannot_be_done_is_said_and_leaves_nothing(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert [path.name for path in folder.iterdir()] == ["results"]
