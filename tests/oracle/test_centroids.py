"""SimpleShot, PT-MAP, BD-CSPN, LaplacianShot, PADDLE, BMS, protoLP, UNEM and iLPC against the loop versions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fsbench
from fsbench.methods.base import Context
from fsbench.methods.laplacianshot import LaplacianShot
from tests.oracle import rivals_centroids as loops
from tests.oracle.algorithms import softmax
from tests.oracle.reference import cl2n
from tests.oracle.test_bavardage import tasks_of
from tests.synthetic import Features, make_features

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = pytest.mark.parametrize(
    ("shots", "ways", "queries", "alpha"),
    [(1, 5, 75, 2.0), (1, 5, 75, None), (5, 5, 75, 2.0), (5, 5, 75, None), (3, 4, 22, 2.0), (1, 7, 40, 2.0)],
)
COUNT = 5


def settings_of(alpha: float | None) -> dict[str, Any]:
    return {"balanced": alpha is None}


def agree(found: np.ndarray, rows: Any, labels: np.ndarray, slow: Callable[..., Any], atol: float = 1e-5) -> None:
    """Every task of the batch has the probabilities and the predictions of the loops."""
    expected = np.stack([slow(task, one, int(labels.max()) + 1) for task, one in zip(rows, labels, strict=True)])
    np.testing.assert_allclose(found, expected, atol=atol)
    assert (found.argmax(axis=2) == expected.argmax(axis=2)).mean() >= 0.995


def shares_of_bms(*task: Any, **params: Any) -> np.ndarray:
    plan = loops.bms(*task, **params)
    shares: np.ndarray = plan / plan.sum(axis=1, keepdims=True)
    return shares


@SETTINGS
@pytest.mark.parametrize("norm", ["UN", "L2N", "CL2N"])
def test_simpleshot(features: Features, norm: str, shots: int, ways: int, queries: int, alpha: float | None) -> None:
    support, labels, query, _ = tasks_of(features, COUNT, shots=shots, ways=ways, queries=queries, alpha=alpha)
    base = features.statistics if norm == "CL2N" else None
    mean = base.mean.numpy() if base else None
    found = fsbench.predict("simpleshot", support, labels, query, base=base, norm=norm, **settings_of(alpha))
    rows = np.concatenate([support, query], axis=1)
    agree(found, rows, labels, lambda task, one, k: loops.simpleshot(task, one, k, mean, norm), atol=1e-9)


@SETTINGS
def test_pt_map(features: Features, shots: int, ways: int, queries: int, alpha: float | None) -> None:
    """Against Sinkhorn's iteration carried on to its limit, and stopped like in the released program."""
    support, labels, query, _ = tasks_of(features, COUNT, shots=shots, ways=ways, queries=queries, alpha=alpha)
    found = fsbench.predict("pt-map", support, labels, query, **settings_of(alpha))
    rows = np.concatenate([support, query], axis=1)
    agree(found, rows, labels, lambda task, one, k: loops.pt_map(task, one, k, tolerance=1e-9, rounds=20_000))
    agree(found, rows, labels, loops.pt_map, atol=1e-3)
    np.testing.assert_allclose(found.sum(axis=1), queries / ways, atol=1e-6)  # equal sizes


def test_pt_map_needs_no_reduction(features: Features) -> None:
    support, labels, query, _ = tasks_of(features, 4, queries=30)
    found = fsbench.predict("pt-map", support, labels, query)
    rows = np.concatenate([support, query], axis=1)
    agree(found, rows, labels, lambda task, one, k: loops.pt_map(task, one, k, reduce=True), atol=1e-3)


@SETTINGS
def test_bd_cspn(features: Features, shots: int, ways: int, queries: int, alpha: float | None) -> None:
    support, labels, query, _ = tasks_of(features, COUNT, shots=shots, ways=ways, queries=queries, alpha=alpha)
    base = features.statistics
    found = fsbench.predict("bd-cspn", support, labels, query, base=base, **settings_of(alpha))
    rows = np.concatenate([support, query], axis=1)
    agree(found, rows, labels, lambda task, one, k: loops.bd_cspn(task, one, k, base.mean.numpy()), atol=1e-9)


