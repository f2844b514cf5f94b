"""Baseline, entropy-min, TIM, α-TIM, AM and α-AM against the loop versions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from fsbench.methods.base import Context
from fsbench.methods.registry import method_class
from fsbench.tasks.batch import TaskBatch
from tests.oracle import rivals_gradients as rivals
from tests.oracle.algorithms import softmax
from tests.oracle.reference import UNEQUAL, Tasks, tasks_of
from tests.oracle.rivals_centroids import class_means, plc, unit
from tests.synthetic import Features, make_features

SIZES = pytest.mark.parametrize(
    ("shots", "ways", "queries"), [(1, 5, 30), (5, 5, 30), (3, 4, 20), (1, 2, 9), (UNEQUAL, 5, 30)]
)
SETTINGS = pytest.mark.parametrize("balanced", [False, True])


def fitted(marginal: float, order: float, rate: float = 1e-3, steps: int = 60) -> Callable[..., Any]:
    """TIM-GD, α-TIM or entropy-min, as a function of a task."""

    def slow(rows: Any, labels: Any, ways: int) -> Any:
        x = unit(rows.astype(np.float64))
        w = rivals.head(x, labels, ways, terms=(1, marginal, 1), order=order, rate=rate, steps=steps)
        return softmax(rivals.head_logits(x[len(labels) :], w, 15.0))

    return slow


def baseline(rows: Any, labels: Any, ways: int, cosine: bool = False) -> Any:
    x, shots = rows.astype(np.float64), len(labels)
    w = rivals.head(x[:shots], labels, ways, terms=(1, 0, 0), rate=1e-3, steps=100)
    return softmax(15.0 * rivals.cosines(x[shots:], w) if cosine else rivals.head_logits(x[shots:], w, 15.0))


def tim_adm(rows: Any, labels: Any, ways: int) -> Any:
    return rivals.tim_adm(unit(rows.astype(np.float64)), labels, ways, lam=0.1, b=1.0, c=0.1, steps=150)


@SIZES
@SETTINGS
@pytest.mark.parametrize("name", ["baseline", "baseline++", "tim-adm", "entropy-min:head", "tim-gd", "alpha-tim"])
def test_heads(features: Features, name: str, balanced: bool, shots: Any, ways: int, queries: int) -> None:
    """With the parameters that the settings call for, and steps that are large enough to leave the class means."""
    alpha = None if balanced else 2.0
    slow: dict[str, Callable[..., Any]] = {
        "baseline": baseline,
        "baseline++": partial(baseline, cosine=True),
        "tim-adm": tim_adm,
        "entropy-min:head": fitted(0.0, 1.0),
        "tim-gd": fitted(10.0 if balanced else 1.0, 1.0),
        "alpha-tim": fitted(1.0, {1: 2.0, 3: 5.0, 5: 7.0, UNEQUAL: 7.0}[shots]),
    }
    steps = {} if name.startswith("baseline") or name == "tim-adm" else {"rate": 1e-3, "steps": 60}
    unequal, shots = (shots, 8) if shots == UNEQUAL else ((), shots)
    tasks = tasks_of(features, 2, unequal, shots=shots, ways=ways, queries=queries, alpha=alpha)
    tasks.agree(name, slow[name], 1e-3, balanced=balanced, **steps)


@pytest.mark.parametrize(("name", "order"), [("tim-gd", 1.0), ("alpha-tim", 2.0)])
def test_the_whole_schedule(features: Features, name: str, order: float) -> None:
    """A thousand steps, as the defaults have it, in float64 and in the engine's float32."""
    tasks = tasks_of(features, 1, queries=20)
    expected = tasks.agree(name, fitted(1.0, order, rate=1e-4, steps=1000), 1e-3)
    method, rows = method_class(name).configure(Context(balanced=False)), torch.from_numpy(tasks.rows).float()
    with torch.inference_mode():
        short = method.classify(TaskBatch(method.embed(rows, None), torch.from_numpy(tasks.labels), 5)).numpy()
    np.testing.assert_allclose(short, expected, atol=1e-3)


