from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fsbench.errors import FsbenchError
from fsbench.evaluation.engine import TaskList, solve_tasks
from fsbench.evaluation.run import configure
from fsbench.evaluation.source import Source
from fsbench.evaluation.task_views import centroid_plane, three_views, watch
from fsbench.methods.bavardage import unpack
from fsbench.methods.centroids import inner_products
from fsbench.methods.reference import plda
from fsbench.tasks.protocol import TaskProtocol
from tests.oracle import reference

if TYPE_CHECKING:
    from tests.synthetic import Features

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def source(features: Features) -> Source:
    return Source("synthetic", "none", "novel", features.novel, features.statistics)


@pytest.mark.parametrize("protocol", [
    TaskProtocol(ways=3),
    TaskProtocol(ways=4, shots=5, queries=40, alpha=None),
    TaskProtocol("released", queries=30),
    TaskProtocol("veilleux", queries=150, alpha=0.5),
])  # fmt: skip
def test_a_watched_task_is_the_one_that_solve_gets(source: Source, protocol: TaskProtocol) -> None:
    tasks, seed = 12, 7
    seen = [watch(source, protocol, seed, task, {}) for task in range(tasks)]
    if protocol.overlapping:  # some tasks have fewer queries than asked for
        assert len({len(task.query_labels) for task in seen}) > 1
    for name, title in (("ncm", "NCM"), ("soft-kmeans", "Soft-KMEANS"), ("bavardage", "BAVARDAGE")):
        method = configure(name, source, protocol, {})[0]
        outcome = solve_tasks(method, source.split, source.base, TaskList(protocol, seed, tasks), device=CPU)
        assert [int(task.right(task.last_steps[title]).sum()) for task in seen] == outcome.correct.tolist()
        assert [len(task.query_labels) for task in seen] == outcome.queries.tolist()


def test_parameters_reach_the_method_and_the_title(source: Source) -> None:
    options: dict[str, Any] = {"variant": "released", "t_km": 7.0, "sigma": 3.0, "steps": 2, "km_steps": 4}
    seen = watch(source, TaskProtocol(ways=3, alpha=None), 5, 9, options)
    assert seen.assignments.shape == (6, 3 + 75, 3)
    assert seen.last_steps == {"NCM": 0, "Soft-KMEANS": 3, "BAVARDAGE": 5}
    np.testing.assert_array_equal(seen.assignments[:, :3], np.broadcast_to(np.eye(3), (6, 3, 3)))  # the support
    where, how = seen.title.split("\n")
    assert where.endswith("task 9 of seed 5, 3-way 1-shot, balanced")
    assert how == "BAVARDAGE (released): T_km = 7, τ = 0.3, σ = 3, 4+2 steps"


def rows_and_centroids(ways: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.normal(size=(1, 20, 9)))
    weights = torch.from_numpy(rng.dirichlet(np.ones(20), size=(1, ways)))
    return rows, weights


def test_the_plane_of_three_centroids_keeps_their_distances_and_equals_a_projection() -> None:
    rows, weights = rows_and_centroids(ways=3)
    points, shares = centroid_plane(inner_products(rows), weights)
    centroids = (weights @ rows)[0].numpy()  # (3, 9)
    seen = weights[0].numpy() @ points
    gaps = np.linalg.norm(centroids[:, None] - centroids[None], axis=2)
    np.testing.assert_allclose(np.linalg.norm(seen[:, None] - seen[None], axis=2), gaps, atol=1e-12)
    assert sum(shares) == pytest.approx(1)
    q = np.linalg.qr((centroids[1:] - centroids[0]).T)[0]  # another basis of the same plane
    inside = rows[0].numpy() @ q
    np.testing.assert_allclose(points @ points.T, inside @ inside.T, atol=1e-12)


def test_more_centroids_are_seen_along_their_principal_axes() -> None:
    rows, weights = rows_and_centroids(ways=6)
    points, shares = centroid_plane(inner_products(rows), weights)
    centroids = (weights @ rows)[0].numpy()
    _, singular, axes = np.linalg.svd(centroids - centroids.mean(axis=0))
    expected = rows[0].numpy() @ axes[:2].T
    np.testing.assert_allclose(np.abs(points), np.abs(expected), atol=1e-12)  # signs are free
    np.testing.assert_allclose(shares, (singular**2 / (singular**2).sum())[:2], atol=1e-12)


def test_coincident_centroids_are_no_trouble() -> None:
    rows, weights = rows_and_centroids(ways=3)
    points, shares = centroid_plane(inner_products(rows), weights[:, :1].expand(1, 3, 20))
    assert np.isfinite(points).all()
    assert np.isfinite(shares).all()
    line, _ = centroid_plane(inner_products(rows), weights[:, [0, 1, 1]])
    assert np.abs(line[:, 1]).max() < 1e-6 < np.abs(line[:, 0]).max()


@pytest.mark.parametrize("variant", ["article", "released"])
def test_plda_view_equals_the_projection_of_algorithm_1(features: Features, source: Source, variant: str) -> None:
    seen = watch(source, TaskProtocol(ways=3, queries=30), 0, 4, {"variant": variant, "sigma": 8.0})
    base = reference.Base.fit(features.base.features, features.base.labels)
    x = unpack(seen.tasks.rows[0].double()).plain.numpy()
    expected = plda(base.sphere(x, seen.method), seen.assignments[-1], 10.0)
    points = three_views(seen)[2].points
    np.testing.assert_allclose(points @ points.T, expected @ expected.T, atol=2e-2, rtol=1e-3)


def test_views_show_the_answers_of_their_methods_in_the_same_orientation(source: Source) -> None:
    seen = watch(source, TaskProtocol(shots=2), 0, 1, {})
    views = three_views(seen)
    assert [view.method for view in views] == ["NCM", "Soft-KMEANS", "BAVARDAGE"]
    for view in views:
        np.testing.assert_array_equal(view.right, seen.right(seen.last_steps[view.method]))
        assert view.points.shape == (10 + 75, 2)
    features, plain, sphered = (view.points for view in views)
    for points in (features, sphered):
        assert min(np.corrcoef(points[:, axis], plain[:, axis])[0, 1] for axis in (0, 1)) >= 0


def test_the_first_view_shows_the_principal_components_of_the_features(source: Source) -> None:
    seen = watch(source, TaskProtocol(shots=2), 0, 1, {})
    view = three_views(seen)[0]
    x = seen.tasks.rows[0].double().chunk(2, dim=1)[0].numpy()  # CL2N
    _, singular, axes = np.linalg.svd(x - x.mean(axis=0))
    np.testing.assert_allclose(np.abs(view.points), np.abs(x @ axes[:2].T), atol=1e-9)  # signs are free
    np.testing.assert_allclose(view.shares, (singular**2 / (singular**2).sum())[:2], rtol=1e-9)


def test_two_classes_have_no_plane(source: Source) -> None:
    with pytest.raises(FsbenchError, match="span a line"):
        three_views(watch(source, TaskProtocol(ways=2), 0, 0, {}))
