"""SimpleShot, PT-MAP, BD-CSPN, LaplacianShot, PADDLE, BMS, protoLP, UNEM and iLPC against the loop versions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fsbench.methods.base import Context
from fsbench.methods.laplacianshot import LaplacianShot
from tests.oracle import rivals_centroids as loops
from tests.oracle.algorithms import soft_kmeans
from tests.oracle.reference import UNEQUAL, Tasks, cl2n, tasks_of
from tests.synthetic import Features, make_features

SETTINGS = pytest.mark.parametrize(
    "rules",
    [
        *({"shots": shots, "alpha": alpha} for shots in (1, 5) for alpha in (2.0, None)),
        {"shots": 3, "ways": 4, "queries": 22, "alpha": 2.0},
        {"shots": 1, "ways": 7, "queries": 40, "alpha": 2.0},
        {"shots": 8, "unequal": UNEQUAL, "queries": 40, "alpha": 2.0},  # eight on average
    ],
    ids=str,
)
Rules = dict[str, Any]
laplacianshot: Any = loops.laplacianshot


def shares_of_bms(*task: Any, **params: Any) -> Any:
    plan = loops.bms(*task, **params)
    return plan / plan.sum(axis=1, keepdims=True)


def slow_versions(mean: Any, shots: int, balanced: bool) -> dict[str, tuple[Callable[..., Any], float]]:
    """What a method gives with its defaults, by name, and how closely."""
    weight = {(True, True): 0.7, (True, False): 0.3, (False, True): 1.0, (False, False): 0.7}[balanced, shots == 1]
    start = float(np.log(1 + np.e))
    return {
        "simpleshot": (partial(loops.simpleshot, mean=mean, norm="CL2N"), 1e-9),
        "simpleshot:L2N": (partial(loops.simpleshot, mean=None, norm="L2N"), 1e-9),
        "simpleshot:UN": (partial(loops.simpleshot, mean=None, norm="UN"), 1e-9),
        "pt-map": (partial(loops.pt_map, tolerance=1e-9, rounds=20_000), 1e-5),
        "bd-cspn": (partial(loops.bd_cspn, mean=mean), 1e-9),
        "laplacianshot": (lambda *task: laplacianshot(*task, mean, weight=weight, rectify=balanced)[0], 1e-9),
        "paddle": (loops.paddle, 1e-5),
        "bms": (shares_of_bms, 1e-5),
        "unem-gaussian": (partial(loops.unem, scale=start, balance=[start] * 10, temperature=[1 + start] * 10), 1e-5),
    }


@SETTINGS
@pytest.mark.parametrize("name", slow_versions(None, 1, True))
def test_defaults(features: Features, name: str, rules: Rules) -> None:
    base, tasks, balanced = features.statistics, tasks_of(features, 5, **rules), rules["alpha"] is None
    tasks.query[..., 7] = tasks.query[:, :1, 7]  # a coordinate in which the queries do not differ
    slow, atol = slow_versions(base.mean.numpy(), rules["shots"], balanced)[name]
    predicted = tasks.agree(name, slow, atol, base=base, balanced=balanced)
    if name == "pt-map":
        np.testing.assert_allclose(predicted.sum(axis=1), predicted.shape[1] / predicted.shape[2], atol=1e-6)


@pytest.mark.parametrize("shots", [1, 4])
def test_lda(features: Features, shots: int) -> None:
    base, tasks = features.statistics, tasks_of(features, 5, shots=shots)
    mean, ridge = base.mean.numpy(), 1e-6 * np.eye(48)
    released = (base.class_weighted.numpy() + ridge) / base.images_per_class
    for scatter, matrix in (("article", base.scatter.numpy()), ("released", released)):
        slow = partial(loops.lda, mean=mean, scatter=matrix, sigma=5.0)
        tasks.agree("lda", slow, 1e-8, base=base, scatter=scatter, sigma=5.0)
    tasks.agree("lda:ridge", loops.lda_ridge, 1e-8)
    tasks_of(make_features(dimension=12, seed=5), 5, (3, 1, 2, 6, 3)).agree("lda:ridge", loops.lda_ridge, 1e-8)


@pytest.mark.parametrize("name", [name for name in slow_versions(None, 1, True) if name != "simpleshot:UN"])
def test_more_samples_than_features(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbench.methods.neighbours._AT_ONCE", 6 * 33 * 10)  # ten rows at a time
    data = make_features(dimension=12, seed=5)
    slow, _ = slow_versions(data.statistics.mean.numpy(), 2, False)[name]
    tasks_of(data, 6, (3, 1, 2, 1, 3), queries=33).agree(name, slow, base=data.statistics)


@SETTINGS
def test_pt_map_like_the_released_program(features: Features, rules: Rules) -> None:
    """With its stop test, and with and without its QR reduction."""
    for reduce in (False, True):
        tasks_of(features, 5, **rules).agree("pt-map", partial(loops.pt_map, reduce=reduce), atol=1e-3)


def test_bd_cspn_keeps_the_mean_of_a_class_that_nothing_belongs_to(features: Features) -> None:
    """The mean of class 2 lies between those of the others, and every sample is closer to one of these."""
    base, ends = features.statistics, np.eye(48)[:2]
    mean, labels = base.mean.numpy(), np.array([[0, 0, 1, 1, 2, 2]])
    support = np.stack([ends[0], ends[0], ends[1], ends[1], ends[0], ends[1]])
    query = np.repeat(ends, 20, axis=0) + 0.05 * np.random.default_rng(2).normal(size=(40, 48))
    tasks = Tasks(support[None] + mean, labels, query[None] + mean)
    x = cl2n(tasks.rows[0], mean)
    means, moved = loops.class_means(x, labels[0], 3), loops.rectified(x, labels[0], 3)
    np.testing.assert_array_equal(moved[2], means[2])
    assert (np.linalg.norm(moved[:2] - means[:2], axis=1) > 0.02).all()
    tasks.agree("bd-cspn", partial(loops.bd_cspn, mean=mean), atol=1e-9, base=base)


@pytest.mark.parametrize("weight", [0.5, 0.003])
def test_tasks_of_a_batch_settle_at_different_times_after_the_second_update(features: Features, weight: float) -> None:
    base, tasks = features.statistics, tasks_of(features, 12, queries=40)
    updates: list[int] = []

    def slow(*task: Any) -> Any:
        y, made = laplacianshot(*task, base.mean.numpy(), weight=weight, rectify=False)
        updates.append(made)
        return y

    predicted = tasks.agree("laplacianshot", slow, 1e-9, base=base, weight=weight)
    assert {*updates} == {3} if weight == 0.003 else 3 <= min(updates) < max(updates)
    further = tasks.predict("laplacianshot", base=base, weight=weight, steps=max(updates))
    np.testing.assert_array_equal(predicted, further)


@pytest.mark.parametrize(("rectify", "same"), [(False, "simpleshot"), (True, "bd-cspn")])
def test_laplacianshot_without_neighbours_is_another_method(features: Features, rectify: bool, same: str) -> None:
    tasks, base = tasks_of(features, 6), features.statistics
    predicted = tasks.predict("laplacianshot", base=base, weight=0.0, rectify=rectify)
    np.testing.assert_allclose(predicted, tasks.predict(same, base=base), atol=1e-12)


@pytest.mark.parametrize(
    ("preset", "balanced", "shots", "expected"),
    [
        ("mini", True, 1, (0.7, True)),
        ("tiered", True, 5, (0.1, True)),
        ("tiered", False, 1, (1.0, False)),
        ("cub", False, 5, (0.8, False)),
        ("", False, 5, (0.7, False)),
    ],
)
def test_parameters_of_laplacianshot(preset: str, balanced: bool, shots: int, expected: tuple[float, bool]) -> None:
    method = LaplacianShot.configure(Context(balanced=balanced, shots=shots, preset=preset))
    assert (method.weight, method.rectify) == expected
    assert (method.neighbours, method.steps) == (2, 20)


def test_paddle_does_not_see_a_common_shift(features: Features) -> None:
    tasks, shift = tasks_of(features, 6), 5 * np.random.default_rng(0).normal(size=48)
    moved = Tasks(tasks.support + shift, tasks.labels, tasks.query + shift)
    np.testing.assert_allclose(moved.predict("paddle"), tasks.predict("paddle"), atol=1e-6)


def test_paddle_without_penalty_is_soft_k_means(features: Features) -> None:
    def k_means(rows: Any, labels: Any, ways: int) -> Any:
        z = rows.astype(np.float64) / (rows[5:].max(axis=0) - rows[5:].min(axis=0))
        return soft_kmeans(z, np.eye(ways)[labels], 0.5, 30)[5:]

    tasks_of(features, 6).agree("paddle", k_means, 1e-6, weight=0.0, steps=30)


def test_bms_with_a_scale_that_empties_classes(features: Features) -> None:
    tasks_of(features, 6, alpha=0.3, queries=40).agree("bms", partial(shares_of_bms, scale=60.0), scale=60.0)


@SETTINGS
@pytest.mark.parametrize(("graph", "weight", "share"), [("normalised", 1.0, 0.6), ("anchor", 0.05, 0.7)])  # as released
def test_protolp(features: Features, graph: str, weight: float, share: float, rules: Rules) -> None:
    balanced = rules["alpha"] is None
    slow = partial(loops.protolp, graph=graph, even=balanced, weight=weight, share=share, rounds=12)
    tasks_of(features, 2, **rules).agree("protolp", slow, 1e-4, graph=graph, rounds=12, balanced=balanced)


@SETTINGS
def test_unem_with_coefficients_of_every_iteration(features: Features, rules: Rules) -> None:
    balance, temperature = [0.1 * n for n in range(10)], [1 + 0.2 * n for n in range(10)]
    words: dict[str, Any] = {"balance": ",".join(map(str, balance)), "temperature": ",".join(map(str, temperature))}
    slow = partial(loops.unem, scale=2.0, balance=balance, temperature=temperature)
    tasks_of(features, 5, **rules).agree("unem-gaussian", slow, scale=2.0, **words)


@SETTINGS
def test_ilpc(features: Features, rules: Rules) -> None:
    tasks = tasks_of(features, 3, **rules)
    propagation, neighbours = (0.9, 10) if rules["shots"] >= 5 else (0.8, 20)
    expected = tasks.slowly(partial(loops.ilpc, propagation=propagation, neighbours=neighbours, steps=60))
    predicted = tasks.predict("ilpc", steps=60, balanced=rules["alpha"] is None)
    chosen = np.take_along_axis(predicted, expected.argmax(axis=2)[:, :, None], axis=2)[:, :, 0]
    assert ((chosen > predicted.max(axis=2) - 1e-9).mean(axis=1) >= 0.995).all()  # the last query can be a tie
