"""All cases, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsbench.bench import solver, stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsbench.bench.measure import Measure


CASES: dict[str, Callable[[bool], list[Measure]]] = {
    "solver": lambda quick: solver.against_the_machine(1_000 if quick else 10_000, 1 if quick else 5),
    "growth": lambda quick: solver.as_the_problem_grows(100 if quick else 1_000, 1 if quick else 3),
    "methods": lambda quick: solver.other_methods(100 if quick else 1_000, 1 if quick else 3),
    "scatter": lambda quick: stages.scatter(1, 16, 60) if quick else stages.scatter(5),
    "extract": lambda quick: stages.extraction(1, images=4) if quick else stages.extraction(3),
    "start": lambda quick: stages.start(1 if quick else 5),
    "memory": lambda quick: stages.memory(100) if quick else stages.memory(1_000, 10_000, 100_000),
}
