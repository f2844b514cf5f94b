"""The solver: against the machine's matrix products, against a loop over tasks, and as the problem grows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from fsbench.bench.measure import Material, Measure, in_turns, mini_like
from fsbench.evaluation.engine import TaskList, solve_tasks
from fsbench.methods import reference
from fsbench.methods.base import Context
from fsbench.methods.bavardage import RIDGE, Bavardage, unpack
from fsbench.methods.registry import METHODS, method_class
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fsbench.methods.base import Method

CPU = torch.device("cpu")
TASK = TaskProtocol()
BLOCK = 64  # tasks in one batched product
LOOPED = 100  # tasks that the loop solves


def against_the_machine(tasks: int, repeats: int) -> list[Measure]:
    """End to end (sampling, gathering, Gram matrices, iterations) against batched products and against a NumPy loop.

    The products are the two Gram matrices of every task, 2 · 2 N² D floating-point operations, as plain batched matrix
    products by torch. The solver itself computes them as symmetric products, with half the operations.
    """
    material = mini_like()
    found = []
    for variant, share in (("article", 1), ("released", 10)):
        method, count = Bavardage(variant=variant), tasks // share  # type: ignore[arg-type]
        shared = shared_by_all_tasks(method, material)
        times = in_turns(
            repeats,
            solver=partial(solve, method, material, count),
            products=partial(gram_products, count, material),
            loop=partial(solve_in_a_loop, method, shared, material.novel.offsets, range(LOOPED)),
        )
        per_task = times["solver"] / count
        found += [
            Measure(f"solve {variant}", "batched matrix products of its Gram matrices",
                    100 * times["products"] / times["solver"], "%"),
            Measure(f"solve {variant}", "a NumPy loop over tasks", times["loop"] / LOOPED / per_task, "×"),
        ]  # fmt: skip
    return found


def solve(method: Method, material: Material, tasks: int, protocol: TaskProtocol = TASK) -> None:
    """Draw and solve tasks."""
    solve_tasks(method, material.novel, material.base, TaskList(protocol, 0, tasks), device=CPU)


def gram_products(tasks: int, material: Material) -> None:
    """Two products X Xᵀ per task, batched."""
    samples, dimension = TASK.ways * TASK.shots + TASK.queries, material.novel.features.shape[1]
    x = torch.ones(BLOCK, samples, dimension)
    with torch.inference_mode():
        for _ in range(2 * tasks // BLOCK):
            torch.bmm(x, x.mT)


@dataclass(frozen=True)
class Shared:
    """What a loop over tasks computes before it starts: rows in both spaces, and the released program's inverse."""

    plain: NDArray[np.float32]
    sphered: NDArray[np.float32]
    inverse: NDArray[np.float32]


def shared_by_all_tasks(method: Bavardage, material: Material) -> Shared:
    """Prepare a loop over tasks."""
    base = material.base
    rows = unpack(method.embed(torch.from_numpy(material.novel.features), base))
    matrix = (base.class_weighted.numpy() + RIDGE * np.eye(len(base.mean))) / base.images_per_class
    return Shared(rows.plain.numpy(), rows.sphered.numpy(), np.linalg.inv(matrix).astype(np.float32))


def solve_in_a_loop(method: Bavardage, shared: Shared, offsets: NDArray[np.int64], tasks: range) -> list[int]:
    """Draw and solve one task after the other by Algorithm 1; the numbers of right answers."""
    right = []
    for task in tasks:
        drawn = sample_tasks(TASK, offsets, 0, np.array([task]))
        rows, labels = np.concatenate([drawn.support[0], drawn.query[0]]), drawn.support_labels[0]
        x, sphered = shared.plain[rows], shared.sphered[rows]
        if method.variant == "released":
            sphered = reference.sphere_in_span(x, shared.inverse, method.sigma)
        answers = reference.bavardage(x, sphered, labels, method)[len(labels) :]
        right.append(int((answers.argmax(axis=1) == drawn.query_labels[0]).sum()))
    return right


def as_the_problem_grows(tasks: int, repeats: int) -> list[Measure]:
    """Time per task as one thing doubles or more, relative to 5-way 1-shot, 75 queries, 640 features."""
    method, material, twice = Bavardage(), mini_like(), mini_like(1280)
    cases = {
        "10 times the tasks": partial(solve, method, material, 10 * tasks),
        "twice the queries (N = 155)": partial(solve, method, material, tasks, TaskProtocol(queries=150)),
        "5 shots (N = 100)": partial(solve, method, material, tasks, TaskProtocol(shots=5)),
        "20 ways (N = 95)": partial(solve, method, material, tasks, TaskProtocol(ways=20)),
        "twice the features (D = 1280)": partial(solve, method, twice, tasks),
    }
    times = in_turns(repeats, base=partial(solve, method, material, tasks), **cases)
    return [
        Measure(f"solve, {name}", "time per task at N = 80, K = 5, D = 640",
                times[name] / times["base"] / (10 if "tasks" in name else 1), "ratio")
        for name in cases
    ]  # fmt: skip


def other_methods(tasks: int, repeats: int) -> list[Measure]:
    """Time of the other fast methods relative to BAVARDAGE."""
    material = mini_like()
    context = Context(balanced=False, base=material.base)
    classes = {name: method_class(name) for name in METHODS if name != "bavardage"}
    methods = {name: found.configure(context) for name, found in classes.items() if found.info.cost == "fast"}
    times = in_turns(
        repeats,
        bavardage=partial(solve, Bavardage(), material, tasks),
        **{name: partial(solve, method, material, tasks) for name, method in methods.items()},
    )
    return [
        Measure(f"solve {name}", "time of BAVARDAGE", times[name] / times["bavardage"], "ratio") for name in methods
    ]
