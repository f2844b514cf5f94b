"""Tuning: parameters are chosen on the val classes, never on novel ones, by the grid that `MethodInfo` lists.

Kept beside the feature file, for a method with its version, grid and fixed parameters, a protocol and the features: a
later search for the same replaces an earlier one, and `--tune` of other commands uses whatever was found last.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.blocks import embed_split
from fsbench.evaluation.run import POINTS, Job, configure
from fsbench.evaluation.source import load_source
from fsbench.evaluation.spec import OF_PROTOCOL, Axis
from fsbench.features.overlap import overlap
from fsbench.features.store import FeatureFile
from fsbench.io.files import only_writer
from fsbench.methods.base import Learnable, with_declared_types
from fsbench.methods.presets import ARTICLE_UNITS
from fsbench.methods.registry import can_tune, learns, method_class, method_key, method_names
from fsbench.results.tuned import Trial, Tuned, read_memory, write_memory
from fsbench.tasks.batch import TaskBatch
from fsbench.tasks.sampling import sample_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from fsbench.evaluation.run import Runner
    from fsbench.evaluation.source import Source
    from fsbench.features.scatter import BaseStatistics
    from fsbench.methods.base import Method
    from fsbench.results.curves import Value
    from fsbench.results.tuned import How
    from fsbench.tasks.protocol import TaskProtocol


class Grid:
    """All combinations."""

    how: How = "grid"

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

    how: How = "optuna"

    def __init__(self, axes: Sequence[Axis], trials: int, seed: int) -> None:
        try:
            import optuna  # noqa: PLC0415 - an optional package
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


class Learned:
    """The parameters that a method starts from, then those that it learns by gradient.

    It learns on tasks `tasks` to 2 · `tasks` − 1 of the list; the trials are judged on those before.
    """

    how: How = "gradient"

    def __init__(self, search: Search, runner: Runner, tasks: int, seed: int) -> None:
        self.search, self.runner, self.indices, self.seed = search, runner, np.arange(tasks, 2 * tasks), seed
        method, _ = configure(search.method, search.source, search.protocol, search.fixed)
        assert isinstance(method, Learnable)
        self.method = method

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[dict[str, Value]]:
        start = {name: value for name, value in self.method.params().items() if name not in self.search.fixed}
        yield start
        yield self.runner.ranks.agree(lambda: self.method.learn(self._known(), [*start]))

    def _known(self) -> list[tuple[TaskBatch, Tensor]]:
        """Val tasks in batches, with the labels of their queries; short query sets are left out."""
        source, device = self.search.source, self.runner.device
        protocol = self.search.protocol.within(len(source.split.offsets) - 1)
        (table,) = embed_split(self.method, source.split, source.base, device)
        drawn = sample_tasks(protocol, source.split.offsets, self.seed, self.indices)
        whole = (drawn.query_labels >= 0).all(axis=1)
        rows = np.concatenate([drawn.support, drawn.query], axis=1)
        arrays = (rows, drawn.support_labels, drawn.query_labels)
        tasks = zip(*(torch.from_numpy(array[whole]).to(device).split(_BATCH) for array in arrays), strict=True)
        return [(TaskBatch(table[index], support, protocol.ways), query) for index, support, query in tasks]

    def tell(self, accuracy: float) -> None:
        """The gradient has said it already."""


TASKS = 500
_BATCH = 64  # tasks of one product, when a method learns


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
                f"Parameters are tuned on the val classes, never on {self.source.split_name}.", "Use the val split."
            )

    @property
    def key(self) -> str:
        """Of everything that the parameters belong to. Of searches: the method's own grid, not the one searched."""
        info = method_class(self.method).info
        question = {
            "method": method_key(self.method),
            "version": info.version,
            "grid": info.grid,
            "fixed": with_declared_types(method_class(self.method), self.fixed),
            "protocol": self.protocol.as_dict(),
            "features": self.source.split.digest,
            "base": self.source.base.digest if self.source.base else "",
        }
        return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:16]

    def possible(self) -> bool:
        """Whether an earlier search has an outcome, or there is a grid to search, or something to learn."""
        return can_tune(self.method) or self.remembered() is not None

    def remembered(self) -> Tuned | None:
        """The outcome of an earlier search."""
        return read_memory(self.memory).get(self.key)

    def remember(self, found: Tuned) -> None:
        """Keep what was found for later runs, beside what other runs find meanwhile."""
        with only_writer(self.memory, waiting=lambda sentence: None):
            write_memory(self.memory, {**read_memory(self.memory), self.key: found})


