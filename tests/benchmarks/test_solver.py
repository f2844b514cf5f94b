"""The solver against a plain loop over tasks, in one run. Ratios, never seconds: machines are shared."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from fsbench.devices import peak_memory
from fsbench.evaluate.engine import solve_tasks
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import Split, make_split
from fsbench.methods.bavardage import RIDGE, Bavardage
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.benchmarks import loop
from tests.oracle import reference

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")
D = 640


def mini_like() -> tuple[Split, Split]:
    """As many classes, images and features as a WRN gives for mini-ImageNet (fewer base images)."""
    rng = np.random.default_rng(0)

    def draw(classes: int, images: int) -> Split:
        labels = np.repeat(np.arange(classes), images)
        means = rng.random((classes, D), dtype=np.float32)
        return make_split(
            np.maximum(means[labels] + 0.5 * rng.standard_normal((len(labels), D), dtype=np.float32), 0), labels
        )

    return draw(64, 100), draw(20, 600)


@pytest.mark.parametrize(("variant", "at_least"), [("article", 3), ("released", 3)])
def test_speed_against_loops_over_tasks(variant: str, at_least: float) -> None:
    """Against two loops: NumPy's matrix products as a careful user would write them, and the equations one by one."""
    base, novel = mini_like()
    statistics = BaseStatistics.fit(base.features, base.labels)
    method = Bavardage(variant=variant)  # type: ignore[arg-type]
    count = 10_000 if variant == "article" else 2_000
    before = peak_memory(CPU)
    started = time.perf_counter()
    outcome = solve_tasks(method, novel, statistics, TaskProtocol(), 0, range(count), device=CPU)
    ours = (time.perf_counter() - started) / count
    grown = (peak_memory(CPU) - before) / 2**30

    tasks = 200
    table, inverse = shared_by_all_tasks(method, novel, statistics)
    started = time.perf_counter()
    right = [solve_in_a_loop(method, table, inverse, novel.offsets, task) for task in range(tasks)]
    careful = (time.perf_counter() - started) / tasks / ours
    plain = solve_by_the_equations(method, novel, statistics, table, tasks=20) / ours
    print(f"\n{variant}: {careful:.1f}× a careful loop, {plain:.0f}× the equations, peak memory + {grown:.2f} GB")
    assert abs(np.array(right) - outcome.correct[:tasks]).max() <= 1  # the same answers but for ties in float32
    assert careful >= at_least
    assert plain >= 10
    assert grown < 1.5


def solve_by_the_equations(
    method: Bavardage, novel: Split, base: BaseStatistics, table: loop.Floats, tasks: int
) -> float:
    """Seconds per task of Algorithm 1, equation by equation; the sphering of `article`, one for all tasks, is given."""
    fitted = reference.Base(base.mean.numpy(), base.scatter.numpy(), base.class_weighted.numpy(), base.images_per_class)
    drawn = sample_tasks(TaskProtocol(), novel.offsets, 0, np.arange(tasks))
    n = base.images_per_class
    started = time.perf_counter()
    for b in range(tasks):
        rows = np.concatenate([drawn.support[b], drawn.query[b]])
        reference.bavardage(
            novel.features[rows], drawn.support_labels[b], 5, fitted, variant=method.variant, t_km=method.t_km,
            t_vb=float(method.tau) * n, s_max=method.sigma / n**0.5, balanced=False,
            sphered=table[rows, D:].astype(np.float64) / n**0.5 if method.variant == "article" else None,
        )  # fmt: skip
    return (time.perf_counter() - started) / tasks


def solve_in_a_loop(method: Bavardage, table: loop.Floats, inverse: loop.Floats, offsets: loop.Ints, task: int) -> int:
    """Draw one task and solve it."""
    drawn = sample_tasks(TaskProtocol(), offsets, 0, np.array([task]))
    rows = table[np.concatenate([drawn.support[0], drawn.query[0]])]
    x, sphered = rows[:, :D], rows[:, D:]
    if method.variant == "released":
        sphered = loop.sphere_in_span(x, inverse, method.sigma)
    answers = loop.bavardage(x, sphered, drawn.support_labels[0], 5, method.t_km, float(method.tau), method.variant)
    return int((answers.argmax(axis=1) == drawn.query_labels[0]).sum())


def shared_by_all_tasks(method: Bavardage, novel: Split, base: BaseStatistics) -> tuple[loop.Floats, loop.Floats]:
    table = method.embed(torch.from_numpy(novel.features), base).numpy()
    matrix = (base.class_weighted.numpy() + RIDGE * np.eye(D)) / base.images_per_class
    return table, np.linalg.inv(matrix).astype(np.float32)


def test_sampling_is_a_small_part() -> None:
    base, novel = mini_like()
    statistics = BaseStatistics.fit(base.features, base.labels)
    started = time.perf_counter()
    solve_tasks(Bavardage(), novel, statistics, TaskProtocol(), 0, range(10_000), device=CPU)
    everything = time.perf_counter() - started
    started = time.perf_counter()
    for start in range(0, 10_000, 500):
        sample_tasks(TaskProtocol(), novel.offsets, 0, np.arange(start, start + 500))
    share = (time.perf_counter() - started) / torch.get_num_threads() / everything
    print(f"\nsampling: {100 * share:.0f} % of solving")
    assert share < 0.15