def test_tim_adm_with_more_samples_than_features() -> None:
    tasks_of(make_features(dimension=12, seed=5), 2, shots=2, queries=40).agree("tim-adm", tim_adm, 1e-3)


@SETTINGS
@pytest.mark.parametrize(
    ("chain", "shots", "ways", "queries"),
    [("PLC", 1, 3, 12), ("L2N", 1, 3, 12), ("PLC", 5, 2, 8), ("L2N", 2, 4, 9), ("PLC", (1, 20), 2, 6)],
)
def test_am_and_alpha_am(balanced: bool, chain: str, shots: Any, ways: int, queries: int) -> None:
    """Small tasks: the reference differentiates numerically in every coordinate."""
    unequal, shots = (shots, sum(shots) // ways) if isinstance(shots, tuple) else ((), shots)
    name, many = ("am", shots > 1) if balanced else ("alpha-am", shots >= 5)
    neighbours = 6 if shots == 1 else 10 if many else 20  # fewer than all, and all
    objective = {"terms": (1.0, 10.0 if balanced else 1.0, 1.0), "order": 1.0 if balanced else 5.0 if many else 2.0}

    def slow(rows: Any, *task: Any) -> Any:
        x = plc(rows) if chain == "PLC" else unit(rows.astype(np.float64))
        schedule: dict[str, Any] = {"steps": 8, "rate": 3e-3, "alpha": 0.9 if many else 0.8, **objective}
        return rivals.alpha_am(x, *task, k=neighbours, **schedule)

    alpha = None if balanced else 2.0
    data = make_features(dimension=6, seed=2)
    tasks = tasks_of(data, 2, unequal, shots=shots, ways=ways, queries=queries, alpha=alpha)
    params = {"balanced": balanced, "chain": chain, "steps": 8, "rate": 3e-3, "neighbours": neighbours}
    tasks.agree(name, slow, 1e-6, **params)


def test_scaling_the_weights_of_tim_does_not_change_its_path(features: Features) -> None:
    """Adam divides by the size of the gradients, up to its ε."""
    tasks = tasks_of(features, 6)
    one = tasks.predict("tim-gd", balanced=True, steps=200)
    other = tasks.predict("tim-gd", cross_entropy=0.1, marginal=1.0, conditional=0.1, steps=200)
    np.testing.assert_allclose(one, other, atol=1e-5)
    assert np.abs(one - tasks.predict("tim-gd", balanced=False, steps=200)).max() > 1e-2


def test_limits_of_tim(features: Features) -> None:
    """Without marginal entropy it is entropy-min, and α-TIM approaches it at order 1."""
    tasks = tasks_of(features, 6)
    without = tasks.predict("tim-gd", marginal=0.0, steps=200)
    np.testing.assert_array_equal(without, tasks.predict("entropy-min:head", steps=200))
    tim = tasks.predict("tim-gd", steps=200)
    there, near, far = (tasks.predict("alpha-tim", order=order, steps=200) for order in (1.0, 1.0001, 2.0))
    np.testing.assert_array_equal(there, tim)
    np.testing.assert_allclose(near, tim, atol=1e-4)
    assert 0 < np.abs(near - tim).max() < 1e-2 < np.abs(far - tim).max()


def test_a_lost_support_sample_no_longer_pulls() -> None:
    """p_y far below ε: with −log(p_y + ε) the sample has no weight, and the head stays at the class means."""
    support = np.array([[[0.0, 0.0], [40.0, 0.0], [40.0, 0.0], [30.0, 0.0]]])
    labels = np.array([[0, 0, 1, 1]])  # the second sample lies beyond the mean of the other class
    query = np.array([[[27.5, 1.0], [27.51, 0.0]]])  # halfway between the means, where any move of them shows
    w = rivals.head(support[0], labels[0], 2, terms=(1, 0, 0), rate=1e-3, steps=100)
    np.testing.assert_allclose(w, class_means(support[0], labels[0], 2), atol=1e-9)
    Tasks(support, labels, query).agree("baseline", baseline, 1e-9)