def validation_source(file: FeatureFile, base: BaseStatistics | None) -> Source:
    """The val classes of a feature file, for tuning."""
    if "val" not in file.splits:
        raise FsbenchError(
            f"Tuning needs val classes, but {file.path} has no split val.",
            "Extract val images into the file, or leave out --tune: the scale-free defaults need no tuning.",
        )
    if "novel" in file.splits:
        _refuse_shared(file.path, file.summary("val").digest, file.summary("novel").digest)
    return load_source(file, "val", base)


@functools.cache
def _refuse_shared(path: Path, *digests: str) -> None:
    """Refuse to tune on val classes that are novel ones under another name; once for the same content."""
    file = FeatureFile.open(path)
    found = overlap(f"val of {path}", file.stream("val"), "novel", file.stream("novel"))
    found.refuse_many("parameters would be tuned on novel classes.")


def grid_of(method: str, fixed: Mapping[str, Any]) -> list[Axis]:
    """The axes to search: those of the method that are not fixed, in whichever units; none where it learns instead."""
    grid = method_class(method).info.grid
    parameters = [field.name for field in dataclasses.fields(method_class(method))]  # type: ignore[arg-type]
    if not can_tune(method):
        known = [name for name in method_names() if can_tune(name)]
        if not parameters:
            raise FsbenchError(f"There is no grid to tune {method} on: it has no parameters.", "Leave out --tune.")
        raise FsbenchError(
            f"There is no grid to tune {method} on.",
            f"Give one: fsbench tune --method {method} --over NAME=VALUE,VALUE. Known grids: {', '.join(known)}.",
        )
    settled = {ARTICLE_UNITS.get(name, name) for name in fixed}
    free = [name for name in (parameters if learns(method) else grid) if name not in settled]
    if not free:
        raise FsbenchError(
            f"There is nothing to tune: all that is searched for {method} is given, {', '.join(fixed)}.",
            "Leave out --tune, or a parameter.",
        )
    return [] if learns(method) else [Axis(name, grid[name]) for name in free]


def tune(
    search: Search,
    axes: Sequence[Axis],
    runner: Runner,
    *,
    trials: int | None = None,
    tasks: int = TASKS,
    seed: int = 0,
) -> Tuned:
    """Search on val tasks, and keep the outcome. Every trial is a record, so an interrupted search resumes.

    Args:
        search: What is tuned, and where.
        axes: What varies: a grid, or with `trials` the range from the smallest to the largest value. Without any, the
            method learns.
        runner: Computes the trials.
        trials: Number of Optuna trials; None tries the whole grid.
        tasks: Val tasks per trial.
        seed: Random seed of the val tasks and of Optuna.
    """
    for axis in axes:
        if axis.name in OF_PROTOCOL:
            raise FsbenchError(f"{axis.name} belongs to the tasks and cannot be tuned.", "To vary it: fsbench sweep.")
    if not axes and trials is not None:
        hint = "Leave out --trials, or give a range with --over NAME=VALUE,VALUE."
        raise UsageError("trials", f"{search.method} learns its parameters by gradient, without trials", hint)
    source, protocol = search.source, search.protocol
    learned = Learned(search, runner, tasks, seed) if not axes else None
    proposals = learned or (Grid(axes) if trials is None else Guesses(axes, trials, seed))
    points = replace(
        runner, results=runner.results / POINTS if runner.results else None, force=False, predictions=False
    )
    made: list[Trial] = []
    variants = method_class(search.method).info.variants
    name = search.method + (variants.suffix(search.fixed) if variants else "")
    label = f"{source.dataset} {protocol.shots}-shot tuning {name} on val"
    with runner.reporter.bar(label, len(proposals)) as advance:
        for params in proposals:
            method, origin = configure(search.method, source, protocol, {**search.fixed, **params})
            record = points.run(Job(method, protocol, seed, tasks, origin, method_key(search.method)), source)
            made.append(Trial(params, record.accuracy, record.ci95))
            proposals.tell(record.accuracy)
            advance(1)
    tuned = Tuned(name, protocol.describe(), proposals.how, tasks, made)
    runner.ranks.agree(lambda: _remember(search, tuned, runner.reporter.warn))
    return tuned


def _remember(search: Search, tuned: Tuned, warn: Callable[[str], None]) -> None:
    try:
        search.remember(tuned)
    except FsbenchError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        warn(f"The tuned parameters could not be stored and will be searched again. {error.message}")


def configure_tuned(search: Search, source: Source, runner: Runner) -> tuple[Method, str]:
    """A method with tuned parameters, and a word on where they come from."""
    tuned = runner.ranks.agree(search.remembered)
    if tuned is None:
        tuned = tune(search, grid_of(search.method, search.fixed), runner)
    protocol = search.protocol
    runner.reporter.say(f"{source.dataset}, {protocol.setting}, {protocol.shots}-shot: {tuned.describe()}")
    method, _ = configure(search.method, source, protocol, {**search.fixed, **tuned.params})
    return method, tuned.origin()
