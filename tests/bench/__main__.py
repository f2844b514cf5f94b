"""`make bench`: speed as ratios within one run, taken in turns so that what disturbs one disturbs all."""

import argparse
import sys
from collections.abc import Callable, Sequence

from tests.bench import solver
from tests.bench.measure import Measure
from tests.bench.solver import against_the_machine, each_method, keeping_answers, large_tasks
from tests.bench.stages import extraction, listing, scatter, start, training

CASES: dict[str, Callable[[bool], list[Measure]]] = {
    "solver": lambda quick: against_the_machine(1_000 if quick else 10_000, 1 if quick else 3),
    "answers": lambda quick: keeping_answers(500, 1, 64) if quick else keeping_answers(10_000, 5),
    "methods": lambda quick: each_method(100 if quick else 1_000, 1 if quick else 3),
    "large": lambda quick: large_tasks(20, 200, names=["ncm"]) if quick else large_tasks(400, 10_000),
    "largest": lambda quick: large_tasks(1_000, 50_000),
    "gpu": lambda quick: solver.on_a_gpu(100, ["ncm"]) if quick else solver.on_a_gpu(10_000),
    "scatter": lambda quick: scatter(1, 16, 60) if quick else scatter(5),
    "extract": lambda quick: extraction(1, images=2, width=8) if quick else extraction(3),
    "list": lambda quick: listing(1, 240) if quick else listing(3, 60_000),
    "train": lambda quick: training(1, batches=2, width=4) if quick else training(3),
    "start": lambda quick: start(1 if quick else 5),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the status is 1 if `--check` is given and a bound is missed by more than noise."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    usual = ",".join(name for name in CASES if name not in ("largest", "gpu"))  # which take long, and no time
    parser.add_argument("--cases", default=usual, help=f"separated by commas: {', '.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that it works")
    parser.add_argument("--check", action="store_true", help="fail where a bound is missed by more than noise")
    options = parser.parse_args(arguments)
    missed = []
    for name in options.cases.split(","):
        for measure in CASES[name](options.quick):
            print(measure, flush=True)
            missed += [measure.case] if measure.missed else []
    if missed:
        print(f"Slower than allowed: {', '.join(missed)}.", file=sys.stderr)
    return int(options.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
