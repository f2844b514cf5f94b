"""What a search tries next: the cells of a grid, or guesses that learn from the outcomes so far."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from fsbench.errors import FsbenchError
from fsbench.evaluation.run import Job, Machine, configure, run
from fsbench.evaluation.source import load_source
from fsbench.evaluation.spec import OF_PROTOCOL, Axis, Value, symbol
from fsbench.evaluation.sweep import POINTS
from fsbench.features.overlap import overlap
from fsbench.features.store import FeatureFile
from fsbench.io.locks import only_writer
from fsbench.io.sealed import read_sealed, write_sealed
from fsbench.methods.base import with_declared_types
from fsbench.methods.presets import ARTICLE_UNITS
from fsbench.methods.registry import method_class, method_key, method_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from fsbench.evaluation.source import Source
    from fsbench.evaluation.spec import Value
    from fsbench.features.scatter import BaseStatistics
    from fsbench.methods.base import Method
    from fsbench.reporter import Reporter
    from fsbench.tasks.protocol import TaskProtocol


class Grid:
    """All combinations."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        names = [axis.name for axis in axes]
        self.cells = [
            dict(zip(names, cell, strict=True)) for cell in itertools.product(*(axis.values for axis in axes))
        ]

    def __len__(self) -> int:
        return len(self.cells)

    def __iter__(self) -> Iterator[dict[str, Value]]:
        return iter(self.cells)

    def tell(self, accuracy: float) -> None:
        """A grid does not learn."""


class Guesses:
    """Guesses of optuna's default sampler (TPE), the same for the same seed and accuracies."""

    def __init__(self, axes: Sequence[Axis], trials: int, seed: int) -> None:
        try:
            import optuna
        except ImportError as error:
            raise FsbenchError(
                "optuna is not installed.", "pip install 'fsbench[tune]', or search the grid."
            ) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed)
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.axes, self.trials = axes, trials
        self.open: Any = None

    def __len__(self) -> int:
        return self.trials

    def __iter__(self) -> Iterator[dict[str, Value]]:
        for _ in range(self.trials):
            self.open = self.study.ask()
            yield {axis.name: self._guess(axis) for axis in self.axes}

    def _guess(self, axis: Axis) -> Value:
        """Between the ends of an axis of numbers, on a logarithmic scale where it has one; else one of its values."""
        values = [value for value in axis.values if not isinstance(value, str)]
        if len(values) < len(axis.values):
            chosen: Value = self.open.suggest_categorical(axis.name, list(axis.values))
            return chosen
        low, high = min(values), max(values)
        if all(isinstance(value, int) for value in values):
            return int(self.open.suggest_int(axis.name, int(low), int(high), log=low > 0))
        guess = self.open.suggest_float(axis.name, low, high, log=low > 0)
        return float(f"{guess:.3g}")

    def tell(self, accuracy: float) -> None:
        """Learn from the last guess."""
        self.study.tell(self.open, accuracy)


TASKS = 500


