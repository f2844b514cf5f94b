"""Figures of features and tasks: what is drawn where, and that the same figure is the same file."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from fsbench.errors import FsbenchError
from fsbench.evaluation.source import Source
from fsbench.evaluation.task_views import WatchedTask, watch
from fsbench.features.store import Provenance
from fsbench.report.plots.simplex import CORNERS, draw_simplex, in_triangle
from fsbench.report.plots.spectrum import Spectrum, draw_spectra
from fsbench.report.plots.style import line_look, mark_look, save, short_name
from fsbench.tasks.protocol import TaskProtocol
from tests.synthetic import make_features

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from tests.synthetic import Features


@pytest.fixture(scope="module")
def watched(features: Features) -> WatchedTask:
    source = Source("novel", features.novel, features.statistics, Provenance("synthetic", "none"))
    return watch(source, TaskProtocol(ways=3, shots=2, queries=40), 0, 3, {"tau": 0.05})


def points_with(axes: Axes, **traits: Any) -> NDArray[np.float64]:
    """(n, 2) positions of the marks that have all the traits."""
    lines = [line for line in axes.get_lines() if line.get_marker() != "None"]
    chosen = [line for line in lines if all(getattr(line, f"get_{name}")() == value for name, value in traits.items())]
    return np.concatenate([np.empty((0, 2)), *(np.asarray(line.get_xydata()) for line in chosen)])


@pytest.mark.parametrize("root", [1, 4])
def test_points_of_the_simplex_lie_where_their_probabilities_say(root: int) -> None:
    np.testing.assert_array_equal(in_triangle(np.eye(3), root), CORNERS)
    np.testing.assert_allclose(np.linalg.norm(CORNERS - np.roll(CORNERS, 1, axis=0), axis=1), 1)
    np.testing.assert_allclose(in_triangle(np.full(3, 1 / 3), root), CORNERS.mean(axis=0))
    np.testing.assert_allclose(in_triangle(np.array([0.5, 0.5, 0.0]), root), CORNERS[:2].mean(axis=0))
    probabilities = np.random.default_rng(0).dirichlet([0.3] * 3, size=500)
    points = in_triangle(probabilities, root)
    gaps = np.linalg.norm(points[:, None] - CORNERS[None], axis=2)
    np.testing.assert_array_equal(gaps.argmin(axis=1), probabilities.argmax(axis=1))
    barycentric = np.linalg.solve(np.vstack([CORNERS.T, np.ones(3)]), np.vstack([points.T, np.ones(500)]))
    assert barycentric.min() >= -1e-12


def test_simplex_shows_support_in_its_corner_and_ends_where_predictions_say(watched: WatchedTask) -> None:
    assert 0 < watched.right(-1).sum() < 40  # both kinds of marks are there
    for axes, (method, step) in zip(draw_simplex(watched, 4).axes, watched.last_steps.items(), strict=True):
        assert axes.get_title().endswith(f"{100 * watched.right(step).mean():.1f} % correct"), method
        answers = watched.query_probabilities[step].argmax(axis=1)
        for k in range(3):
            colour, marker = mark_look(k)
            support = points_with(axes, markerfacecolor=colour, marker=marker, markeredgecolor="black")
            np.testing.assert_array_equal(support, CORNERS[[k, k]])
            for right, traits in ((True, {"markerfacecolor": colour, "markeredgecolor": "white"}),
                                  (False, {"markerfacecolor": "white", "markeredgecolor": colour})):  # fmt: skip
                ends = points_with(axes, marker=marker, **traits)
                expected = answers[(watched.query_labels == k) & (watched.right(step) == right)]
                nearest = np.linalg.norm(ends[:, None] - CORNERS[None], axis=2).argmin(axis=1)
                np.testing.assert_array_equal(nearest, expected)
        counts = [(watched.right(step) & (answers == k), ~watched.right(step) & (answers == k)) for k in range(3)]
        words = [f"{right.sum()} correct, {wrong.sum()} wrong" for right, wrong in counts]
        assert [text.get_text().replace("\n", " ") for text in axes.texts] == words
    for axes, first, last in zip(draw_simplex(watched, 1).axes, (0, 0, 4), (0, 4, 9), strict=True):
        (paths,) = axes.collections  # from the end of one stage to that of the next
        points = in_triangle(watched.query_probabilities[first : last + 1], 1)
        np.testing.assert_array_equal(np.stack(paths.get_segments(), axis=1), points)  # type: ignore[attr-defined]


def test_marks_and_lines_are_never_shared() -> None:
    assert len({mark_look(number) for number in range(56)}) == 56
    assert len({tuple(line_look(number).values()) for number in range(32)}) == 32


def test_any_class_name_can_be_drawn_and_the_same_figure_is_the_same_file(watched: WatchedTask, tmp_path: Path) -> None:
    assert short_name("a" * 20 + "b" * 20) == "a" * 11 + "…" + "b" * 12
    names = ("_漢字", "$formula$", "a\\b ^_{")
    odd = dataclasses.replace(watched, class_names=names, title=f"title {names[1]}")
    for file in ("simplex.svg", "simplex.png", "simplex.PDF"):
        for copy in ("one", "other"):
            save(draw_simplex(odd, 4), tmp_path / f"{copy}-{file}")
        assert (tmp_path / f"one-{file}").read_bytes() == (tmp_path / f"other-{file}").read_bytes()
    assert all(f"<!-- {name} (" in (tmp_path / "one-simplex.svg").read_text() for name in names)


@pytest.mark.parametrize("name", ["figure.jpg", "figure", "figure.PNG.txt", ".png"])
def test_other_endings_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match=r"A figure file ends in \.png, \.pdf, \.svg"):
        save(Figure(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_spectrum_draws_eigenvalues_and_clamped_scalings(features: Features) -> None:
    base = features.statistics
    sigma = float(base.eigenvalues[30] ** -0.5) * 1.0001  # directions 31 and later scale more
    figure = draw_spectra([Spectrum("own", base, sigma)])
    left, right = figure.axes
    curve, dot = (np.asarray(line.get_xydata()) for line in left.get_lines())
    np.testing.assert_allclose(curve[:, 1], base.eigenvalues)
    assert dot[0, 0] == pytest.approx(base.effective_rank)
    free, clamped, line = (np.asarray(line.get_ydata()) for line in right.get_lines())
    np.testing.assert_allclose(free, base.eigenvalues**-0.5)
    np.testing.assert_allclose(clamped, np.minimum(free, sigma))
    assert line[0] == sigma
    (words,) = (text.get_text() for text in figure.legends[0].get_texts())
    assert words == f"own: effective rank {base.effective_rank:.1f} of 48; σ = {sigma:g} clamps 17 directions"


def test_spectrum_without_clamp_and_with_empty_directions() -> None:
    data = make_features(dimension=12, seed=2)
    data.base.features[:, 3] = 0.0  # a feature that never fires
    base = data.statistics
    figure = draw_spectra([Spectrum("dead", base, float("inf")), Spectrum("dead", base, 3.0)])
    left, right = figure.axes
    assert len(np.asarray(left.get_lines()[0].get_xydata())) == 11
    assert len(right.get_lines()) == 2 + 3
    assert np.asarray(right.get_lines()[3].get_ydata())[-1] == 3.0  # without scatter the scaling is the clamp
    assert "clamps 0 directions" in figure.legends[0].get_texts()[0].get_text()
    flat = dataclasses.replace(base, eigenvalues=torch.zeros(12, dtype=torch.float64))
    with pytest.raises(FsbenchError, match="no scatter"):
        Spectrum("flat", flat, 20.0)
