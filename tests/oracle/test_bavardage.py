"""Soft-KMEANS, BAVARDAGE and the base statistics against the article's algorithms, one task at a time, in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import fsbench
from fsbench.methods.bavardage import Bavardage
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.oracle import algorithms, reference
from tests.synthetic import Features, make_features


def tasks_of(
    data: Features, count: int, **protocol: float | str | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    drawn = sample_tasks(TaskProtocol(**protocol), data.novel.offsets, 3, np.arange(count))  # type: ignore[arg-type]
    x = data.novel.features
    return x[drawn.support], drawn.support_labels, x[drawn.query], drawn.query_labels


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


@pytest.mark.parametrize("shots", [1, 5])
def test_ncm_and_soft_kmeans_agree_with_the_loops(features: Features, base: reference.Base, shots: int) -> None:
    support, labels, query, _ = tasks_of(features, 20, shots=shots)
    kwargs: dict[str, Any] = {"base": features.statistics, "balanced": False}
    near = fsbench.predict("ncm", support, labels, query, **kwargs)
    soft = fsbench.predict("soft-kmeans", support, labels, query, t_km=30.0, **kwargs)
    for b in range(20):
        x = reference.cl2n(np.concatenate([support[b], query[b]]), base.mean)
        np.testing.assert_allclose(near[b], reference.ncm(x, labels[b], 5), atol=1e-9)
        np.testing.assert_allclose(soft[b], reference.soft_kmeans(x, labels[b], 30.0), atol=1e-9)


@pytest.mark.parametrize("variant", ["article", "released", "transport"])
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize(("shots", "ways", "queries"), [(1, 5, 30), (3, 4, 22), (5, 7, 60), (1, 2, 10)])
def test_bavardage_agrees_with_algorithm_1(
    features: Features, base: reference.Base, variant: str, balanced: bool, shots: int, ways: int, queries: int
) -> None:
    count = 3 if variant == "transport" else 12  # Sinkhorn's iteration is slow
    support, labels, query, _ = tasks_of(features, count, shots=shots, ways=ways, queries=queries)
    params: dict[str, Any] = {"t_km": 20.0, "t_vb": 15.0, "s_max": 1.4, "variant": variant, "balanced": balanced}
    predicted = fsbench.predict("bavardage", support, labels, query, base=features.statistics, **params)
    assert predicted.shape == (count, queries, ways)
    method = reference.configured(features.statistics, **params)
    atol = 1e-5 if variant == "transport" else 1e-8  # Newton's steps are counted, not carried on to the last digit
    for b in range(count):
        rows = np.concatenate([support[b], query[b]])
        np.testing.assert_allclose(predicted[b], reference.bavardage(rows, labels[b], base, method), atol=atol)
    if variant == "transport":
        np.testing.assert_allclose(predicted.sum(axis=1), queries / ways, atol=1e-4)


def test_the_clamp_matters_in_the_comparison_above(features: Features) -> None:
    """Otherwise the two variants would only be told apart by their scatter."""
    scaling = features.statistics.eigenvalues.rsqrt() / features.statistics.images_per_class**0.5
    assert 0.1 < (scaling > 1.4).double().mean() < 0.9


def test_the_projection_keeps_distances_to_the_eigenvectors_of_psi(features: Features, base: reference.Base) -> None:
    """Eq. 9 and 10 as printed, with the matrix Ψ itself, and the basis of differences of the released program."""
    support, labels, query, _ = tasks_of(features, 6, queries=30)
    method = reference.configured(features.statistics, t_km=20.0, t_vb=15.0, s_max=1.4)
    for b in range(6):
        x = reference.cl2n(np.concatenate([support[b], query[b]]), base.mean)
        sphered = base.sphere(x, method)
        o = algorithms.soft_kmeans(x, np.eye(5)[labels[b]], 20.0, 5)
        u = algorithms.plda(sphered, o, 10.0)
        m = o.T @ sphered / (10.0 + o.sum(axis=0))[:, None]
        psi = sum(np.outer(row, row) for row in m - m.mean(axis=0))
        for basis in (np.linalg.eigh(psi)[1][:, -4:], np.linalg.qr((m[1:] - m[0]).T)[0]):
            np.testing.assert_allclose(u @ u.T, sphered @ basis @ basis.T @ sphered.T, atol=1e-9)


def test_without_clamp_the_sphering_gives_mahalanobis_distances(features: Features, base: reference.Base) -> None:
    support, _, query, _ = tasks_of(features, 4, queries=30)
    for variant, matrix in (
        ("article", base.scatter),
        ("released", (base.class_weighted + 1e-6 * np.eye(48)) / base.per_class),
    ):
        method = Bavardage(variant=variant, sigma=1e9)  # type: ignore[arg-type]
        for b in range(4):
            rows = torch.from_numpy(np.concatenate([support[b], query[b]])).double()
            embedded = method.embed(rows, features.statistics)
            gap = embedded["plain"][:, None] - embedded["plain"][None]
            expected = torch.einsum("ijd,de,ije->ij", gap, torch.linalg.inv(torch.from_numpy(matrix)), gap)
            found = torch.cdist(embedded["sphered"], embedded["sphered"]).square()
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("variant", ["article", "released"])
def test_scale_of_the_scatter_is_a_matter_of_units(
    features: Features, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    """(S_w, ridge, σ, τ) → (S_w / c, ridge / c, σ √c, τ / c) changes nothing."""
    support, labels, query, _ = tasks_of(features, 10)
    base, c = features.statistics, 37.0
    one = fsbench.predict("bavardage", support, labels, query, base=base, variant=variant, tau=0.3, sigma=10.0)
    smaller = dataclasses.replace(
        base, scatter=base.scatter / c, class_weighted=base.class_weighted / c, eigenvalues=base.eigenvalues / c
    )
    monkeypatch.setattr("fsbench.methods.bavardage.RIDGE", 1e-6 / c)
    other = fsbench.predict(
        "bavardage", support, labels, query, base=smaller, variant=variant, tau=0.3 / c, sigma=10.0 * c**0.5
    )
    np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("variant", ["article", "released"])
def test_both_systems_of_units_say_the_same(features: Features, variant: str) -> None:
    support, labels, query, _ = tasks_of(features, 5)
    base, n = features.statistics, features.statistics.images_per_class
    one = fsbench.predict("bavardage", support, labels, query, base=base, variant=variant, t_vb=15.0, s_max=1.4)
    other = fsbench.predict(
        "bavardage", support, labels, query, base=base, variant=variant, tau=15.0 / n, sigma=1.4 * n**0.5
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("variant", ["article", "released"])
def test_more_samples_than_features(variant: str) -> None:
    data = make_features(dimension=12, seed=5)
    loops = reference.Base.fit(data.base.features, data.base.labels)
    support, labels, query, _ = tasks_of(data, 8, shots=2, queries=40)
    params: dict[str, Any] = {"t_km": 20.0, "t_vb": 8.0, "s_max": 1.2, "variant": variant}
    predicted = fsbench.predict("bavardage", support, labels, query, base=data.statistics, **params)
    method = reference.configured(data.statistics, **params)
    for b in range(8):
        rows = np.concatenate([support[b], query[b]])
        np.testing.assert_allclose(predicted[b], reference.bavardage(rows, labels[b], loops, method), atol=1e-7)


@pytest.mark.parametrize("variant", ["article", "released"])
def test_duplicate_rows_of_overlapping_tasks(features: Features, base: reference.Base, variant: str) -> None:
    support, labels, query, _ = tasks_of(features, 8, shots=2, queries=30)
    query[:, :10] = support  # every support image is a query too
    params: dict[str, Any] = {"t_km": 20.0, "t_vb": 15.0, "s_max": 1.4, "variant": variant}
    predicted = fsbench.predict("bavardage", support, labels, query, base=features.statistics, **params)
    method = reference.configured(features.statistics, **params)
    for b in range(8):
        rows = np.concatenate([support[b], query[b]])
        np.testing.assert_allclose(predicted[b], reference.bavardage(rows, labels[b], base, method), atol=1e-6)


def test_learned_precision_agrees_with_its_formula(features: Features, base: reference.Base) -> None:
    """One step, so that the precision is estimated from Soft-KMEANS alone."""
    support, labels, query, _ = tasks_of(features, 6, queries=30)
    params: dict[str, Any] = {"t_km": 20.0, "sigma": 10.0, "steps": 1}
    predicted = fsbench.predict("bavardage", support, labels, query, base=features.statistics, tau="learned", **params)
    for b in range(6):
        rows = np.concatenate([support[b], query[b]])
        x = reference.cl2n(rows, base.mean)
        o = algorithms.soft_kmeans(x, np.eye(5)[labels[b]], 20.0, 5)
        u = algorithms.plda(algorithms.sphere(x, base.scatter, 10.0), o, 10.0)
        m = o.T @ u / (10.0 + o.sum(axis=0))[:, None]
        tau = 4 * len(x) / (o * algorithms.squared_distances(u, m)).sum()
        method = reference.configured(features.statistics, tau=tau, **params)
        np.testing.assert_allclose(predicted[b], reference.bavardage(rows, labels[b], base, method), atol=1e-8)