@dataclass(frozen=True)
class Trial:
    """One cell of the grid, or one guess of the optimiser: accuracy in percent on the validation tasks."""

    params: dict[str, Value]
    accuracy: float
    ci95: float | None


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Attributes:
        method: Name of the method.
        setting: The protocol, in words.
        how: `grid` or `optuna`.
        tasks: Validation tasks per trial.
        trials: In the order they were made.
    """

    method: str
    setting: str
    how: Literal["grid", "optuna"]
    tasks: int
    trials: list[Trial]

    @property
    def best(self) -> Trial:
        """The trial with the highest accuracy; the first of equals."""
        return max(self.trials, key=lambda trial: trial.accuracy)

    @property
    def params(self) -> dict[str, Value]:
        """The parameters to use."""
        return self.best.params

    def origin(self) -> str:
        """Where parameters come from, for records and signatures."""
        return f"tuned:val:{self.how}:{len(self.trials)}x{self.tasks}"

    def describe(self) -> str:
        """One line for people."""
        found = ", ".join(f"{symbol(name)} {value}" for name, value in self.params.items())
        trials = f"{self.how}, {len(self.trials)} × {self.tasks} tasks"
        return f"{self.method} tuned on val ({trials}): {found} → {self.best.accuracy:.2f} % there"


@dataclass(frozen=True)
class Search:
    """What is tuned, and where.

    Attributes:
        method: Name of the method.
        fixed: Parameters that are not to be tuned.
        source: Features of the validation split.
        protocol: That of the tasks to come; validation tasks are drawn the same way.
        memory: File that remembers what was found.
    """

    method: str
    fixed: Mapping[str, Any]
    source: Source
    protocol: TaskProtocol
    memory: Path

    def __post_init__(self) -> None:
        if self.source.split_name != "val":
            raise FsbenchError(
                f"Parameters are tuned on val, never on {self.source.split_name}: that would be looking."
            )

    @classmethod
    def on(
        cls,
        file: FeatureFile,
        base: BaseStatistics | None,
        method: str,
        fixed: Mapping[str, Any],
        protocol: TaskProtocol,
    ) -> Search:
        """A search on the validation classes of a feature file."""
        if "val" not in file.splits:
            raise FsbenchError(
                f"Tuning needs validation classes, but {file.path} has no split val.",
                "Extract val images into the file, or do without: the scale-free defaults need no tuning.",
            )
        if "novel" in file.splits:
            _refuse_shared(file.path, file.summary("val").digest, file.summary("novel").digest)
        return cls(method, fixed, load_source(file, "val", base), protocol, tuning_path(file.path))

    @property
    def key(self) -> str:
        """Of everything that the parameters belong to, but not of how they were searched."""
        question = {
            "method": method_key(self.method),
            "fixed": with_declared_types(method_class(self.method), self.fixed),
            "protocol": self.protocol.as_dict(),
            "features": self.source.split.digest,
            "base": self.source.base.digest if self.source.base else "",
        }
        return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:16]

    def possible(self) -> bool:
        """Whether something is remembered, or there is a grid to search."""
        return bool(method_class(self.method).info.grid) or self.remembered() is not None

    def remembered(self) -> Tuned | None:
        """What an earlier search found."""
        return read_memory(self.memory).get(self.key)

    def remember(self, found: Tuned) -> None:
        """Keep what was found for later runs, beside what other runs find meanwhile."""
        with only_writer(self.memory, waiting=lambda sentence: None):
            write_memory(self.memory, {**read_memory(self.memory), self.key: found})


@functools.cache
def _refuse_shared(path: Path, *digests: str) -> None:
    """Refuse to tune on val classes that are novel ones under another name; once for the same content."""
    file = FeatureFile.open(path)
    found = overlap(f"val of {path}", file.stream("val"), "novel", file.stream("novel"))
    found.refuse_many("tuning there would be looking at novel classes.")


def tuning_path(features: Path) -> Path:
    """Where tuned parameters are remembered: beside the feature file."""
    return features.with_suffix(".tuned.json")


def grid_of(method: str, fixed: Mapping[str, Any]) -> list[Axis]:
    """The axes to search: those of the method that are not fixed, in whichever units."""
    grid = method_class(method).info.grid
    if not grid:
        known = [name for name in method_names() if method_class(name).info.grid]
        raise FsbenchError(
            f"There is no grid to tune {method} on.",
            f"Give one: fsbench tune --method {method} --over NAME=VALUE,VALUE. Known grids: {', '.join(known)}.",
        )
    settled = {ARTICLE_UNITS.get(name, name) for name in fixed}
    axes = [Axis(name, values) for name, values in grid.items() if name not in settled]
    if not axes:
        raise FsbenchError(
            f"There is nothing to tune: all that is searched for {method} is given, {', '.join(fixed)}.",
            "Leave out --tune, or a parameter.",
        )
    return axes


def tune(
    search: Search,
    axes: Sequence[Axis],
    machine: Machine,
    *,
    trials: int | None = None,
    tasks: int = TASKS,
    seed: int = 0,
    results: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> Tuned:
    """Search on validation tasks, and remember the outcome. Every trial is a record, so a broken search goes on.

    Args:
        search: What is tuned, and where.
        axes: What varies: a grid, or with `trials` the range from the smallest to the largest value.
        machine: Where and how to compute.
        trials: How often optuna may guess; None tries the whole grid.
        tasks: Validation tasks per trial.
        seed: Of the validation tasks, and of optuna.
        results: Folder of results; None stores no trial.
        progress: Called with the trials done and their number.
        warn: Hears that the outcome could not be remembered.
    """
    for axis in axes:
        if axis.name in OF_PROTOCOL:
            raise FsbenchError(
                f"{axis.name} is given by the tasks: it cannot be tuned.", "To see it vary: fsbench sweep."
            )
    proposals = Grid(axes) if trials is None else Guesses(axes, trials, seed)
    made: list[Trial] = []
    for params in proposals:
        method, origin = configure(search.method, search.source, search.protocol, {**search.fixed, **params})
        job = Job(method, search.protocol, seed, tasks, origin, method_key(search.method))
        record = run(job, search.source, machine, results / POINTS if results else None)
        made.append(Trial(params, record.accuracy, record.ci95))
        proposals.tell(record.accuracy)
        progress(len(made), len(proposals))
    found = Tuned(search.method, search.protocol.describe(), "grid" if trials is None else "optuna", tasks, made)
    machine.ranks.agree(lambda: _remember(search, found, warn))
    return found


def _remember(search: Search, found: Tuned, warn: Callable[[str], None]) -> None:
    try:
        search.remember(found)
    except FsbenchError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        warn(f"What was tuned is searched again next time. {error.message}")  # a folder of someone else, a full disk


def configure_tuned(
    search: Search, source: Source, machine: Machine, reporter: Reporter, results: Path | None
) -> tuple[Method, str]:
    """A method with the parameters that a search found, and a word on where they come from.

    Args:
        search: Looked up; if nothing is remembered, made on the method's own grid.
        source: Where the method will be used.
        machine: Where and how to compute.
        reporter: Shows progress, and says what was found.
        results: Folder of results.
    """
    if source.split_name == "val":
        raise FsbenchError(
            "Parameters are tuned on the val classes, and these are what --split val would report on.",
            "Leave out --tune, or use --split novel.",
        )
    found = machine.ranks.agree(search.remembered)
    if found is None:
        axes = grid_of(search.method, search.fixed)
        label = f"{source.dataset} {search.protocol.shots}-shot tuning {search.method} on val"
        with reporter.bar(label, 0) as advance:
            found = tune(
                search, axes, machine, results=results, progress=lambda done, total: advance(1, total),
                warn=reporter.warn,
            )  # fmt: skip
    reporter.say(f"{source.dataset}, {search.protocol.setting}, {search.protocol.shots}-shot: {found.describe()}")
    method, _ = configure(search.method, source, search.protocol, {**search.fixed, **found.params})
    return method, found.origin()


def read_memory(memory: Path) -> dict[str, Tuned]:
    """All that is remembered in a file."""
    remedy = "Delete the file: it is remade."
    if not memory.exists():
        return {}
    known = read_sealed(memory, dict[str, Tuned], "memory of tuning", remedy)
    if not all(tuned.trials for tuned in known.values()):
        raise FsbenchError(f"The tuned parameters in {memory} are empty.", remedy)
    return known


def write_memory(memory: Path, known: Mapping[str, Tuned]) -> None:
    """Replace all that is remembered in a file."""
    write_sealed(memory, {name: asdict(known[name]) for name in sorted(known)}, indent=1)