def test_bd_cspn_keeps_the_mean_of_a_class_that_nothing_belongs_to(features: Features) -> None:
    """The mean of class 2 lies between those of the others, and every sample is closer to one of these."""
    base = features.statistics
    rng = np.random.default_rng(2)
    ends = np.eye(48)[:2]
    support = np.stack([ends[0], ends[0], ends[1], ends[1], ends[0], ends[1]])
    labels = np.array([[0, 0, 1, 1, 2, 2]])
    query = np.repeat(ends, 20, axis=0) + 0.05 * rng.normal(size=(40, 48))
    rows = np.concatenate([support, query])[None] + base.mean.numpy()
    x = cl2n(rows[0], base.mean.numpy())
    means, moved = loops.class_means(x, labels[0], 3), loops.rectified(x, labels[0], 3)
    np.testing.assert_array_equal(moved[2], means[2])
    assert (np.linalg.norm(moved[:2] - means[:2], axis=1) > 0.02).all()
    found = fsbench.predict("bd-cspn", rows[:, :6], labels, rows[:, 6:], base=base)
    agree(found, rows, labels, lambda task, one, k: loops.bd_cspn(task, one, k, base.mean.numpy()), atol=1e-9)


@SETTINGS
def test_laplacianshot(features: Features, shots: int, ways: int, queries: int, alpha: float | None) -> None:
    support, labels, query, _ = tasks_of(features, COUNT, shots=shots, ways=ways, queries=queries, alpha=alpha)
    base = features.statistics
    found = fsbench.predict("laplacianshot", support, labels, query, base=base, **settings_of(alpha))
    rows = np.concatenate([support, query], axis=1)
    weight = {(True, True): 0.7, (True, False): 0.3, (False, True): 1.0, (False, False): 0.7}[alpha is None, shots == 1]
    mean = base.mean.numpy()
    agree(
        found,
        rows,
        labels,
        lambda task, one, k: loops.laplacianshot(task, one, k, mean, weight=weight, rectify=alpha is None)[0],
        atol=1e-9,
    )


def test_tasks_of_a_batch_settle_at_different_times(features: Features) -> None:
    support, labels, query, _ = tasks_of(features, 12, queries=40)
    base = features.statistics
    rows = np.concatenate([support, query], axis=1)
    found = fsbench.predict("laplacianshot", support, labels, query, base=base, weight=0.5)
    slow = [loops.laplacianshot(rows[b], labels[b], 5, base.mean.numpy(), weight=0.5, rectify=False) for b in range(12)]
    np.testing.assert_allclose(found, np.stack([y for y, _ in slow]), atol=1e-9)
    updates = [made for _, made in slow]
    assert min(updates) < max(updates)
    further = fsbench.predict("laplacianshot", support, labels, query, base=base, weight=0.5, steps=max(updates))
    np.testing.assert_array_equal(found, further)


def test_no_task_settles_before_the_third_update(features: Features) -> None:
    support, labels, query, _ = tasks_of(features, 3, queries=40)
    base = features.statistics
    found = fsbench.predict("laplacianshot", support, labels, query, base=base, weight=0.003)
    for b in range(3):
        rows = np.concatenate([support[b], query[b]])
        y, made = loops.laplacianshot(rows, labels[b], 5, base.mean.numpy(), weight=0.003, rectify=False)
        assert made == 3
        np.testing.assert_allclose(found[b], y, atol=1e-13, rtol=0)


def test_laplacianshot_without_neighbours_is_simpleshot(features: Features) -> None:
    support, labels, query, _ = tasks_of(features, 6)
    base = features.statistics
    found = fsbench.predict("laplacianshot", support, labels, query, base=base, weight=0.0, rectify=False)
    expected = fsbench.predict("simpleshot", support, labels, query, base=base)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    found = fsbench.predict("laplacianshot", support, labels, query, base=base, weight=0.0, rectify=True)
    expected = fsbench.predict("bd-cspn", support, labels, query, base=base)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@SETTINGS
