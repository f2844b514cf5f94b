"""Compare methods: each on the same tasks of every setting and feature file. `solve` is one method and its baseline."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.run import Job, accuracies_over_data, configure
from fsbench.evaluation.source import source_of
from fsbench.evaluation.spec import NO_BASELINE, MethodChoice, Spec, parse_methods
from fsbench.evaluation.tuning import Search, configure_tuned, grid_of, tuning_path, validation_source
from fsbench.methods.registry import BASELINE, BASELINE_WITHOUT_BASE, method_key
from fsbench.results.comparison import Beyond, Column, Comparison, compare_records, entry_of
from fsbench.results.statistics import interval_over_classes
from fsbench.tasks.sampling import check_feasible, pool_sizes, sample_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fsbench.evaluation.run import Runner
    from fsbench.evaluation.source import Source
    from fsbench.features.store import FeatureFile
    from fsbench.methods.base import Method
    from fsbench.reporter import Reporter
    from fsbench.results.comparison import Runs
    from fsbench.tasks.protocol import TaskProtocol

_DRAWN_AT_ONCE = 512


def compare(spec: Spec, files: Sequence[FeatureFile], runner: Runner, base: FeatureFile | None = None) -> Comparison:
    """Run what is missing, read the rest from records, and assemble the table.

    Args:
        spec: What to compare.
        files: Feature files, one group of rows each.
        runner: Computes the runs.
        base: Feature file whose base classes to use, if not the files' own.
    """
    choices, baseline = _choices(spec, files, base, runner.reporter)
    if spec.tune and spec.split == "val":
        raise UsageError("tune", "parameters are tuned on the val classes, which --split val would report on")
    if spec.tune and spec.preset:
        raise UsageError("preset", "tuned parameters replace a preset; choose one of --tune and --preset")
    protocols = _feasible(spec, files, runner.reporter)
    runs: Runs = {}
    over_data: dict[tuple[int, str, Column], NDArray[np.float64]] = {}
    classes: dict[tuple[int, Column], NDArray[np.int64]] = {}
    count = len(choices) * sum(map(len, protocols))
    with runner.reporter.cells(count, spec.tasks) as next_cell:
        for number, file in enumerate(files):
            source = source_of(file, spec.split, base, runner.reporter, runner.ranks)
            configurations = _Configurations(spec, file, source, choices, runner)
            for protocol in protocols[number]:
                column = Column.of(protocol)
                for choice in choices:
                    job = configurations.job(choice, protocol)
                    advance = next_cell(f"{source.dataset} {column.title} {choice.label}")
                    runs[number, choice.label, column] = runner.run(job, source, advance)
                    if spec.over_data:
                        values = accuracies_over_data(job.method, source, protocol, spec.seed, runner.device)
                        over_data |= {} if values is None else {(number, choice.label, column): values}
                if spec.over_data and (number, choices[0].label, column) not in over_data:
                    runner.reporter.warn(
                        f"{source.dataset} {column.title}: fewer than two tasks that share no image fit into "
                        f"{spec.split}, so there is no interval over the data."
                    )
                if spec.over_classes:
                    parts = np.array_split(np.arange(spec.tasks), -(-spec.tasks // _DRAWN_AT_ONCE))
                    drawn = (sample_tasks(protocol, source.split.offsets, spec.seed, part).classes for part in parts)
                    classes[number, column] = np.concatenate([*drawn])
                    if interval_over_classes(np.zeros(spec.tasks), classes[number, column]) is None:
                        runner.reporter.warn(
                            f"{source.dataset} {column.title}: no class of {spec.split} can be left out, so there is "
                            "no interval over the classes."
                        )
    entries = [entry_of(choice.label, choice.method) for choice in choices]
    columns = [column for protocol in spec.protocols if (column := Column.of(protocol)) in {key[2] for key in runs}]
    beyond = Beyond(over_data, classes)
    return compare_records(runs, entries, columns, baseline, with_published=spec.published, beyond=beyond)


def planned_cells(
    spec: Spec, files: Sequence[FeatureFile], runner: Runner, base: FeatureFile | None = None
) -> list[tuple[Job, Source]]:
    """The cells that `compare` would run, without running any; without feature files none."""
    choices, _ = _choices(spec, files, base, runner.reporter)
    cells = []
    for file, protocols in zip(files, _feasible(spec, files, runner.reporter), strict=True):
        source = source_of(file, spec.split, base, runner.reporter, runner.ranks)
        configurations = _Configurations(spec, file, source, choices, runner)
        cells += [(configurations.job(choice, protocol), source) for protocol in protocols for choice in choices]
    return cells


def _feasible(spec: Spec, files: Sequence[FeatureFile], reporter: Reporter) -> list[list[TaskProtocol]]:
    """The protocols of every file, checked before the first task; those that are not feasible are refused or left out.

    With `skip_infeasible` they are left out, unless nothing remains.
    """
    feasible: list[list[TaskProtocol]] = []
    refused: list[str] = []
    for file in files:
        offsets = file.summary(spec.split).offsets
        feasible.append([])
        for protocol in spec.protocols:
            try:
                check_feasible(protocol, pool_sizes(protocol, offsets))
                feasible[-1].append(protocol)
            except FsbenchError as error:
                refused.append(f"{file.path}, {Column.of(protocol).title}: {error.message} {error.hint}")
    if refused and not (any(feasible) and spec.skip_infeasible):
        others = "Go on with the other settings: --skip-infeasible" if any(feasible) else ""
        raise FsbenchError("\n".join(refused), others)
    for reason in refused:
        reporter.warn(f"Left out: {reason}")
    return feasible


def _choices(
    spec: Spec, files: Sequence[FeatureFile], base: FeatureFile | None, reporter: Reporter
) -> tuple[list[MethodChoice], str]:
    """The methods to run, the baseline first if it is not among those asked for, and the label of the baseline.

    Where a file has no base classes, `all` is every method that needs none, and the baseline that was not chosen is
    SimpleShot without centring. Methods of files go by the name of their class, and by that of their file too where
    two classes have the same name.
    """
    choices, name = list(spec.methods), spec.baseline
    without = next((file.path for file in files if base is None and "base" not in file.splits), None)
    if without:
        needy = [choice.label for choice in choices if choice.needs_base]
        if spec.all_methods:
            reporter.say(f"Left out, as {without} has no base classes: {', '.join(needy)}.")
            choices, needy = [choice for choice in choices if not choice.needs_base], []
        if name and parse_methods(name)[0].needs_base:
            needy.append(name)
        if needy:
            raise FsbenchError(
                f"{without} has no base classes, which {', '.join(dict.fromkeys(needy))} need.",
                "Use those of another feature file of the same backbone with --base FILE, or compare the methods that "
                "need none: --methods all.",
            )
    if name == NO_BASELINE:
        return choices, NO_BASELINE
    if name is None:
        name = BASELINE_WITHOUT_BASE if without else BASELINE
    (wanted,) = [choice for choice in choices if choice.label == name] or parse_methods(name)
    if len(choices) == 1 and wanted.method == BASELINE and "t_km" in choices[0].options:
        wanted = replace(wanted, options={"t_km": choices[0].options["t_km"]})  # the temperature that both share
    place = next((place for place, choice in enumerate(choices) if choice.runs_as(wanted)), None)
    if place is None:
        choices, place = [wanted, *choices], 0
    count = Counter(choice.label for choice in choices)
    distinct = [replace(choice, label=choice.method) if count[choice.label] > 1 else choice for choice in choices]
    return distinct, distinct[place].label


class _Configurations:
    """The parameters of methods on one feature file: defaults, presets, or tuned on its val classes."""

    def __init__(
        self, spec: Spec, file: FeatureFile, source: Source, choices: Sequence[MethodChoice], runner: Runner
    ) -> None:
        self.spec, self.file, self.source, self.runner = spec, file, source, runner
        self.val = validation_source(file, source.base) if spec.tune else None
        if self.val and not any(self._search(choice, spec.protocols[0]) for choice in choices):
            grid_of(spec.methods[0].method, {})  # an error that names the methods with a grid

    def job(self, choice: MethodChoice, protocol: TaskProtocol) -> Job:
        """What to run for one cell."""
        method, origin = self._configured(choice, protocol)
        rules = protocol.within(len(self.source.split.offsets) - 1)  # val may have another number of classes
        return Job(method, rules, self.spec.seed, self.spec.tasks, origin, method_key(choice.method))

    def _configured(self, choice: MethodChoice, protocol: TaskProtocol) -> tuple[Method, str]:
        """A configured method, and a word on where its parameters come from."""
        shares = bool(choice.options) and choice.label not in {asked.label for asked in self.spec.methods}
        search = None if shares else self._search(choice, protocol)  # a baseline takes over what was given
        if search is not None:
            return configure_tuned(search, self.source, self.runner)
        return configure(choice.method, self.source, protocol, choice.options, self.spec.preset, self.spec.blind)

    def _search(self, choice: MethodChoice, protocol: TaskProtocol) -> Search | None:
        """The search for a method's parameters; None if there is none to make."""
        if self.val is None:
            return None
        search = Search(choice.method, choice.options, self.val, protocol, tuning_path(self.file.path))
        return search if search.possible() else None
