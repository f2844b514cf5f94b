"""Tuning: parameters are chosen on the val classes, never on novel ones, by the grid that `MethodInfo` lists.

With the goal `confidence` it is the temperature of the final probabilities that is chosen, by the smallest expected
calibration error.

Stored beside the feature file, for a method with its version, grid and fixed parameters, a protocol and the features: a
later search for the same replaces an earlier one, and `--tune` of other commands uses the last one.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fsbench.errors import FsbenchError
from fsbench.evaluation.engine import embed_all
from fsbench.evaluation.run import POINTS, Job, Runner, configure
from fsbench.evaluation.source import Source, load_source, with_pixels
from fsbench.evaluation.spec import OF_PROTOCOL, Axis, MethodChoice
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import FeatureFile, overlap
from fsbench.io.files import only_writer, write_sealed
from fsbench.methods.base import Learnable, Method
from fsbench.methods.bavardage import ARTICLE_UNITS
from fsbench.methods.pool import Statistics
from fsbench.methods.registry import method_class, method_key, working_methods
from fsbench.results.record import Origins
from fsbench.results.studies import Trial, Tuned, Value, read_memory, tuning_path
from fsbench.tasks.batch import TaskBatch
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks

TASKS = 500
CALIBRATIONS = tuple(float(f"{2 ** (n / 2):.2g}") for n in range(-10, 11))  # temperatures from 0.031 to 32
_BATCH = 64  # tasks of one product, when a method learns


@dataclass(frozen=True)
class Search:
    """What is tuned, and where."""

    choice: MethodChoice  # with parameters that are not to be tuned
    source: Source  # that of `validation_source`
    protocol: TaskProtocol  # of the tasks to come; val tasks are drawn the same way
    memory: Path  # file that stores outcomes of searches
    goal: Literal["accuracy", "confidence"] = "accuracy"

    @property
    def key(self) -> str:
        """Of everything that the parameters belong to. Of searches: the method's own grid, not the one searched."""
        method, tuned = method_class(self.choice.method), self.method()
        content = {
            "method": method_key(self.choice.method),
            "version": method.info.version,
            "grid": method.info.grid,
            "fixed": {name: tuned.values()[name] for name in _settled(self.choice)},
            "weights": tuned.params().get("weights", ""),
            "protocol": dataclasses.asdict(self.protocol),
            "features": self.source.split.digest,
            "base": self.source.base.digest if isinstance(self.source.base, BaseStatistics) else "",
            **({} if self.goal == "accuracy" else {"goal": self.goal}),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def method(self) -> Method:
        """The method on val tasks."""
        return configure(self.choice, self.source, self.protocol)[0]

    def for_confidence(self, tuned: Tuned | None = None) -> Search:
        """The search for the temperature of the same method, with tuned parameters if it has some, or those stored."""
        tuned = tuned or self.stored()
        options = {**self.choice.options, **(tuned.params if tuned else {})}
        return replace(self, choice=replace(self.choice, options=options), goal="confidence")

    def stored(self) -> Tuned | None:
        """The outcome of an earlier search."""
        return read_memory(self.memory).get(self.key)

    def store(self, tuned: Tuned, warn: Callable[[str], None]) -> None:
        """Keep an outcome for later runs, beside those of other runs; where the folder cannot be written, say so."""
        if self.source.path is None:  # arrays in memory
            return
        try:
            with only_writer(self.memory, waiting=lambda sentence: None):
                searches = {**read_memory(self.memory), self.key: tuned}
                write_sealed(
                    self.memory, {key: dataclasses.asdict(searches[key]) for key in sorted(searches)}, indent=1
                )
        except FsbenchError as error:
            warn(f"The tuned parameters could not be stored and will be searched again. {error.message}")


def _settled(choice: MethodChoice) -> list[str]:
    """Parameters that were given, in whichever units."""
    return sorted(ARTICLE_UNITS.get(name, name) for name in choice.options)


@functools.lru_cache(maxsize=4)
def validation_source(file: FeatureFile, base: Statistics) -> Source:
    """The val classes of a feature file, for tuning, unless they are novel ones under another name; read once."""
    if "val" not in file.splits:
        raise FsbenchError(
            f"Tuning needs val classes, but {file.path} has no split val.",
            "Extract val images into the file, or leave out --tune: the scale-free defaults need no tuning.",
        )
    if "novel" in file.splits:
        why = "parameters would be tuned on novel classes."
        overlap(f"val of {file.path}", file.stream("val"), "novel", file.stream("novel"), why)
        both = {*file.summary("val").class_names} & {*file.summary("novel").class_names}
        if named := sorted(name for name in both if not name.lstrip("-").isdigit()):
            message = f"{len(named)} val classes of {file.path} have the names of novel ones, such as {named[0]}: {why}"
            raise FsbenchError(message, "If they are not the same classes, rename them.")
    return load_source(file, "val", base)


def grid_of(choice: MethodChoice) -> list[Axis]:
    """The axes to search: those of the method that are not given, in whichever units; none where it learns instead."""
    chosen, settled = method_class(choice.method), _settled(choice)
    if not chosen.can_tune():
        grids = ", ".join(name for name in working_methods() if method_class(name).can_tune())
        hint = f"Leave out --tune, or give one: fsbench tune --over NAME=VALUE,VALUE. Methods with a grid: {grids}."
        raise FsbenchError(f"There is no grid to tune {choice.method} on.", hint)
    learns, fields = issubclass(chosen, Learnable), dataclasses.fields(chosen)  # type: ignore[arg-type]
    parameters = [field.name for field in fields if field.name != "calibration"] if learns else chosen.info.grid
    free = [name for name in parameters if name not in settled]
    if not free:
        raise FsbenchError(
            f"There is nothing to tune: all that is searched for {choice.method} is given, {', '.join(settled)}.",
            "Leave out --tune, or a parameter.",
        )
    return [] if learns else [Axis(name, chosen.info.grid[name]) for name in free]


def tune(search: Search, axes: Sequence[Axis], runner: Runner, *, tasks: int = TASKS, seed: int = 0) -> Tuned:
    """Search on val tasks, and keep the outcome. Every trial is a record, so an interrupted search resumes.

    The axes are a grid; without any, the method learns. Each trial is over so many tasks of the seed's list.
    """
    for name in {axis.name for axis in axes} & {*OF_PROTOCOL}:
        raise FsbenchError(f"{name} belongs to the tasks and cannot be tuned.", "To vary it: fsbench sweep.")
    choice, source, protocol = search.choice, search.source, search.protocol
    names, cells = [axis.name for axis in axes], [*itertools.product(*(axis.values for axis in axes))]
    proposals: Iterator[dict[str, Value]] = (dict(zip(names, cell, strict=True)) for cell in cells)
    if not axes:
        proposals, cells = _learned(search, runner, tasks, seed), [(), ()]
    points = replace(runner, results=runner.results / POINTS if runner.results else None, force=False)
    trials: list[Trial] = []
    with runner.reporter.bar(
        f"{source.provenance.dataset} {protocol.shots}-shot tuning {choice.label} on val", len(cells)
    ) as bar:
        for params in proposals:
            cell = replace(choice, options={**choice.options, **params})
            record = points.run(Job(cell, *configure(cell, source, protocol), source, protocol, seed, tasks))
            ece = record.interval("ece").mean if search.goal == "confidence" else None
            trials.append(Trial(params, record.accuracy, record.ci95, ece))
            bar(1)
    tuned = Tuned(choice.label, protocol.describe(), "grid" if axes else "gradient", tasks, trials)
    runner.ranks.agree(lambda: search.store(tuned, runner.reporter.warn))
    return tuned


def _learned(search: Search, runner: Runner, tasks: int, seed: int) -> Iterator[dict[str, Any]]:
    """The parameters that a method starts from, then those that it learns by gradient.

    It learns on tasks `tasks` to 2 · `tasks` − 1 of the list; the trials are judged on those before.
    """
    method = search.method()
    assert isinstance(method, Learnable)
    start = {name: value for name, value in method.params().items() if name not in _settled(search.choice)}
    yield start
    batches = _labelled(search, method, runner.device, np.arange(tasks, 2 * tasks), seed)
    yield runner.ranks.agree(lambda: method.learn(batches, [*start]))


def _labelled(
    search: Search, method: Method, device: torch.device, numbers: np.ndarray[Any, Any], seed: int
) -> list[tuple[TaskBatch, Tensor]]:
    """Val tasks in batches, with the labels of their queries; smaller tasks than the largest are left out."""
    source = search.source
    if not search.protocol.same_size:
        message = f"{method.info.title} learns from tasks of one size, and tasks of {search.protocol.name} differ."
        raise FsbenchError(message, "Leave out --tune, or tune with another --protocol.")
    with torch.no_grad():
        tables = embed_all([method], source.split, source.base, device)[0].spaces
    drawn = sample_tasks(search.protocol, source.split.offsets, seed, numbers)
    whole = (drawn.query_labels >= 0).all(axis=1) & (drawn.support >= 0).all(axis=1)
    rows = np.concatenate([drawn.support, drawn.query], axis=1)
    arrays = (rows, drawn.support_labels, drawn.query_labels)  # no method that learns uses text
    parts = zip(*(torch.from_numpy(array[whole]).to(device).split(_BATCH) for array in arrays), strict=True)
    return [
        (TaskBatch({name: table[index] for name, table in tables.items()}, support, drawn.classes.shape[1]), query)
        for index, support, query in parts
    ]


def configure_tuned(
    choice: MethodChoice, protocol: TaskProtocol, file: FeatureFile, source: Source, runner: Runner
) -> tuple[Method, Origins] | None:
    """A method with tuned parameters, and where they come from; None if it has none to tune, and none are stored."""
    tunable, val = method_class(choice.method).can_tune(), validation_source(file, source.base)
    val = with_pixels(val, choice.network, file, runner)
    search = Search(choice, val, protocol, tuning_path(file.path))
    best = runner.ranks.agree(search.stored) or (tune(search, grid_of(choice), runner) if tunable else None)
    confident, by_default = search.for_confidence(best), replace(search, goal="confidence")
    calibrated = runner.ranks.agree(confident.stored)
    if calibrated is None and runner.ranks.agree(by_default.stored):  # which is of other parameters
        calibrated = tune(confident, [Axis("calibration", CALIBRATIONS)], runner)
    outcomes = [tuned for tuned in (best, calibrated) if tuned]
    if not outcomes:
        return None
    chosen: dict[str, Value] = {}
    for tuned in outcomes:
        place = f"{source.provenance.dataset}, {protocol.setting}, {protocol.shots}-shot"
        runner.reporter.say(f"{place}: {tuned.describe()}")
        chosen |= tuned.params
    method, origins = configure(replace(choice, options={**choice.options, **chosen}), source, protocol)
    params = {**origins.params, **dict.fromkeys(chosen, "tuned")}
    return method, origins.model_copy(update={"params": params, "tuning": outcomes[0].facts()})
