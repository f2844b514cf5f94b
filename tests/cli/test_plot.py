"""`fsbench plot` of features; figures of records are in test_records."""

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


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_a_figure_is_written_in_the_format_of_its_ending(ending: str, start: bytes) -> None:
    done = run("plot", "spectrum", "--out", f"figures/mine.{ending}")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Wrote figures/mine." in done.stderr
    assert Path(f"figures/mine.{ending}").read_bytes().startswith(start)


def test_every_feature_file_has_a_curve(folder: Path, features: Features) -> None:
    features.write(folder / "features" / "more-none.h5", dataset="more")
    assert run("plot", "spectrum", "--quiet", "--out", "both.svg").stderr == ""
    assert Path("both.svg").read_text().count("none: effective rank") == 2


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("spectrum", "--out", "a.jpg"), 1, "A figure file ends in .png, .pdf, .svg, got 'a.jpg'"),
        (("spectrum", "--out", "features"), 1, "A figure file ends in"),
        (("spectrum", "nothing.h5"), 1, "No such file: nothing.h5"),
        (("spectrum", "--sigma", "0"), 1, "sigma"),
        (("spectrm",), 2, "spectrm"),
    ],
)
def test_errors_are_sentences_without_traceback(arguments: tuple[str, ...], status: int, words: str) -> None:
    done = run("plot", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
