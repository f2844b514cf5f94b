"""Figures: what is drawn where, at which size, and that the same figure is the same file."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.text import Text

from fsbench.errors import FsbenchError
from fsbench.report.plots.comparison import clipped_axis, draw_dots
from fsbench.report.plots.studies import draw_spectra
from fsbench.report.plots.style import WIDTHS, line_look, save, short_name
from fsbench.results.collect import collect
from fsbench.results.comparison import Comparison
from fsbench.results.statistics import interval
from tests.records import four_settings, make_record
from tests.synthetic import Features, make_features

NAMES = ("ncm", "pt-map", "soft-kmeans", "bavardage")


@pytest.fixture(scope="module")
def table() -> Comparison:
    records = [record for n, name in enumerate(NAMES) for record in four_settings(name, 0.6 + 0.03 * n)]
    records.append(make_record("ncm", 0.5, features="e" * 64, dataset="a$b$ <i>&"))
    return collect(records)[0]


@pytest.fixture(scope="module")
def panels(table: Comparison) -> dict[tuple[str, str], Axes]:
    """By feature file and setting."""
    parts = draw_dots(table).subfigs
    return {(part.get_suptitle(), axes.get_title(loc="left")): axes for part in parts for axes in part.axes}


def dots_in(axes: Axes) -> dict[str, tuple[float, float, bool]]:
    """Mean, half-width and filling by label."""
    labels = [label.get_text() for label in axes.get_yticklabels()]
    dots = {}
    for dot in axes.containers:
        assert isinstance(dot, ErrorbarContainer)
        line: Any = dot.lines[0]
        bars: Any = dot.lines[2]
        ends = np.ravel(bars[0].get_segments())[::2] if bars else np.zeros(2)
        label = labels[int(line.get_ydata()[0])]
        dots[label] = float(line.get_xdata()[0]), float(ends[1] - ends[0]) / 2, line.get_markerfacecolor() != "white"
    return dots


def test_dots_show_every_mean_and_interval_once(table: Comparison, panels: dict[tuple[str, str], Axes]) -> None:
    assert len(panels) == 2 * 4
    axes = panels["glyphs rn12, 40 tasks", "unbalanced α=2\n1-shot"]
    for name in NAMES:
        cell = table.groups[1].cells[name, table.columns[0]]
        assert cell.value is not None
        filled = (cell.best or cell.tied) and table.columns[0] not in table.groups[1].undecided
        assert dots_in(axes)[name] == pytest.approx((cell.value.mean, cell.value.half_width, filled))
    assert [label.get_text() for label in axes.get_yticklabels()] == [*NAMES][::-1]  # the best first
    assert panels["a$b$ <i>& rn12, 40 tasks", "balanced\n5-shot"].get_xlabel() == "no runs"
    for axes in panels.values():  # each with an axis of its own
        low, high = axes.get_xlim()
        assert all(low < mean < high for mean, *_ in dots_in(axes).values())
    assert len({axes.get_xlim() for axes in panels.values()}) > 3


def test_what_lies_far_below_is_clipped_and_marked_with_its_number() -> None:
    records = [make_record(name, 0.8) for name in NAMES] + [make_record("paddle", 0.3)]
    values = [interval(record.per_task) for record in records]
    low, high = clipped_axis(values)
    assert 70 < low < high < 90
    (axes,) = draw_dots(collect(records)[0]).subfigs[0].axes
    assert len(axes.containers) == 4
    texts = [text.get_text() for text in axes.texts]
    assert [text for text in texts if text.startswith("◂")] == [f"◂ {values[-1].mean:.1f} !"]
    assert clipped_axis(values[-1:])[0] < values[-1].mean  # alone it is no outlier


def test_differences_to_a_baseline_are_paired() -> None:
    records = [make_record(name, right) for name, right in (("ncm", 0.5), ("soft-kmeans", 0.7))]
    (comparison,) = collect(records)
    (axes,) = draw_dots(comparison, differences=True).subfigs[0].axes
    cell = comparison.groups[0].cells["ncm", comparison.columns[0]]
    assert cell.difference is not None
    assert dots_in(axes) == {"ncm": pytest.approx((cell.difference.mean, cell.difference.half_width, True))}
    with pytest.raises(FsbenchError, match="ran on the same tasks as soft-kmeans"):
        draw_dots(collect(records[:1])[0], differences=True)


@pytest.mark.parametrize("width", ["column", "page"])
def test_figures_have_their_true_size_and_legible_letters(table: Comparison, width: Any, tmp_path: Path) -> None:
    figures = [draw_dots(table, width), draw_dots(table, width, differences=True)]
    for number, figure in enumerate(figures):
        save(figure, tmp_path / f"{number}.pdf")
        box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", (tmp_path / f"{number}.pdf").read_bytes())
        assert box
        assert float(box[1]) == pytest.approx(72 * WIDTHS[width], abs=0.1)
        sizes = [text.get_fontsize() for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]
        assert min(map(float, sizes)) >= 7


def test_any_name_can_be_drawn_and_the_same_figure_is_the_same_file(features: Features, tmp_path: Path) -> None:
    assert len({tuple(line_look(number).values()) for number in range(32)}) == 32
    assert short_name("a" * 20 + "b" * 20) == "a" * 11 + "…" + "b" * 12
    names = ("_漢字", "$formula$", "a\\b ^_{")
    for file in ("spectrum.svg", "spectrum.png", "spectrum.PDF"):
        for copy in ("one", "other"):
            save(draw_spectra([(name, features.statistics) for name in names], 20.0), tmp_path / f"{copy}-{file}")
        assert (tmp_path / f"one-{file}").read_bytes() == (tmp_path / f"other-{file}").read_bytes()
    assert all(f"<!-- {name}: " in (tmp_path / "one-spectrum.svg").read_text() for name in names)


def test_spectrum_draws_eigenvalues_and_clamped_scalings() -> None:
    data = make_features(dimension=12, seed=2)
    data.base.features[:, 3] = 0.0  # a feature that never fires: without scatter, the scaling is the clamp
    base = data.statistics
    sigma = float(base.eigenvalues[7] ** -0.5) * 1.0001  # directions 9 to 12 scale more
    figure = draw_spectra([("own", base)], sigma)
    left, right = figure.axes
    curve, dot = (np.asarray(line.get_xydata()) for line in left.get_lines())
    np.testing.assert_allclose(curve[:, 1], [*base.eigenvalues[:11], np.nan])
    assert dot[0, 0] == pytest.approx(base.effective_rank)
    free, clamped, line = (np.asarray(line.get_ydata()) for line in right.get_lines())
    np.testing.assert_allclose(free, curve[:, 1] ** -0.5)
    np.testing.assert_allclose(clamped, np.fmin(free, sigma))
    assert line[0] == sigma
    assert np.log10(right.get_ylim()) == pytest.approx(np.round(np.log10(right.get_ylim())))
    (words,) = (text.get_text() for text in figure.legends[0].get_texts())
    assert words == f"own: effective rank {base.effective_rank:.1f} of 12; σ = {sigma:g} clamps 4 directions"
    with pytest.raises(FsbenchError, match="no scatter"):
        draw_spectra([("flat", replace(base, eigenvalues=0 * base.eigenvalues))], sigma)
