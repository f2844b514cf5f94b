from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.patches import Rectangle, StepPatch
from scipy import stats

from fsbench.errors import FsbenchError
from fsbench.methods.registry import METHODS
from fsbench.report.plots.comparison import draw_bars, draw_differences, paired_runs
from fsbench.report.plots.style import save, svg_text
from fsbench.results.collect import collect
from tests.records import four_settings, make_record

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fsbench.results.comparison import Comparison

NAMES = ("ncm", "pt-map", "soft-kmeans", "bavardage")


@pytest.fixture(scope="module")
def table() -> Comparison:
    records = [record for n, name in enumerate(NAMES) for record in four_settings(name, 0.6 + 0.03 * n)]
    records.append(make_record("ncm", 0.5, features="e" * 64, dataset="a$b$ <i>&"))
    return collect(records)[0]


@pytest.fixture(scope="module")
def panels(table: Comparison) -> dict[tuple[str, str], Axes]:
    return drawn_in(draw_bars(table))


@pytest.fixture(scope="module")
def small() -> Comparison:
    return collect([make_record("ncm"), make_record("soft-kmeans", dataset="a$b$ <i>&", features="e" * 64)])[0]


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def drawn_in(figure: Figure) -> dict[tuple[str, str], Axes]:
    """Panels by feature file and setting."""
    found = {}
    for panel in figure.subfigs:
        for axes in panel.axes:
            found[panel.get_suptitle(), axes.get_title(loc="left")] = axes
    return found


def test_bars_show_every_mean_and_interval_once(table: Comparison, panels: dict[tuple[str, str], Axes]) -> None:
    assert len(panels) == 2 * 4
    axes = panels["glyphs rn12, 40 tasks", "balanced 5-shot"]
    cells = [table.groups[1].cells[name, table.columns[3]] for name in NAMES]
    for place, cell in enumerate(cells):
        assert cell.record is not None
        assert cell.record.ci95 is not None
        assert f"{cell.record.accuracy:.2f}" in texts(axes)[place]
        assert ("▲" in texts(axes)[place]) == cell.best
        assert ("*" in texts(axes)[place]) == cell.tied
        ends = np.ravel(axes.containers[3 * place + 2].lines[2][0].get_segments())[::2]  # type: ignore[attr-defined]
        np.testing.assert_allclose(
            ends, [cell.record.accuracy - cell.record.ci95, cell.record.accuracy + cell.record.ci95]
        )
        bar = next(patch for patch in axes.patches[2 * place :] if isinstance(patch, Rectangle))
        assert bar.get_x() + bar.get_width() == pytest.approx(cell.record.accuracy)
    first = panels["glyphs rn12, 40 tasks", "unbalanced α=2 1-shot"]
    assert [label.get_text() for label in first.get_yticklabels()] == list(NAMES)
    assert axes.get_xlabel() == "accuracy (%)"


def test_every_dot_lies_within_the_axis(panels: dict[tuple[str, str], Axes]) -> None:
    for axes in panels.values():
        low, high = axes.get_xlim()
        for container in axes.containers[2::3]:
            (value,) = container.lines[0].get_xdata()  # type: ignore[attr-defined]
            assert low < value < high


def test_a_setting_without_runs_says_so(panels: dict[tuple[str, str], Axes]) -> None:
    assert panels["a$b$ <i>& rn12, 40 tasks", "balanced 5-shot"].get_xlabel() == "no runs"
    assert not panels["a$b$ <i>& rn12, 40 tasks", "balanced 5-shot"].texts


@pytest.mark.parametrize("methods", [1, 17])
def test_bars_of_any_number_of_methods(methods: int, tmp_path: Path) -> None:
    names = [*METHODS, "a method of a rather long name"][:methods]
    (found,) = collect([make_record(name, 0.5, tasks=1 if methods == 1 else 40) for name in names])
    save(draw_bars(found), tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 5_000


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("PDF", b"%PDF"), ("svg", b"<?xml")])
def test_the_ending_says_the_format_and_the_same_picture_has_the_same_bytes(
    small: Comparison, tmp_path: Path, ending: str, magic: bytes
) -> None:
    written = []
    for name in "ab":
        save(draw_bars(small), tmp_path / f"{name}.{ending}")
        written.append((tmp_path / f"{name}.{ending}").read_bytes())
    assert written[0].startswith(magic)
    # Names of clip paths in SVG hold digits that are not drawn.
    first, second = (re.sub(rb"\bp[0-9a-f]{10}\b", b"", text) for text in written)
    assert first == second


