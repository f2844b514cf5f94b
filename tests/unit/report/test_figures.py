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
from fsbench.evaluation.task_views import WatchedTask, three_views, watch
from fsbench.report.plots.spectrum import Spectrum, draw_spectra
from fsbench.report.plots.style import line_look, save, short_name
from fsbench.report.plots.task import (
    CORNERS,
    MOST_CLASSES,
    class_mark,
    covariance_ellipse,
    draw_simplex,
    draw_task,
    in_triangle,
)
from fsbench.tasks.protocol import TaskProtocol
from tests.synthetic import make_features

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from tests.synthetic import Features


@pytest.fixture(scope="module")
def seen(features: Features) -> WatchedTask:
    source = Source("synthetic", "none", "novel", features.novel, features.statistics)
    return watch(source, TaskProtocol(ways=3, shots=2, queries=40), 0, 3, {"tau": 0.05})


def points_with(axes: Axes, **traits: Any) -> NDArray[np.float64]:
    """(n, 2) positions of the marks that have all the traits."""
    lines = [line for line in axes.get_lines() if line.get_marker() != "None"]
    chosen = [line for line in lines if all(getattr(line, f"get_{name}")() == value for name, value in traits.items())]
    return np.concatenate([np.empty((0, 2)), *(np.asarray(line.get_xydata()) for line in chosen)])


@pytest.mark.parametrize("root", [1, 4])
def test_corners_centre_and_edges_of_the_simplex(root: int) -> None:
    np.testing.assert_array_equal(in_triangle(np.eye(3), root), CORNERS)
    sides = np.linalg.norm(CORNERS - np.roll(CORNERS, 1, axis=0), axis=1)
    np.testing.assert_allclose(sides, 1)
    np.testing.assert_allclose(in_triangle(np.full(3, 1 / 3), root), CORNERS.mean(axis=0))
    np.testing.assert_allclose(in_triangle(np.array([0.5, 0.5, 0.0]), root), CORNERS[:2].mean(axis=0))
    assert in_triangle(np.array([0.9, 0.1, 0.0]), root)[1] == 0  # on the lower edge


@pytest.mark.parametrize("root", [1, 4])
def test_every_point_lies_inside_and_nearest_to_the_corner_of_its_answer(root: int) -> None:
    probabilities = np.random.default_rng(0).dirichlet([0.3] * 3, size=500)
    points = in_triangle(probabilities, root)
    gaps = np.linalg.norm(points[:, None] - CORNERS[None], axis=2)
    np.testing.assert_array_equal(gaps.argmin(axis=1), probabilities.argmax(axis=1))
    barycentric = np.linalg.solve(np.vstack([CORNERS.T, np.ones(3)]), np.vstack([points.T, np.ones(500)]))
    assert barycentric.min() >= -1e-12


def test_simplex_shows_support_in_its_corner_and_ends_where_predictions_say(seen: WatchedTask) -> None:
    panels = draw_simplex(seen, 4).axes
    assert 0 < seen.right(-1).sum() < 40  # both kinds of marks are there
    for axes, (method, step) in zip(panels, seen.last_steps.items(), strict=True):
        accuracy = f"{100 * seen.right(step).mean():.1f} % correct"
        assert axes.get_title().endswith(accuracy), method
        answers = seen.query_probabilities[step].argmax(axis=1)
        for k in range(3):
            colour, marker = class_mark(k)
            support = points_with(axes, markerfacecolor=colour, marker=marker, markeredgecolor="black")
            np.testing.assert_array_equal(support, CORNERS[[k, k]])
            mine = seen.query_labels == k
            for right, traits in ((True, {"markerfacecolor": colour, "markeredgecolor": "white"}),
                                  (False, {"markerfacecolor": "white", "markeredgecolor": colour})):  # fmt: skip
                ends = points_with(axes, marker=marker, **traits)
                expected = answers[mine & (seen.right(step) == right)]
                nearest = np.linalg.norm(ends[:, None] - CORNERS[None], axis=2).argmin(axis=1)
                np.testing.assert_array_equal(nearest, expected)
        corners = [text.get_text().replace("\n", " ") for text in axes.texts]
        assert corners == [
            f"{(answers[seen.right(step)] == k).sum()} correct, {(answers[~seen.right(step)] == k).sum()} wrong"
            for k in range(3)
        ]


def test_simplex_lines_go_from_the_end_of_one_stage_to_that_of_the_next(seen: WatchedTask) -> None:
    for axes, first, last in zip(draw_simplex(seen, 1).axes, (0, 0, 4), (0, 4, 9), strict=True):
        (ways,) = axes.collections
        points = in_triangle(seen.query_probabilities[first : last + 1], 1)
        np.testing.assert_array_equal(np.stack(ways.get_segments(), axis=1), points)  # type: ignore[attr-defined]


def test_task_draws_every_sample_in_every_view(seen: WatchedTask) -> None:
    views = three_views(seen)
    figure = draw_task(seen, views)
    for axes, view in zip(figure.axes, views, strict=True):
        labels = np.concatenate([seen.support_labels, seen.query_labels])
        for k in range(3):
            mine = points_with(axes, marker=class_mark(k)[1])
            assert {*map(tuple, mine)} == {*map(tuple, view.points[labels == k])}
        wrong = points_with(axes, markerfacecolor="white")
        assert {*map(tuple, wrong)} == {*map(tuple, view.points[6:][~view.right])}
        assert axes.get_title().endswith(f"{view.method}: {100 * view.right.mean():.1f} % correct")
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        assert right - left == pytest.approx(high - low)
        assert (view.points > [left, low]).all()
        assert (view.points < [right, high]).all()
    assert [len(axes.patches) for axes in figure.axes] == [3, 3, 3]
    assert [axes.get_xlabel().partition("the ")[2] for axes in figure.axes] == [
        *("samples' spread", "centroids' spread", "centroids' spread")
    ]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    for k, name in enumerate(seen.class_names):
        assert f"{name} ({(seen.query_labels == k).sum()})" in names


