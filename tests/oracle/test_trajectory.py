"""Soft-KMEANS and BAVARDAGE stopped after every number of steps, against the article's algorithms stopped as early."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fsbench
from tests.oracle import reference
from tests.oracle.test_bavardage import tasks_of

if TYPE_CHECKING:
    from tests.synthetic import Features


@pytest.mark.parametrize("variant", ["article", "released"])
@pytest.mark.parametrize("balanced", [False, True])
def test_every_step_equals_the_loops(features: Features, variant: str, balanced: bool) -> None:
    base = features.statistics
    loops = reference.Base.fit(features.base.features, features.base.labels)
    support, labels, query, _ = tasks_of(features, 3, ways=3, shots=2, queries=20)
    rows = np.concatenate([support, query], axis=1)
    for steps in range(1, 6):
        shown = fsbench.predict("soft-kmeans", support, labels, query, base=base, t_km=20.0, km_steps=steps)
        for b in range(3):
            expected = reference.soft_kmeans(reference.cl2n(rows[b], loops.mean), labels[b], 20.0, steps=steps)
            np.testing.assert_allclose(shown[b], expected, atol=1e-9)
    params: dict[str, Any] = {"t_km": 20.0, "t_vb": 15.0, "s_max": 1.4, "variant": variant, "balanced": balanced}
    for steps in range(1, 5):
        shown = fsbench.predict("bavardage", support, labels, query, base=base, steps=steps, **params)
        method = reference.configured(base, steps=steps, **params)
        for b in range(3):
            np.testing.assert_allclose(shown[b], reference.bavardage(rows[b], labels[b], loops, method), atol=1e-8)


def test_the_first_step_answers_like_the_nearest_class_mean(features: Features) -> None:
    support, labels, query, _ = tasks_of(features, 10)
    first = fsbench.predict("soft-kmeans", support, labels, query, base=features.statistics, km_steps=1)
    nearest = fsbench.predict("ncm", support, labels, query, base=features.statistics)
    np.testing.assert_array_equal(first.argmax(axis=2), nearest.argmax(axis=2))