@pytest.mark.parametrize("name", ["bars.jpg", "bars", ".png"])
def test_other_endings_are_refused(name: str, small: Comparison, tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match=r"\.png, \.pdf, \.svg"):
        save(draw_bars(small), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_svg_of_a_page_has_letters_and_no_background(small: Comparison) -> None:
    text = svg_text(draw_bars(small))
    root = ElementTree.fromstring(text)
    words = {"".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")}
    assert {"soft-kmeans", "accuracy (%)", "a$b$ <i>& rn12, 40 tasks"} <= words
    assert "#ffffff" not in text


def hand_made(correct: list[int], baseline: list[int], queries: int = 75) -> Comparison:
    tasks = len(correct)
    return collect(
        [
            make_record("ncm", correct=correct, tasks=tasks, queries=queries),
            make_record("soft-kmeans", correct=baseline, tasks=tasks, queries=queries),
        ]
    )[0]


def test_differences_are_those_of_the_tasks() -> None:
    (pair,) = paired_runs(hand_made([60, 50, 40, 75, 75], [57, 50, 46, 74, 74]), "ncm", "soft-kmeans")
    points = np.array([3, 0, -6, 1, 1]) * 100 / 75
    np.testing.assert_allclose(pair.values, points)
    assert (pair.share("better"), pair.share("equal"), pair.share("worse")) == (60.0, 20.0, 20.0)
    assert pair.interval.mean == pytest.approx(points.mean())
    assert pair.interval.half_width == pytest.approx(stats.t.ppf(0.975, 4) * points.std(ddof=1) / 5**0.5)


@pytest.mark.parametrize("queries", [3, 75, 150, 1000])
def test_histograms_count_every_task_once_on_its_own_side(queries: int) -> None:
    rng = np.random.default_rng(0)
    correct, baseline = rng.integers(0, queries + 1, size=(2, 60)).tolist()
    baseline[:5] = correct[:5]
    pairs = paired_runs(hand_made(correct, baseline, queries), "ncm", "soft-kmeans")
    (axes,) = draw_differences(pairs, "ncm", "soft-kmeans").axes
    layers: list[Any] = [patch.get_data() for patch in axes.patches if isinstance(patch, StepPatch)]
    heaps = layers[::2]  # each is drawn in two
    areas = [float(np.sum(heap.values - heap.baseline)) for heap in heaps]
    assert areas == pytest.approx([pairs[0].share(kind) for kind in ("worse", "equal", "better")])
    for heap in heaps:
        steps = (heap.edges / pairs[0].step) % 1
        np.testing.assert_allclose(steps, 0.5)  # no difference that can occur lies on an edge


def test_a_panel_says_mean_interval_and_shares() -> None:
    pairs = paired_runs(hand_made([60, 50, 40, 75], [61, 50, 46, 74]), "ncm", "soft-kmeans")
    title = draw_differences(pairs, "ncm", "soft-kmeans").axes[0].get_title(loc="left")
    assert title.splitlines()[:2] == ["glyphs rn12", "unbalanced α=2 1-shot"]
    assert f"mean −2.00 ± {pairs[0].interval.half_width:.2f}" in title
    assert "better 25 %, equal 25 %, worse 50 %" in title


def test_only_settings_where_both_ran_are_paired(table: Comparison) -> None:
    assert len(paired_runs(table, "bavardage", "ncm")) == 4  # not in the second feature file
    assert paired_runs(table, "bavardage", "tim-gd") == []


@pytest.mark.parametrize("settings", [1, 4, 9])
def test_panels_wrap_after_four(settings: int) -> None:
    records = [make_record(name, shots=shots) for name in ("ncm", "pt-map") for shots in range(1, settings + 1)]
    pairs = paired_runs(collect(records)[0], "pt-map", "ncm")
    figure = draw_differences(pairs, "pt-map", "ncm")
    assert sum(bool(axes.patches) for axes in figure.axes) == settings
    rows = {axes.get_subplotspec().rowspan.start for axes in figure.axes}  # type: ignore[union-attr]
    assert len(rows) == math.ceil(settings / 4)


def test_one_task_or_no_difference_at_all_can_be_drawn(tmp_path: Path) -> None:
    for number, (correct, baseline) in enumerate([([50], [40]), ([50, 60], [50, 60])]):
        pairs = paired_runs(hand_made(correct, baseline), "ncm", "soft-kmeans")
        save(draw_differences(pairs, "ncm", "soft-kmeans"), tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").exists()
