from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.mathtext import MathTextParser
from matplotlib.patches import StepPatch
from matplotlib.text import Text
from scipy import stats

from fsbench.errors import FsbenchError
from fsbench.methods.registry import METHODS
from fsbench.report.plots.comparison import clipped_axis, draw_differences, draw_dots, draw_speed, paired_runs
from fsbench.report.plots.style import WIDTHS, mathematics, save, svg_text
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
    return drawn_in(draw_dots(table))


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


def dots_in(axes: Axes) -> dict[str, tuple[float, float, bool]]:
    """Mean, half-width and filling by label."""
    labels = [label.get_text() for label in axes.get_yticklabels()]
    found = {}
    for dot in axes.containers:
        assert isinstance(dot, ErrorbarContainer)
        line: Any = dot.lines[0]
        bars: Any = dot.lines[2]
        ends = np.ravel(bars[0].get_segments())[::2] if bars else np.zeros(2)
        label = labels[int(line.get_ydata()[0])]
        found[label] = float(line.get_xdata()[0]), float(ends[1] - ends[0]) / 2, line.get_markerfacecolor() != "white"
    return found


def test_dots_show_every_mean_and_interval_once(table: Comparison, panels: dict[tuple[str, str], Axes]) -> None:
    assert len(panels) == 2 * 4
    shown = dots_in(panels["glyphs rn12, 40 tasks", "unbalanced α=2\n1-shot"])
    for name in NAMES:
        cell = table.groups[1].cells[name, table.columns[0]]
        assert cell.record is not None
        assert shown[name] == pytest.approx((cell.record.accuracy, cell.record.ci95, cell.best or cell.tied))
    assert [*shown] == [*NAMES]  # drawn in any order
    labels = panels["glyphs rn12, 40 tasks", "unbalanced α=2\n1-shot"].get_yticklabels()
    assert [label.get_text() for label in labels] == [*NAMES][::-1]  # the best first


def test_panels_of_a_feature_file_share_their_axis_and_hold_every_dot(panels: dict[tuple[str, str], Axes]) -> None:
    for place in {place for place, _ in panels}:
        ends = {axes.get_xlim() for (name, _), axes in panels.items() if name == place}
        assert len(ends) == 1
        ((low, high),) = ends
        for (name, _), axes in panels.items():
            for dot in axes.containers if name == place else []:
                assert isinstance(dot, ErrorbarContainer)
                line: Any = dot.lines[0]
                assert low < line.get_xdata()[0] < high


def test_what_lies_far_below_is_clipped_and_marked_with_its_number() -> None:
    records = [make_record(name, 0.8) for name in NAMES] + [make_record("paddle", 0.3)]
    (found,) = collect(records)
    low, high = clipped_axis(records)
    assert 70 < low < high < 90
    (axes,) = draw_dots(found).subfigs[0].axes
    assert len(axes.containers) == 4
    assert [text for text in texts(axes) if text.startswith("◂")] == [f"◂ {records[-1].accuracy:.1f} !"]
    assert clipped_axis(records[-1:])[0] < records[-1].accuracy  # alone it is no outlier


def test_differences_to_a_baseline_are_paired() -> None:
    (found,) = collect([make_record(name, right) for name, right in (("ncm", 0.5), ("soft-kmeans", 0.7))])
    (axes,) = draw_dots(found, "page", "soft-kmeans").subfigs[0].axes
    cell = found.groups[0].cells["ncm", found.columns[0]]
    assert cell.difference is not None
    assert dots_in(axes) == {"ncm": pytest.approx((cell.difference.mean, cell.difference.half_width, True))}
    with pytest.raises(FsbenchError, match="ran on the same tasks as pt-map"):
        draw_dots(found, "page", "pt-map")