def test_paddle(features: Features, shots: int, ways: int, queries: int, alpha: float | None) -> None:
    support, labels, query, _ = tasks_of(features, COUNT, shots=shots, ways=ways, queries=queries, alpha=alpha)
    query[..., 7] = query[:, :1, 7]  # a coordinate in which the queries do not differ
    found = fsbench.predict("paddle", support, labels, query, **settings_of(alpha))
    agree(found, np.concatenate([support, query], axis=1), labels, loops.paddle)


def test_paddle_does_not_see_a_common_shift(features: Features) -> None:
    support, labels, query, _ = tasks_of(features, 6)
    shift = 5 * np.random.default_rng(0).normal(size=48)
    expected = fsbench.predict("paddle", support.astype(np.float64), labels, query.astype(np.float64))
    found = fsbench.predict("paddle", support + shift, labels, query + shift)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_paddle_without_penalty_is_soft_k_means(features: Features) -> None:
    support, labels, query, _ = tasks_of(features, 6)
    found = fsbench.predict("paddle", support, labels, query, weight=0.0, steps=30)
    for b in range(6):
        rows = np.concatenate([support[b], query[b]]).astype(np.float64)
        z = rows / (rows[5:].max(axis=0) - rows[5:].min(axis=0))
        assigned = np.concatenate([np.eye(5)[labels[b]], np.zeros((75, 5))])
        for _ in range(30):
            means = (assigned.T @ z) / assigned.sum(axis=0)[:, None]
            assigned[5:] = softmax(-0.5 * loops.distances(z[5:], means))
        np.testing.assert_allclose(found[b], assigned[5:], atol=1e-6)


@SETTINGS
def test_bms(features: Features, shots: int, ways: int, queries: int, alpha: float | None) -> None:
    support, labels, query, _ = tasks_of(features, COUNT, shots=shots, ways=ways, queries=queries, alpha=alpha)
    found = fsbench.predict("bms", support, labels, query, **settings_of(alpha))
    agree(found, np.concatenate([support, query], axis=1), labels, shares_of_bms)


def test_bms_with_a_scale_that_empties_classes(features: Features) -> None:
    support, labels, query, _ = tasks_of(features, 6, alpha=0.3, queries=40)
    found = fsbench.predict("bms", support, labels, query, scale=60.0)
    agree(
        found,
        np.concatenate([support, query], axis=1),
        labels,
        lambda task, one, k: shares_of_bms(task, one, k, scale=60.0),
    )


@pytest.mark.parametrize("name", ["simpleshot", "pt-map", "bd-cspn", "laplacianshot", "paddle", "bms"])
@pytest.mark.parametrize("dimension", [48, 12])
def test_unequal_supports_and_few_dimensions(name: str, dimension: int) -> None:
    """Support counts 3, 1, 2, 1, 3; with 12 features there are more samples than dimensions."""
    data = make_features(dimension=dimension, seed=5)
    support, labels, query, _ = tasks_of(data, 6, shots=3, queries=33)
    counts = [3, 1, 2, 1, 3]
    kept = np.stack([np.concatenate([np.flatnonzero(one == k)[: counts[k]] for k in range(5)]) for one in labels])
    support, labels = np.take_along_axis(support, kept[:, :, None], axis=1), np.take_along_axis(labels, kept, axis=1)
    assert (np.bincount(labels.ravel()) == 6 * np.array(counts)).all()
    base = data.statistics
    mean = base.mean.numpy()
    slow: dict[str, Callable[..., Any]] = {
        "simpleshot": lambda task, one, k: loops.simpleshot(task, one, k, mean, "CL2N"),
        "pt-map": lambda task, one, k: loops.pt_map(task, one, k, tolerance=1e-9, rounds=20_000),
        "bd-cspn": lambda task, one, k: loops.bd_cspn(task, one, k, mean),
        "laplacianshot": lambda task, one, k: loops.laplacianshot(task, one, k, mean, weight=0.7, rectify=False)[0],
        "paddle": loops.paddle,
        "bms": shares_of_bms,
    }
    found = fsbench.predict(name, support, labels, query, base=base)
    agree(found, np.concatenate([support, query], axis=1), labels, slow[name])


