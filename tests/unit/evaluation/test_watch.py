from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fsbench.evaluation.task_views import watch
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import job, runner, source_in_memory

if TYPE_CHECKING:
    from fsbench.evaluation.source import Source
    from tests.synthetic import Features


@pytest.fixture(scope="module")
def source(features: Features) -> Source:
    return source_in_memory(features)


@pytest.mark.parametrize("protocol", [
    TaskProtocol(ways=3),
    TaskProtocol(ways=4, shots=5, queries=40, alpha=None),
    TaskProtocol("released", queries=30),
    TaskProtocol("veilleux", queries=150, alpha=0.5),
])  # fmt: skip
def test_a_watched_task_is_the_one_that_solve_gets(source: Source, protocol: TaskProtocol) -> None:
    tasks, seed = 8, 7
    seen = [watch(source, protocol, seed, task, {}) for task in range(tasks)]
    if protocol.overlapping:  # some tasks have fewer queries than asked for
        assert len({len(task.query_labels) for task in seen}) > 1
    for name, title in (("ncm", "NCM"), ("soft-kmeans", "Soft-KMEANS"), ("bavardage", "BAVARDAGE")):
        record = runner().run(job(source, name, tasks, protocol, seed=seed))
        for task, labels, predicted in zip(seen, record.labels, record.predicted, strict=True):
            np.testing.assert_array_equal(task.query_labels, labels[labels >= 0])
            np.testing.assert_array_equal(task.right(task.last_steps[title]), (predicted == labels)[labels >= 0])


def test_parameters_reach_the_method_and_the_title(source: Source) -> None:
    options: dict[str, Any] = {"variant": "released", "t_km": 7.0, "sigma": 3.0, "steps": 2, "km_steps": 4}
    seen = watch(source, TaskProtocol(ways=3, alpha=None), 5, 9, options)
    assert seen.assignments.shape == (6, 3 + 75, 3)
    assert seen.last_steps == {"NCM": 0, "Soft-KMEANS": 3, "BAVARDAGE": 5}
    np.testing.assert_array_equal(seen.assignments[:, :3], np.broadcast_to(np.eye(3), (6, 3, 3)))  # the support
    where, how = seen.title.split("\n")
    assert where.endswith("task 9 of seed 5, 3-way 1-shot, balanced")
    assert how == "BAVARDAGE (released): T_km = 7, τ = 0.3, σ = 3, 4+2 steps"
