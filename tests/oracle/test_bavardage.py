"""Soft-KMEANS, BAVARDAGE and the base statistics against the article's algorithms, one task at a time, in float64."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from fsbench.methods.bavardage import Bavardage, clamp_by_products, look_equal, off_centre
from fsbench.methods.centroids import Clusters, inner_products
from tests.oracle import algorithms, reference
from tests.oracle.reference import UNEQUAL, tasks_of
from tests.oracle.rivals_centroids import simpleshot
from tests.synthetic import Features, make_features

ARTICLE: dict[str, Any] = {"t_km": 20.0, "t_vb": 15.0, "s_max": 1.4}
VARIANTS = pytest.mark.parametrize("variant", ["article", "released"])


def slow_bavardage(statistics: Any, base: reference.Base, **params: Any) -> Callable[..., Any]:
    """Algorithm 1 with these parameters, as a function of a task."""
    return partial(reference.bavardage, base=base, method=reference.configured(statistics, **params))


@pytest.fixture(scope="module")
def base(features: Features) -> reference.Base:
    return reference.Base.fit(features.base.features, features.base.labels)


def test_base_statistics_equal_the_sums_over_classes_and_images(features: Features, base: reference.Base) -> None:
    fitted = features.statistics
    np.testing.assert_allclose(fitted.mean, base.mean, rtol=1e-12)
    np.testing.assert_allclose(fitted.scatter, base.scatter, atol=1e-14)
    np.testing.assert_allclose(fitted.class_weighted, base.class_weighted, atol=1e-12)
    rebuilt = fitted.eigenvectors * fitted.eigenvalues @ fitted.eigenvectors.mT
    np.testing.assert_allclose(rebuilt, base.scatter, atol=1e-14)
    assert fitted.images_per_class == base.per_class


@pytest.mark.parametrize("unequal", [(), UNEQUAL])
@pytest.mark.parametrize("shots", [1, 5])
def test_ncm_and_soft_kmeans(features: Features, base: reference.Base, shots: int, unequal: Any) -> None:
    def soft_kmeans(rows: Any, labels: Any, ways: int) -> Any:
        x = reference.cl2n(rows, base.mean)
        return algorithms.soft_kmeans(x, np.eye(ways)[labels], 30.0, 5)[len(labels) :]

    tasks, given = tasks_of(features, 20, unequal, shots=shots), {"base": features.statistics, "balanced": False}
    tasks.agree("ncm", partial(simpleshot, mean=base.mean, norm="CL2N"), 1e-9, **given)
    tasks.agree("soft-kmeans", soft_kmeans, 1e-9, t_km=30.0, **given)


@pytest.mark.parametrize("variant", ["article", "released", "transport"])
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize(
    ("shots", "ways", "queries"), [(1, 5, 30), (3, 4, 22), (5, 7, 60), (1, 2, 10), (UNEQUAL, 5, 30)]
)
def test_bavardage_agrees_with_algorithm_1(
    features: Features, base: reference.Base, variant: str, balanced: bool, shots: Any, ways: int, queries: int
) -> None:
    count = 3 if variant == "transport" else 12  # Sinkhorn's iteration is slow
    atol = 1e-5 if variant == "transport" else 1e-8  # Newton's steps are counted, not carried on to the last digit
    params = {**ARTICLE, "variant": variant, "balanced": balanced}
    slow = slow_bavardage(features.statistics, base, **params)
    unequal, shots = (shots, 8) if shots == UNEQUAL else ((), shots)
    tasks = tasks_of(features, count, unequal, shots=shots, ways=ways, queries=queries)
    predicted = tasks.agree("bavardage", slow, atol, base=features.statistics, **params)
    assert predicted.shape == (count, queries, ways)
    if variant == "transport":
        np.testing.assert_allclose(predicted.sum(axis=1), queries / ways, atol=1e-4)


@pytest.mark.parametrize("sizes", ["free", "equal", "auto"])
@pytest.mark.parametrize(("shots", "ways", "queries", "alpha"), [(1, 5, 30, 2.0), (2, 9, 50, None), (5, 3, 70, 2.0)])
def test_weighted_agrees_with_the_loops(
    features: Features, base: reference.Base, sizes: str, shots: int, ways: int, queries: int, alpha: float | None
) -> None:
    """With 2 to 8 dimensions, of which the size terms count 4, few and many queries per class, off the base mean."""
    params = {"variant": "weighted", "sizes": sizes, "t_km": 20.0, "calibration": 1.0}
    slow = slow_bavardage(features.statistics, base, **params)
    tasks = tasks_of(features, 4, shots=shots, ways=ways, queries=queries, alpha=alpha)
    tasks.support, tasks.query = tasks.support + np.float32(0.3), tasks.query + np.float32(0.3)
    tasks.agree("bavardage", slow, 1e-8 if sizes == "free" else 1e-4, base=features.statistics, **params)


def test_article_and_weighted_are_points_of_one_model(features: Features) -> None:
    tasks, base = tasks_of(features, 4), features.statistics
    article: dict[str, Any] = {
        "query_weight": 1.0, "start": "soft-kmeans", "size_terms": float("inf"), "prior_mean": "base", "beta": 10.0,
        "tau": 0.3,
    }  # fmt: skip
    expected = tasks.predict("bavardage", base=base)
    np.testing.assert_array_equal(
        tasks.predict("bavardage:weighted", base=base, sizes="free", calibration=1.0, **article), expected
    )
    assert np.abs(tasks.predict("bavardage:weighted", base=base) - expected).max() > 0.01


def test_the_prior_mean_follows_a_task_off_the_base_mean(features: Features) -> None:
    """In the share that is not chance: all of it for a task far away, nothing where classes surround the base mean."""
    for x, expected in ((torch.eye(4) + 100, 0.75), (torch.cat([torch.eye(2), -torch.eye(2)]), 0.0)):
        clusters = Clusters(inner_products(x.repeat(2, 1)[None]), torch.eye(4)[None])
        assert float(off_centre(clusters, torch.eye(4)[None])) == pytest.approx(expected, abs=1e-3)
    tasks = tasks_of(features, 4)
    tasks.support, tasks.query = tasks.support + np.float32(0.3), tasks.query + np.float32(0.3)
    solve = partial(tasks.predict, "bavardage", base=features.statistics, variant="weighted", sizes="free")
    assert np.abs(solve() - solve(prior_mean="base")).max() > 0.01


def test_equal_sizes_are_chosen_where_the_shares_allow_them() -> None:
    """G is about 1.0 and 31 here, and 4 is expected."""
    shares = torch.tensor([[16.0, 13.0, 15.0, 18.0, 13.0], [35.0, 10.0, 10.0, 10.0, 10.0]]) / 75
    assigned = shares[:, :, None].expand(2, 5, 75)
    assert look_equal(assigned).flatten().tolist() == [True, False]
    assert [algorithms.look_equal(one.T.numpy()) for one in assigned] == [True, False]


@VARIANTS
@pytest.mark.parametrize("dimension", [48, 12], ids=["overlapping tasks", "more samples than features"])
def test_duplicate_rows_and_few_dimensions(variant: str, dimension: int) -> None:
    data = make_features(dimension=dimension, seed=5)
    params = {"t_km": 20.0, "t_vb": 8.0, "s_max": 1.2, "variant": variant}
    slow = slow_bavardage(data.statistics, reference.Base.fit(data.base.features, data.base.labels), **params)
    tasks = tasks_of(data, 8, shots=2, queries=40)
    if dimension == 48:
        tasks.query[:, :10] = tasks.support  # every support image is a query too
    tasks.agree("bavardage", slow, 1e-6, base=data.statistics, **params)


def test_learned_precision_agrees_with_its_formula(features: Features, base: reference.Base) -> None:
    """One step, so that the precision is estimated from Soft-KMEANS alone."""
    params: dict[str, Any] = {"t_km": 20.0, "sigma": 10.0, "steps": 1}

    def slow(rows: Any, labels: Any, ways: int) -> Any:
        x = reference.cl2n(rows, base.mean)
        o = algorithms.soft_kmeans(x, np.eye(ways)[labels], 20.0, 5)
        u = algorithms.plda(algorithms.sphere(x, base.scatter, 10.0), o, 10.0)
        m = o.T @ u / (10.0 + o.sum(axis=0))[:, None]
        tau = 4 * len(x) / (o * algorithms.squared_distances(u, m)).sum()
        return slow_bavardage(features.statistics, base, tau=tau, **params)(rows, labels, ways)

    tasks_of(features, 6, queries=30).agree("bavardage", slow, 1e-8, base=features.statistics, tau="learned", **params)


@VARIANTS
@pytest.mark.parametrize("balanced", [False, True])
def test_every_step_equals_the_loops(features: Features, base: reference.Base, variant: str, balanced: bool) -> None:
    tasks, statistics = tasks_of(features, 3, ways=3, shots=2, queries=20), features.statistics
    for steps in range(1, 5):
        params = {**ARTICLE, "variant": variant, "balanced": balanced, "km_steps": steps, "steps": steps}
        shown = tasks.predict("bavardage", base=statistics, **params)
        np.testing.assert_allclose(shown, tasks.slowly(slow_bavardage(statistics, base, **params)), atol=1e-8)


def test_the_first_step_is_the_nearest_class_mean(features: Features) -> None:
    tasks, base = tasks_of(features, 4), features.statistics
    first = tasks.predict("soft-kmeans", base=base, km_steps=1)
    np.testing.assert_array_equal(first.argmax(axis=2), tasks.predict("ncm", base=base).argmax(axis=2))


def test_the_clamp_matters_in_the_comparison_above(features: Features) -> None:
    """Otherwise the two variants would only be told apart by their scatter."""
    scaling = features.statistics.eigenvalues.rsqrt() / features.statistics.images_per_class**0.5
    assert 0.1 < (scaling > 1.4).double().mean() < 0.9


def test_the_projection_keeps_distances_to_the_eigenvectors_of_psi(features: Features, base: reference.Base) -> None:
    """Eq. 9 and 10 as printed, with the matrix Ψ itself, and the basis of differences of the released program."""
    tasks, method = tasks_of(features, 6, queries=30), reference.configured(features.statistics, **ARTICLE)
    for rows, labels in zip(tasks.rows, tasks.labels, strict=True):
        x = reference.cl2n(rows, base.mean)
        sphered = base.sphere(x, method)
        o = algorithms.soft_kmeans(x, np.eye(5)[labels], 20.0, 5)
        u = algorithms.plda(sphered, o, 10.0)
        m = o.T @ sphered / (10.0 + o.sum(axis=0))[:, None]
        psi = sum(np.outer(row, row) for row in m - m.mean(axis=0))
        for basis in (np.linalg.eigh(psi)[1][:, -4:], np.linalg.qr((m[1:] - m[0]).T)[0]):
            np.testing.assert_allclose(u @ u.T, sphered @ basis @ basis.T @ sphered.T, atol=1e-9)


def test_without_clamp_the_sphering_gives_mahalanobis_distances(features: Features, base: reference.Base) -> None:
    for variant, matrix in (
        ("article", base.scatter),
        ("released", (base.class_weighted + 1e-6 * np.eye(48)) / base.per_class),
    ):
        method = Bavardage(variant=variant, sigma=1e9)  # type: ignore[arg-type]
        for rows in tasks_of(features, 4, queries=30).rows:
            embedded = method.embed(torch.from_numpy(rows).double(), features.statistics)
            gap = embedded["plain"][:, None] - embedded["plain"][None]
            expected = torch.einsum("ijd,de,ije->ij", gap, torch.linalg.inv(torch.from_numpy(matrix)), gap)
            found = torch.cdist(embedded["sphered"], embedded["sphered"]).square()
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@VARIANTS
def test_the_scale_of_the_scatter_is_a_unit(features: Features, monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    """(S_w, ridge, σ, τ) → (S_w / c, ridge / c, σ √c, τ / c) changes nothing, nor do the article's units."""
    tasks, base, c = tasks_of(features, 10), features.statistics, 37.0
    solve = partial(tasks.predict, "bavardage", variant=variant)
    one, n = solve(base=base, tau=0.3, sigma=10.0), base.images_per_class
    np.testing.assert_array_equal(one, solve(base=base, t_vb=0.3 * n, s_max=10.0 / n**0.5))
    smaller = dataclasses.replace(
        base, scatter=base.scatter / c, class_weighted=base.class_weighted / c, eigenvalues=base.eigenvalues / c
    )
    monkeypatch.setattr("fsbench.methods.bavardage.RIDGE", 1e-6 / c)
    np.testing.assert_allclose(one, solve(base=smaller, tau=0.3 / c, sigma=10.0 * c**0.5), atol=1e-9)


def test_predictions_do_not_depend_on_the_kind_of_clamping(features: Features, monkeypatch: pytest.MonkeyPatch) -> None:
    """By eigenvalues on the CPU, by matrix products on a GPU."""
    solve = partial(tasks_of(features, 50).predict, "bavardage:released", base=features.statistics)
    by_eigenvalues = solve()
    monkeypatch.setattr("fsbench.methods.bavardage.clamp_eigenvalues", clamp_by_products)
    by_products = solve()
    np.testing.assert_array_equal(by_products.argmax(axis=2), by_eigenvalues.argmax(axis=2))
    np.testing.assert_allclose(by_products, by_eigenvalues, atol=1e-5)
