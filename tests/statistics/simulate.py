"""Simulations behind docs/statistics.md: `python -m tests.statistics.simulate` prints its tables, in some minutes."""

from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np

from fsbench.evaluation.engine import TaskList, solve
from fsbench.features.store import Split, make_split
from fsbench.methods.simpleshot import SimpleShot
from fsbench.results.comparison import Comparison, Runs, compare_records
from fsbench.results.metrics import accuracy
from fsbench.results.statistics import LEVEL, holm, interval, interval_over_classes, paired_p_values
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.random import dirichlet_counts
from fsbench.tasks.sampling import _draw_counts, sample_tasks
from tests.comparing import CPU
from tests.records import make_record

COLUMNS = [TaskProtocol(shots=shots, alpha=alpha) for alpha in (2.0, None) for shots in (1, 5)]
METHODS = SimpleShot("L2N"), SimpleShot("UN")  # whose difference is simulated too
PROTOCOL = TaskProtocol(queries=25)
DIMENSION = 16


@dataclass(frozen=True)
class World:
    """Classes that differ in where they are and in how wide they are."""

    means: np.ndarray  # (C, D)
    widths: np.ndarray  # (C,)

    @classmethod
    def draw(cls, rng: np.random.Generator, classes: int) -> Self:
        return cls(rng.normal(size=(classes, DIMENSION)), np.exp(rng.normal(0, 0.5, classes)))

    def images(self, rng: np.random.Generator, each: int) -> Split:
        labels = np.repeat(np.arange(len(self.means)), each)
        noise = rng.normal(size=(len(labels), DIMENSION)) * self.widths[labels][:, None]
        return make_split((self.means[labels] + 1.5 * noise).astype(np.float32), labels)


def run(split: Split, tasks: int, seed: int) -> np.ndarray:
    """(3, T): accuracies of both methods, and their difference."""
    outcomes = solve(METHODS, split, None, TaskList(PROTOCOL, seed, np.arange(tasks)), device=CPU)
    first, second = (accuracy(outcome.answers) for outcome in outcomes)
    return np.stack([first, second, first - second])


@cache
def anywhere(worlds: int) -> tuple[float, ...]:
    """The means over all classes there are: of many worlds, 500 tasks each."""
    rng = np.random.default_rng(0)
    found = [run(World.draw(rng, 150).images(rng, 40), 500, seed).mean(axis=1) for seed in range(worlds)]
    return tuple(np.mean(found, axis=0).tolist())


def coverage(classes: int, images: int, repeats: int, tasks: int = 300, *, worlds: int = 60) -> dict[str, list[float]]:
    """How often two kinds of intervals hold the mean over new classes: per kind, for two methods and their difference.

    `tasks` is for more tasks of the same images, and promises nothing for new classes; `classes` is for these.
    """
    rng = np.random.default_rng(0)
    truth = anywhere(worlds)
    held: dict[str, list[list[bool]]] = {"tasks": [], "classes": []}
    for repeat in range(repeats):
        split = World.draw(rng, classes).images(rng, images)
        values = run(split, tasks, repeat)
        drawn = sample_tasks(PROTOCOL, split.offsets, repeat, np.arange(tasks)).classes
        over_tasks = [interval(one) for one in values]
        over_classes = [one for one in (interval_over_classes(value, drawn) for value in values) if one]
        for kind, intervals in (("tasks", over_tasks), ("classes", over_classes)):
            held[kind].append([one.low < value < one.high for one, value in zip(intervals, truth, strict=True)])
    return {kind: np.mean(inside, axis=0).tolist() for kind, inside in held.items()}


def simulated(methods: int, rng: np.random.Generator, *, tasks: int = 40, lead: float = 0.0) -> Comparison:
    """Methods of the same accuracy on the same tasks, which are hard or easy for all; the last one may lead."""
    labels = [f"m{number}" for number in range(methods)]
    runs: Runs = {}
    for column in COLUMNS:
        logits = rng.normal(0.8, 0.8, size=(1, tasks)) + rng.normal(0, 0.35, size=(methods, tasks))
        logits[-1] += lead
        rights = rng.binomial(75, 1 / (1 + np.exp(-logits)))
        named = zip(labels, rights, strict=True)
        runs |= {(0, label, column): make_record(correct=right, tasks=tasks) for label, right in named}
    return compare_records(runs, labels, COLUMNS, "m0", with_published=False)


def false_alarms(methods: int, tables: int) -> tuple[float, float, float]:
    """Share of tables of equal methods where one is called worse than the best, and other than the baseline.

    The third is that of the first if the best were tested as though it had been known before: within its own pairs.
    """
    rng = np.random.default_rng(methods)
    shares = np.zeros(3)
    for _ in range(tables):
        cells = simulated(methods, rng).groups[0].cells
        worse = any(not cell.best and not cell.tied for cell in cells.values())
        other = any(cell.p_value is not None and cell.p_value < LEVEL for cell in cells.values())
        best = {column: cell.record for (_, column), cell in cells.items() if cell.best}
        pairs = [(cell.record, best[column]) for (_, column), cell in cells.items() if not cell.best]
        naive = holm([float(paired_p_values(one.per_task, top.per_task)) for one, top in pairs])
        shares += np.array([worse, other, min(naive) < LEVEL]) / tables
    return float(shares[0]), float(shares[1]), float(shares[2])


def few_tasks(tasks: int, repeats: int = 20_000) -> tuple[float, float]:
    """Coverage of Student's interval, and of 1.96 standard errors, over tasks that are not equally hard."""
    rng = np.random.default_rng(tasks)
    values = 100 * rng.binomial(75, rng.beta(12, 8, size=(repeats, tasks))) / 75  # of mean 60
    away = np.abs(values.mean(axis=1) - 60)
    widths = np.array([interval(one).half_width for one in values])
    normal = 1.96 * values.std(axis=1, ddof=1) / tasks**0.5
    return float((away < widths).mean()), float((away < normal).mean())


def truncation(alpha: float, images: int, tasks: int = 100_000) -> tuple[float, float]:
    """Share of tasks whose counts are redrawn, and what that does to the variance of the counts, both in percent."""
    protocol, numbers = TaskProtocol(alpha=alpha), np.arange(tasks)
    free = dirichlet_counts(alpha, 5, 75, 0, numbers, attempt=0)
    kept, _ = _draw_counts(protocol, 0, numbers, np.full((tasks, 5), images))
    redrawn = (free > images - protocol.shots).any(axis=1).mean()
    return 100 * float(redrawn), 100 * float(kept.var() / free.var() - 1)


def main() -> None:
    """Print all tables."""
    print("false alarms: methods, worse than the best, other than the baseline; the best as if it was known before")
    for methods in (3, 5, 8, 12, 16):
        print(methods, *(f"{share:.3f}" for share in false_alarms(methods, 1000)), flush=True)
    print("coverage over tasks: tasks, Student's interval, 1.96 standard errors")
    for tasks in (2, 5, 10, 30, 100):
        print(tasks, *(f"{share:.3f}" for share in few_tasks(tasks)), flush=True)
    print("coverage of 95 % intervals: classes, kind, two methods, their difference")
    for classes in (10, 20, 50):
        for kind, shares in coverage(classes, 60, 250).items():
            print(classes, kind, *(f"{share:.3f}" for share in shares), flush=True)
    print("redraws: images, α, redrawn in %, change of the variance in %")
    for images in (60, 600):
        for alpha in (0.5, 1.0, 2.0):
            print(images, alpha, *(f"{value:.1f}" for value in truncation(alpha, images)), flush=True)


if __name__ == "__main__":
    main()
