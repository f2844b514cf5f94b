"""Every step of the way through a task against the article's algorithms, stopped after as many steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fsbench
from tests.oracle import reference
from tests.oracle.test_bavardage import tasks_of

if TYPE_CHECKING:
    from tests.synthetic import Features

PARAMS: dict[str, Any] = {"t_km": 20.0, "t_vb": 15.0, "s_max": 1.4}


@pytest.mark.parametrize("variant", ["article", "released"])
@pytest.mark.parametrize("balanced", [False, True])
def test_every_step_equals_the_loops(features: Features, variant: str, balanced: bool) -> None:
    loops = reference.Base.fit(features.base.features, features.base.labels)
    support, labels, query, _ = tasks_of(features, 3, ways=3, shots=2, queries=20)
    params = {**PARAMS, "variant": variant, "balanced": balanced}
    steps = fsbench.trajectory("bavardage", support, labels, query, base=features.statistics, steps=4, **params)
    assert steps.shape == (5 + 4, 3, 20, 3)
    for b in range(3):
        rows = np.concatenate([support[b], query[b]])
        x = reference.cl2n(rows, loops.mean)
        for step in range(5):
            expected = reference.soft_kmeans(x, labels[b], PARAMS["t_km"], steps=step + 1)
            np.testing.assert_allclose(steps[step, b], expected, atol=1e-9)
        for step in range(4):
            method = reference.configured(features.statistics, steps=step + 1, **params)
            expected = reference.bavardage(rows, labels[b], loops, method)
            np.testing.assert_allclose(steps[5 + step, b], expected, atol=1e-8)


def test_the_first_step_answers_like_the_nearest_class_mean(features: Features) -> None:
    support, labels, query, _ = tasks_of(features, 10)
    first = fsbench.trajectory("soft-kmeans", support, labels, query, base=features.statistics)[0]
    nearest = fsbench.predict("ncm", support, labels, query, base=features.statistics)
    np.testing.assert_array_equal(first.argmax(axis=2), nearest.argmax(axis=2))


@pytest.mark.parametrize("method", ["soft-kmeans", "bavardage", "bavardage:released"])
def test_the_last_step_is_the_prediction(features: Features, method: str) -> None:
    support, labels, query, _ = tasks_of(features, 4)
    steps = fsbench.trajectory(method, support, labels, query, base=features.statistics)
    np.testing.assert_array_equal(steps[-1], fsbench.predict(method, support, labels, query, base=features.statistics))
    assert not np.array_equal(steps[-1], steps[-2])


def test_a_method_without_steps_is_refused(features: Features) -> None:
    support, labels, query, _ = tasks_of(features, 1)
    with pytest.raises(fsbench.FsbenchError, match="ncm does not show its steps"):
        fsbench.trajectory("ncm", support, labels, query, base=features.statistics)
