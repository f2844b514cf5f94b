"""Speed, as `fsbench bench` measures it: what must hold on any machine. Busy machines make ratios worse, not better."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fsbench.bench import solver, stages
from fsbench.bench.material import Material, mini_like
from fsbench.evaluation.engine import TaskList, solve_tasks
from fsbench.methods.bavardage import Bavardage
from fsbench.report.tables import measures_table, stdout_console
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.oracle import reference

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
    assert values["solve article / a careful NumPy loop over tasks"] >= 8
    assert values["solve released / a careful NumPy loop over tasks"] >= 5


@pytest.mark.parametrize(("variant", "at_least"), [("article", 25), ("released", 10)])
def test_the_solver_against_the_equations_one_by_one(variant: str, at_least: float) -> None:
    material, method, tasks = mini_like(), Bavardage(variant=variant), 2_000  # type: ignore[arg-type]
    solver.solve(method, material, 100)
    started = time.perf_counter()
    solver.solve(method, material, tasks)
    ours = (time.perf_counter() - started) / tasks
    ratio = seconds_by_the_equations(method, material, tasks=20) / ours
    print(f"\n{variant}: {ratio:.0f} times the equations one by one")
    assert ratio >= at_least


def seconds_by_the_equations(method: Bavardage, material: Material, tasks: int) -> float:
    """Seconds per task of Algorithm 1, equation by equation; the sphering of `article`, one for all tasks, is given."""
    base, novel = material.base, material.novel
    fitted = reference.Base(base.mean.numpy(), base.scatter.numpy(), base.class_weighted.numpy(), base.images_per_class)
    drawn = sample_tasks(TaskProtocol(), novel.offsets, 0, np.arange(tasks))
    table, _ = solver.shared_by_all_tasks(method, material)
    n = base.images_per_class
    started = time.perf_counter()
    for b in range(tasks):
        rows = np.concatenate([drawn.support[b], drawn.query[b]])
        reference.bavardage(
            novel.features[rows], drawn.support_labels[b], 5, fitted, variant=method.variant, t_km=method.t_km,
            t_vb=float(method.tau) * n, s_max=method.sigma / n**0.5, balanced=False,
            sphered=table[rows, 640:].astype(np.float64) / n**0.5 if method.variant == "article" else None,
        )  # fmt: skip
    return (time.perf_counter() - started) / tasks


@pytest.mark.parametrize("variant", ["article", "released"])
def test_the_loop_that_is_raced_gives_the_same_answers(variant: str) -> None:
    material, method = mini_like(), Bavardage(variant=variant)  # type: ignore[arg-type]
    table, inverse = solver.shared_by_all_tasks(method, material)
    outcome = solve_tasks(method, material.novel, material.base, TaskList(TaskProtocol(), 0, 100), device=solver.CPU)
    right = solver.solve_in_a_loop(method, table, inverse, material.novel.offsets, range(100))
    assert abs(np.array(right) - outcome.correct).max() <= 1  # but for ties in float32


def test_cost_grows_as_the_arithmetic_does() -> None:
    values = shown(solver.as_the_problem_grows(1_000, 3))
    assert next(value for name, value in values.items() if "10 times the tasks" in name) < 1.3
    assert next(value for name, value in values.items() if "twice the features" in name) < 2.6


def test_the_other_stages() -> None:
    values = shown(
        [*stages.scatter(5), *stages.extraction(3), *stages.start(5), *stages.memory(1_000, 10_000, 100_000)]
    )
    by_case = {name.split(" / ")[0]: value for name, value in values.items()}
    assert by_case["scatter, from disk"] >= 50
    assert next(value for name, value in by_case.items() if name.startswith("extract")) < 1.25  # 1.1 on a quiet machine
    assert by_case["fsbench --help"] < 3
    assert by_case["peak memory, 100,000 tasks"] < by_case["peak memory, 1,000 tasks"] + 0.2