def test_ellipse_is_two_standard_deviations_of_the_class() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(400, 2)) @ np.array([[3.0, 1.0], [0.0, 0.5]]) + [5.0, -2.0]
    ellipse = covariance_ellipse(points)
    assert ellipse is not None
    np.testing.assert_allclose(ellipse.center, points.mean(axis=0))
    turn, angle = np.linspace(0, 2 * np.pi, 50), np.radians(ellipse.angle)
    along, across = ellipse.width / 2 * np.cos(turn), ellipse.height / 2 * np.sin(turn)
    gaps = np.stack([along, across], axis=1) @ [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    distance = np.sqrt(np.einsum("ni,ij,nj->n", gaps, np.linalg.inv(np.cov(points.T)), gaps))
    np.testing.assert_allclose(distance, 2, rtol=1e-9)
    assert covariance_ellipse(points[:2]) is None


def test_marks_are_never_shared_and_too_many_classes_are_refused(seen: WatchedTask) -> None:
    assert len({class_mark(k) for k in range(MOST_CLASSES)}) == MOST_CLASSES == 56
    assert len({tuple(line_look(number).values()) for number in range(32)}) == 32
    crowd = dataclasses.replace(seen, class_names=("x",) * 57)
    with pytest.raises(FsbenchError, match="At most 56 classes can be drawn, the task has 57"):
        draw_simplex(crowd, 4)


def test_names_are_text_and_fit() -> None:
    assert short_name("n02$x$") == "n02$x$"
    assert short_name("a" * 20 + "b" * 20) == "a" * 11 + "…" + "b" * 12
    assert len(short_name("c" * 99, longest=10)) == 10


def test_any_class_name_can_be_drawn(seen: WatchedTask, tmp_path: Path) -> None:
    for names in (("_private", "$formula$", "$"), ("漢字", "a\\b", "^_{")):
        odd = dataclasses.replace(seen, class_names=names, title=f"title {names[1]}")
        save(draw_simplex(odd, 4), tmp_path / "odd.svg")
        for name in names:
            assert f"<!-- {name} (" in (tmp_path / "odd.svg").read_text()


@pytest.mark.parametrize("file", ["simplex.svg", "task.png", "task.svg", "spectrum.pdf"])
def test_the_same_figure_is_the_same_file(seen: WatchedTask, features: Features, tmp_path: Path, file: str) -> None:
    for name in ("one", "other"):
        path = tmp_path / f"{name}-{file}"
        if "simplex" in file:
            save(draw_simplex(seen, 4), path)
        elif "task" in file:
            save(draw_task(seen, three_views(seen)), path)
        else:
            spectra = [Spectrum("a", features.statistics, 20.0), Spectrum("b", features.statistics, 5.0)]
            save(draw_spectra(spectra), path)
    assert (tmp_path / f"one-{file}").read_bytes() == (tmp_path / f"other-{file}").read_bytes()


@pytest.mark.parametrize("name", ["figure.jpg", "figure", "figure.PNG.txt", ".png"])
def test_other_endings_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match=r"A figure file ends in \.png, \.pdf, \.svg"):
        save(Figure(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_spectrum_draws_eigenvalues_and_clamped_scalings(features: Features) -> None:
    base = features.statistics
    sigma = float(base.eigenvalues[30] ** -0.5)  # directions 31 and later scale more
    figure = draw_spectra([Spectrum("own", base, sigma * 1.0001)])
    left, right = figure.axes
    curve, dot = (line.get_xydata() for line in left.get_lines())
    np.testing.assert_allclose(np.asarray(curve)[:, 1], base.eigenvalues)
    assert np.asarray(dot)[0, 0] == pytest.approx(base.effective_rank)
    free, clamped, line = (np.asarray(line.get_ydata()) for line in right.get_lines())
    np.testing.assert_allclose(free, base.eigenvalues**-0.5)
    np.testing.assert_allclose(clamped, np.minimum(free, sigma * 1.0001))
    assert line[0] == sigma * 1.0001
    (words,) = (text.get_text() for text in figure.legends[0].get_texts())
    assert words == f"own: effective rank {base.effective_rank:.1f} of 48; σ = {sigma * 1.0001:g} clamps 17 directions"


def test_spectrum_without_clamp_and_with_empty_directions() -> None:
    data = make_features(dimension=12, seed=2)
    data.base.features[:, 3] = 0.0  # a feature that never fires
    base = data.statistics
    figure = draw_spectra([Spectrum("dead", base, float("inf")), Spectrum("dead", base, 3.0)])
    left, right = figure.axes
    assert len(np.asarray(left.get_lines()[0].get_xydata())) == 11
    assert len(right.get_lines()) == 2 + 3
    clamped = np.asarray(right.get_lines()[3].get_ydata())
    assert clamped[-1] == 3.0  # without scatter the scaling is the clamp
    assert "clamps 0 directions" in figure.legends[0].get_texts()[0].get_text()


def test_base_classes_without_scatter_are_refused(features: Features) -> None:
    flat = dataclasses.replace(features.statistics, eigenvalues=torch.zeros(48, dtype=torch.float64))
    with pytest.raises(FsbenchError, match="no scatter"):
        Spectrum("flat", flat, 20.0)