@pytest.mark.parametrize(
    ("preset", "balanced", "shots", "expected"),
    [
        ("mini", True, 1, (0.7, True)),
        ("mini", True, 5, (0.3, True)),
        ("tiered", True, 5, (0.1, True)),
        ("cub", True, 20, (0.3, True)),
        ("", True, 1, (0.7, True)),
        ("mini", False, 1, (1.0, False)),
        ("mini", False, 5, (0.7, False)),
        ("tiered", False, 1, (1.0, False)),
        ("tiered", False, 10, (0.7, False)),
        ("cub", False, 1, (1.0, False)),
        ("cub", False, 5, (0.8, False)),
        ("", False, 5, (0.7, False)),
    ],
)
def test_parameters_of_laplacianshot(preset: str, balanced: bool, shots: int, expected: tuple[float, bool]) -> None:
    method = LaplacianShot.configure(Context(balanced=balanced, shots=shots, preset=preset))
    assert (method.weight, method.rectify) == expected
    assert (method.neighbours, method.steps) == (2, 20)


@SETTINGS
@pytest.mark.parametrize("graph", ["normalised", "anchor"])
def test_protolp(features: Features, graph: str, shots: int, ways: int, queries: int, alpha: float | None) -> None:
    support, labels, query, _ = tasks_of(features, 2, shots=shots, ways=ways, queries=queries, alpha=alpha)
    released = {"normalised": (1.0, 0.6, 100), "anchor": (0.05, 0.7, 50)}[graph]
    params: dict[str, Any] = {**dict(zip(("weight", "share", "rounds"), released, strict=True)), "rounds": 12}
    assignment = "transport" if alpha is None else "softmax"
    found = fsbench.predict("protolp", support, labels, query, graph=graph, rounds=12, **settings_of(alpha))
    rows = np.concatenate([support, query], axis=1)
    slow = partial(loops.protolp, graph=graph, assignment=assignment, **params)
    agree(found, rows, labels, slow, atol=1e-4)


@SETTINGS
@pytest.mark.parametrize("varied", [False, True])
def test_unem(features: Features, varied: bool, shots: int, ways: int, queries: int, alpha: float | None) -> None:
    support, labels, query, _ = tasks_of(features, COUNT, shots=shots, ways=ways, queries=queries, alpha=alpha)
    one = np.log(1 + np.e)
    balance, temperature = [one] * 10, [1 + one] * 10
    params: dict[str, Any] = {}
    if varied:
        balance, temperature = [0.1 * n for n in range(10)], [1 + 0.2 * n for n in range(10)]
        params = {"scale": 2.0, "balance": ",".join(map(str, balance)), "temperature": ",".join(map(str, temperature))}
    found = fsbench.predict("unem-gaussian", support, labels, query, **params, **settings_of(alpha))
    rows = np.concatenate([support, query], axis=1)
    slow = partial(loops.unem, scale=2.0 if varied else one, balance=balance, temperature=temperature)
    agree(found, rows, labels, slow)


@SETTINGS
def test_ilpc(features: Features, shots: int, ways: int, queries: int, alpha: float | None) -> None:
    support, labels, query, _ = tasks_of(features, 3, shots=shots, ways=ways, queries=queries, alpha=alpha)
    found = fsbench.predict("ilpc", support, labels, query, steps=60, **settings_of(alpha))
    propagation, neighbours = (0.9, 10) if shots >= 5 else (0.8, 20)
    for b in range(3):
        rows = np.concatenate([support[b], query[b]])
        slow = loops.ilpc(rows, labels[b], ways, propagation=propagation, neighbours=neighbours, steps=60)
        assert (found[b].argmax(axis=1) == slow.argmax(axis=1)).mean() >= 0.995
