"""`fsbench plot` and `fsbench report`."""

import re
from pathlib import Path

import pytest

from tests.cli import run, succeed
from tests.records import make_record, store


@pytest.fixture(autouse=True)
def _records(here: Path) -> None:
    """Two methods on one list of tasks, a third on another."""
    store(here / "results", *(make_record(method) for method in ("ncm", "soft-kmeans")))
    store(here / "results", make_record("pt-map", tasks=20, seed=1))


def test_a_figure_of_most_or_of_chosen_records_is_written_in_the_format_of_its_ending(here: Path) -> None:
    done = run("plot", "dots", "--out", "dots.svg")
    assert "Plotting the runs over 40 tasks, seed 0; pass record files to choose others (20 tasks, " in done.stderr
    assert "Wrote dots.svg" in done.stderr
    (chosen,) = (here / "results").glob("*pt-map*")
    for line in (f"dots {chosen} --width column", f"dots {chosen} --out figures/d.pdf"):
        done = run("plot", *line.split(), "--quiet")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for out, start in (("dots.svg", b"<?xml"), ("dots.png", b"\x89PNG"), ("figures/d.pdf", b"%PDF")):
        assert (here / out).read_bytes().startswith(start)


def test_a_report_of_all_records_leaves_out_a_broken_sweep(here: Path) -> None:
    store(here / "more", make_record("tim-gd", seed=4))
    (here / "results" / "sweeps").mkdir()
    (here / "results" / "sweeps" / "broken.json").write_text("{")
    done = succeed("report", "results", "more", "--baseline", "ncm", "--title", "Mine & yours")
    assert "broken.json is damaged: it is not JSON as fsbench writes it. It is left out." in done.stderr
    text = (here / "report.html").read_text(encoding="utf-8")
    assert "<h1>Mine &amp; yours</h1>" in text
    assert len(re.findall("class=.ranking", text)) == 3


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("plot dots --out d.gif", "A figure file ends in .png, .pdf, .svg, got 'd.gif'"),
        ("plot dots --baseline ncmm", "Did you mean 'ncm'"),
        ("report --results-dir nowhere", "no records in nowhere/"),
    ],
)
def test_what_cannot_be_done_is_said_and_leaves_nothing(line: str, words: str, here: Path) -> None:
    done = run(*line.split())
    assert done.returncode == 1
    assert words in done.stderr
    assert [path.name for path in here.iterdir()] == ["results"]
