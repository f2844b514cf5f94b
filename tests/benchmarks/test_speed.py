"""Speed, as `fsbench bench` measures it: what must hold on any machine. Busy machines make ratios worse, not better."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from fsbench.bench import cases, solver
from fsbench.bench.measure import mini_like
from fsbench.evaluation.engine import TaskList, solve_tasks
from fsbench.methods.bavardage import Bavardage
from fsbench.report.tables import measures_table, stdout_console
from fsbench.tasks.protocol import TaskProtocol

if TYPE_CHECKING:
    from fsbench.bench.measure import Measure

pytestmark = pytest.mark.slow


def shown(measures: list[Measure]) -> dict[str, float]:
    print()
    stdout_console().print(measures_table(measures))
    return {f"{measure.case} / {measure.against}": measure.value for measure in measures}


def test_the_solver_is_close_to_the_machine_and_far_from_a_loop() -> None:
    values = shown(solver.against_the_machine(10_000, 5))
    assert values["solve article / batched matrix products of its Gram matrices"] >= 50
    assert values["solve article / a NumPy loop over tasks"] >= 8
    assert values["solve released / a NumPy loop over tasks"] >= 5


@pytest.mark.parametrize("variant", ["article", "released"])
def test_the_loop_that_is_raced_gives_the_same_answers(variant: str) -> None:
    material, method = mini_like(), Bavardage(variant=variant)  # type: ignore[arg-type]
    shared = solver.shared_by_all_tasks(method, material)
    outcome = solve_tasks(method, material.novel, material.base, TaskList(TaskProtocol(), 0, 100), device=solver.CPU)
    right = solver.solve_in_a_loop(method, shared, material.novel.offsets, range(100))
    assert abs(np.array(right) - outcome.correct).max() <= 1  # but for ties in float32


def test_cost_grows_as_the_arithmetic_does() -> None:
    values = shown(solver.as_the_problem_grows(1_000, 3))
    assert next(value for name, value in values.items() if "10 times the tasks" in name) < 1.3
    assert next(value for name, value in values.items() if "twice the features" in name) < 2.6


def test_the_other_stages() -> None:
    values = shown([*cases.scatter(5), *cases.extraction(3), *cases.start(5), *cases.memory(1_000, 10_000, 100_000)])
    by_case = {name.split(" / ")[0]: value for name, value in values.items()}
    assert by_case["scatter, from disk"] >= 50
    assert next(value for name, value in by_case.items() if name.startswith("extract")) < 1.25  # 1.1 on a quiet machine
    assert by_case["fsbench --help"] < 3
    assert by_case["peak memory, 100,000 tasks"] < by_case["peak memory, 1,000 tasks"] + 0.2
