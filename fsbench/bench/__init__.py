"""`fsbench bench`: speed as ratios within one run, taken in turns so that what disturbs one disturbs all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsbench.bench.solver import against_the_machine, as_the_problem_grows, each_method
from fsbench.bench.stages import extraction, memory, scatter, start, training

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsbench.bench.measure import Measure

CASES: dict[str, Callable[[bool], list[Measure]]] = {
    "solver": lambda quick: against_the_machine(1_000 if quick else 10_000, 1 if quick else 3),
    "growth": lambda quick: as_the_problem_grows(128 if quick else 1_024, 1 if quick else 3),
    "methods": lambda quick: each_method(100 if quick else 1_000, 1 if quick else 3),
    "scatter": lambda quick: scatter(1, 16, 60) if quick else scatter(5),
    "extract": lambda quick: extraction(1, images=4) if quick else extraction(3),
    "train": lambda quick: training(1, batches=2, width=4) if quick else training(3),
    "start": lambda quick: start(1 if quick else 5),
    "memory": lambda quick: memory(100) if quick else memory(1_000, 10_000, 100_000),
}
