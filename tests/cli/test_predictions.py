"""`--save-predictions`, and the figures that are drawn of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fsbench.report.plots.predictions import draw_calibration, draw_confusion
from fsbench.report.plots.style import save
from fsbench.results.predictions import Reliability, load_predictions, predictions_path
from fsbench.results.record import load_record
from tests.cli import run

COMPARE = ("compare", "--methods", "ncm,bavardage", "--shots", "1", "--tasks", "20", "--save-predictions")


def test_predictions_of_a_comparison_are_drawn(folder: Path) -> None:
    first = run(*COMPARE[:-1])
    done = run(*COMPARE)
    assert (done.returncode, done.stdout) == (0, first.stdout)
    paths = sorted((folder / "results").glob("*.json"))
    assert len(paths) == 6
    for path in paths:
        record = load_record(path)
        assert load_predictions(predictions_path(path), record).correct.tolist() == record.correct
    drawn = run("plot", "confusion", "--method", "bavardage", "--out", "confusion.svg")
    assert (drawn.returncode, drawn.stderr) == (0, "Wrote confusion.svg.\n")
    text = Path("confusion.svg").read_text()
    assert "bavardage on synthetic none, unbalanced" in text
    assert all(f"novel{number:02d}" in text for number in range(10))
    drawn = run("plot", "calibration", "--out", "calibration.svg")
    assert (drawn.returncode, drawn.stderr) == (0, "Wrote calibration.svg.\n")
    text = Path("calibration.svg").read_text()
    assert "<!-- bavardage: ECE" in text
    assert "balanced 1-shot" in text
    one = run("plot", "confusion", str(paths[0]), "--out", "one.png")
    assert (one.returncode, Path("one.png").exists()) == (0, True)


@pytest.mark.usefixtures("folder")
def test_what_is_missing_is_said() -> None:
    run(*COMPARE[:-1])
    for figure in ("confusion", "calibration"):
        done = run("plot", figure)
        assert done.returncode == 1
        assert "There are no predictions in results.\nWrite them" in done.stderr
    run("solve", "--method", "ncm", "--shots", "1", "--tasks", "9", "--save-predictions")
    done = run("plot", "confusion", "--method", "ncn")
    assert (done.returncode, "Did you mean 'ncm'?" in done.stderr) == (1, True)
    path = next(Path("results").glob("*-ncm-*.h5"))
    path.write_bytes(path.read_bytes()[:-1])
    assert "not as it was written" in run("plot", "confusion", "--method", "ncm").stderr


def test_recorded_cells_of_a_dry_run_have_their_predictions(folder: Path) -> None:
    (folder / "study.toml").write_text("[solve]\nshots = 1\ntasks = 6\nsave_predictions = true\n")
    run("solve", "--shots", "1", "--tasks", "6")
    assert "2 cells: 0 recorded" in run("run", "study.toml", "--dry-run").stdout
    run("run", "study.toml")
    assert "2 cells: 2 recorded" in run("run", "study.toml", "--dry-run").stdout


@pytest.mark.parametrize("width", ["column", "page"])
@pytest.mark.parametrize("classes", [2, 20, 160])
def test_any_number_of_classes_has_room(classes: int, width: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).uniform(0, 30, size=(classes, classes))
    values[0, 1] = np.nan
    names = [f"class number {number} with a long name $" for number in range(classes)]
    figure = draw_confusion(values, names, "Title", width)  # type: ignore[arg-type]
    save(figure, tmp_path / "a.svg")  # a layout without room for its axes is a warning, and so an error here
    assert len(figure.axes[0].texts) == (classes**2 - 1 if classes < 25 and (width, classes) != ("column", 20) else 0)


@pytest.mark.parametrize("settings", [1, 3, 5])
def test_calibration_draws_bins_with_queries_and_leaves_gaps(settings: int, tmp_path: Path) -> None:
    counts = np.zeros(15, dtype=np.int64)
    counts[[4, 14]] = [500, 9500]
    middle = np.where(counts > 0, 100 * (np.arange(15) + 0.5) / 15, np.nan)
    found = Reliability(counts, middle, np.where(counts > 0, 50.0, np.nan), 12.34)
    panels = {f"setting {number}": {"ncm": found} for number in range(settings)}
    panels["setting 0"]["mine"] = found
    for width in ("column", "page"):
        figure = draw_calibration(panels, "Title", width)
        save(figure, tmp_path / "a.svg")
        assert sum(axes.get_visible() for axes in figure.axes) == 2 * settings
        assert np.shape(figure.axes[0].lines[1].get_xydata()) == (2, 2)
    text = (tmp_path / "a.svg").read_text()
    assert f"ncm: ECE {', '.join(['12.3'] * settings)}" in text
    assert f"mine: ECE {', '.join(['12.3', *['–'] * (settings - 1)])}" in text