@pytest.mark.parametrize("width", ["column", "page"])
def test_figures_have_their_true_size_and_legible_letters(table: Comparison, width: Any, tmp_path: Path) -> None:
    pairs = paired_runs(table, "bavardage", "ncm")
    figures = [
        draw_dots(table, width),
        draw_dots(table, width, "ncm"),
        draw_speed(table, width),
        draw_differences(pairs, "bavardage", "ncm", width),
    ]
    for number, figure in enumerate(figures):
        assert figure.get_figwidth() == WIDTHS[width]
        save(figure, tmp_path / f"{number}.pdf")
        box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", (tmp_path / f"{number}.pdf").read_bytes())
        assert box
        assert float(box[1]) == pytest.approx(72 * WIDTHS[width], abs=0.1)
        sizes = [text.get_fontsize() for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]
        assert min(map(float, sizes)) >= 7


def test_symbols_are_set_as_mathematics_and_names_with_dollars_are_not() -> None:
    assert mathematics("unbalanced α=2 1-shot") == r"unbalanced $\alpha = 2$ 1-shot"
    assert mathematics("T_km = 50") == r"$T_\mathrm{km} = 50$"
    assert mathematics("α_o") == r"$\alpha_o$"
    assert mathematics("α of a$b$") == "α of a$b$"
    assert mathematics("alpha-tim_x") == "alpha-tim_x"
    MathTextParser("path").parse(mathematics("T_km T_vb s_max S_w α_o β_o α* α τ σ λ min(1/√λ, σ) d²"))


def test_speed_is_that_of_the_runs_on_a_logarithmic_axis() -> None:
    records = [make_record(name, 0.7, seconds=seconds) for name, seconds in (("ncm", 0.01), ("tim-gd", 10.0))]
    (axes,) = draw_speed(collect(records)[0]).axes
    assert axes.get_xscale() == "log"
    points = [np.ravel(line.get_xydata()) for line in axes.get_lines() if len(np.ravel(line.get_xdata())) == 1]
    np.testing.assert_allclose(points, [(record.tasks_per_second, record.accuracy) for record in records])


def test_a_setting_without_runs_says_so(panels: dict[tuple[str, str], Axes]) -> None:
    assert panels["a$b$ <i>& rn12, 40 tasks", "balanced\n5-shot"].get_xlabel() == "no runs"
    assert not panels["a$b$ <i>& rn12, 40 tasks", "balanced\n5-shot"].containers


@pytest.mark.parametrize("methods", [1, 17])
def test_dots_of_any_number_of_methods(methods: int, tmp_path: Path) -> None:
    names = [*METHODS, "a method of a rather long name"][:methods]
    (found,) = collect([make_record(name, 0.5, tasks=1 if methods == 1 else 40) for name in names])
    save(draw_dots(found), tmp_path / "dots.png")
    assert (tmp_path / "dots.png").stat().st_size > 5_000


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("PDF", b"%PDF"), ("svg", b"<?xml")])
def test_the_ending_says_the_format_and_the_same_picture_has_the_same_bytes(
    small: Comparison, tmp_path: Path, ending: str, magic: bytes
) -> None:
    written = []
    for name in "ab":
        save(draw_dots(small), tmp_path / f"{name}.{ending}")
        written.append((tmp_path / f"{name}.{ending}").read_bytes())
    assert written[0].startswith(magic)
    # Names of clip paths in SVG hold digits that are not drawn.
    first, second = (re.sub(rb"\bp[0-9a-f]{10}\b", b"", text) for text in written)
    assert first == second


@pytest.mark.parametrize("name", ["dots.jpg", "dots", ".png"])
def test_other_endings_are_refused(name: str, small: Comparison, tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match=r"\.png, \.pdf, \.svg"):
        save(draw_dots(small), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_svg_of_a_page_has_letters_and_no_background(small: Comparison) -> None:
    text = svg_text(draw_dots(small))
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
    assert title.splitlines()[0] == "unbalanced α=2 1-shot"
    assert f"mean −2.00 ± {pairs[0].interval.half_width:.2f}" in title
    assert "better 25, equal 25, worse 50 %" in title
    assert "ncm minus soft-kmeans, task by task, on glyphs rn12" in draw_differences(
        pairs, "ncm", "soft-kmeans"
    ).get_suptitle().replace("\n", " ")


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
