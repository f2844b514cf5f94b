"""Compare methods: each on the same tasks of every setting and feature file. `solve` is one method and its baseline."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fsbench.errors import FsbenchError
from fsbench.evaluation.disjoint import accuracies_over_data
from fsbench.evaluation.run import Job, configure
from fsbench.evaluation.source import source_of
from fsbench.evaluation.spec import NETWORK_TASKS, NO_BASELINE, MethodChoice, Spec, parse_methods
from fsbench.evaluation.tuning import Search, configure_tuned, grid_of, validation_source
from fsbench.methods.registry import BASELINE, BASELINE_WITHOUT_BASE, method_key
from fsbench.results.collect import join, with_tasks
from fsbench.results.comparison import Beyond, Column, Comparison, compare_records, entry_of
from fsbench.results.statistics import interval_over_classes
from fsbench.results.tuned import tuning_path
from fsbench.tasks.sampling import check_feasible, pool_sizes, sample_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fsbench.evaluation.run import Runner
    from fsbench.evaluation.source import Source
    from fsbench.features.store import FeatureFile
    from fsbench.reporter import Reporter
    from fsbench.results.comparison import Runs
    from fsbench.results.record import RunRecord
    from fsbench.tasks.protocol import TaskProtocol


def compare(
    spec: Spec,
    files: Sequence[FeatureFile],
    runner: Runner,
    base: FeatureFile | None = None,
    *,
    others: Sequence[RunRecord] = (),
) -> Comparison:
    """Run what is missing, read the rest from records, and assemble the table.

    Args:
        spec: What to compare.
        files: Feature files, one group of rows each.
        runner: Computes the runs.
        base: Feature file whose base classes to use, if not the files' own.
        others: Records of other people; those of the same tasks join the table.
    """
    choices, baseline = _choices(spec, files, base, runner.reporter)
    protocols = _feasible(spec, files, runner.reporter)
    images = any(choice.network for choice in choices)
    chosen = _with_images(spec, choices, baseline, files, runner) if images else [choices] * len(files)
    runs: Runs = {}
    over_data: dict[tuple[int, str, Column], NDArray[np.float64]] = {}
    classes: dict[tuple[int, Column], NDArray[np.int64]] = {}
    count, spent = sum(len(own) * len(rules) for own, rules in zip(chosen, protocols, strict=True)), 0.0
    with runner.reporter.cells(count, spec.tasks) as next_cell:
        for number, file in enumerate(files):
            source = source_of(file, spec.split, base, runner.reporter, runner.ranks)
            searches = _searches(spec, file, source, choices, runner) if spec.tune else {}
            for protocol in protocols[number]:
                column = Column.of(protocol)
                seen = [
                    runner.images.source_for(choice.network, source, file, runner) if choice.network else source
                    for choice in chosen[number]
                ]
                jobs = [
                    _job(spec, choice, protocol, shown, searches.get((choice.label, protocol)), runner)
                    for choice, shown in zip(chosen[number], seen, strict=True)
                ]
                for place, (choice, job, shown) in enumerate(zip(chosen[number], jobs, seen, strict=True)):
                    # What others leave of their shares is for those that come after them.
                    seconds = spec.budget and max(0.1, (spec.budget - spent) / (count - len(runs)))
                    advance = next_cell(f"{source.dataset} {column.title} {choice.label}")
                    record = runs[number, choice.label, column] = runner.run(
                        replace(job, seconds=seconds), shown, advance, jobs[place + 1 :]
                    )
                    spent += record.seconds
                    if spec.over_data:
                        values = accuracies_over_data(job.method, shown, protocol, spec.seed, runner.device)
                        over_data |= {} if values is None else {(number, choice.label, column): values}
                if spec.over_data and (number, choices[0].label, column) not in over_data:
                    runner.reporter.warn(
                        f"{source.dataset} {column.title}: fewer than two tasks that share no image fit into "
                        f"{spec.split}, so there is no interval over the data."
                    )
                if spec.over_classes:
                    classes[number, column] = _drawn_classes(spec, protocol, source, runner.reporter)
    labels = with_tasks((label, record) for (_, label, _), record in runs.items())
    runs = {(number, labels[label], column): record for (number, label, column), record in runs.items()}
    over_data = {(number, labels[label], column): values for (number, label, column), values in over_data.items()}
    entries = [entry_of(labels[choice.label], choice.method) for choice in choices if choice.label in labels]
    entries += join(runs, others, runner.reporter)
    columns = [column for protocol in spec.protocols if (column := Column.of(protocol)) in {key[2] for key in runs}]
    beyond = Beyond(over_data, classes)
    return compare_records(
        runs, entries, columns, labels.get(baseline, baseline), with_published=spec.published, beyond=beyond
    )


def _drawn_classes(spec: Spec, protocol: TaskProtocol, source: Source, reporter: Reporter) -> NDArray[np.int64]:
    """(T, K) classes of the tasks, with a warning where they give no interval."""
    drawn = sample_list(protocol, source.split.offsets, spec.seed, spec.tasks)
    classes = np.concatenate([part.classes for part in drawn])
    if interval_over_classes(np.zeros(spec.tasks), classes) is None:
        reporter.warn(
            f"{source.dataset} {Column.of(protocol).title}: no class of {spec.split} can be left out, so there is "
            "no interval over the classes."
        )
    return classes


def _job(
    spec: Spec, choice: MethodChoice, protocol: TaskProtocol, source: Source, search: Search | None, runner: Runner
) -> Job:
    """What to run for one cell, with tuned parameters where there is a search for them."""
    if search:
        method, origin = configure_tuned(search, source, runner)
    else:
        method, origin = configure(choice.method, source, protocol, choice.options, spec.preset, spec.blind)
    rules = protocol.within(len(source.split.offsets) - 1)  # val may have another number of classes
    job = Job(method, rules, spec.seed, spec.tasks, origin, method_key(choice.method))
    if spec.all_methods and choice.adapts_network and spec.tasks > NETWORK_TASKS:
        job = replace(job, tasks=NETWORK_TASKS, asked=spec.tasks)
    return job


def planned_cells(
    spec: Spec, files: Sequence[FeatureFile], runner: Runner, base: FeatureFile | None = None
) -> list[tuple[Job, Source]]:
    """The cells that `compare` would run, without running any; without feature files none."""
    choices, baseline = _choices(spec, files, base, runner.reporter)
    feasible, cells = _feasible(spec, files, runner.reporter), []
    chosen = _with_images(spec, choices, baseline, files, runner)
    for file, own, protocols in zip(files, chosen, feasible, strict=True):
        source = source_of(file, spec.split, base, runner.reporter, runner.ranks)
        searches = _searches(spec, file, source, choices, runner) if spec.tune else {}
        for protocol, choice in itertools.product(protocols, own):
            network = choice.network
            seen = runner.images.source_for(network, source, file, runner, planned=True) if network else source
            cells.append((_job(spec, choice, protocol, seen, searches.get((choice.label, protocol)), runner), seen))
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
    run = wanted.method, wanted.options  # the same may go by another label
    place = next((place for place, choice in enumerate(choices) if (choice.method, choice.options) == run), None)
    if place is None:
        choices, place = [wanted, *choices], 0
    count = Counter(choice.label for choice in choices)
    distinct = [replace(choice, label=choice.method) if count[choice.label] > 1 else choice for choice in choices]
    return distinct, distinct[place].label


def _with_images(
    spec: Spec, choices: Sequence[MethodChoice], baseline: str, files: Sequence[FeatureFile], runner: Runner
) -> list[list[MethodChoice]]:
    """The methods for every file; where all were asked for, without those whose images or weights are missing."""
    left_out: dict[str, dict[str, None]] = {}
    chosen: list[list[MethodChoice]] = []
    for file in files:
        chosen.append([])
        for choice in choices:
            problem = runner.images.missing(choice.network, file, spec.split, runner) if choice.network else None
            if problem and (not spec.all_methods or choice.label == baseline):
                raise FsbenchError(f"{choice.label} works on images. {problem.message}", problem.hint)
            if problem:
                left_out.setdefault(problem.message, {})[choice.label] = None
            else:
                chosen[-1].append(choice)
    for reason, labels in left_out.items():
        works = "it works" if len(labels) == 1 else "they work"
        runner.reporter.say(f"Left out, as {works} on images: {', '.join(labels)}. {reason}")
    few = dict.fromkeys(choice.label for each in chosen for choice in each if choice.adapts_network)
    if few and spec.all_methods and spec.tasks > NETWORK_TASKS:
        runner.reporter.say(
            f"{', '.join(few)}: {NETWORK_TASKS} of {spec.tasks:,} tasks, as a network is adapted to every task. "
            "For all tasks, name the methods in --methods."
        )
    return chosen


def _searches(
    spec: Spec, file: FeatureFile, source: Source, choices: Sequence[MethodChoice], runner: Runner
) -> dict[tuple[str, TaskProtocol], Search]:
    """The searches for parameters of methods that have some to tune, by label and protocol.

    A baseline that was not asked for takes over what was given, and is not tuned.
    """
    val, memory = validation_source(file, source.base), tuning_path(file.path)
    asked = {choice.label for choice in spec.methods}
    tuned = [choice for choice in choices if not choice.options or choice.label in asked]
    found = {}
    for choice, protocol in itertools.product(tuned, spec.protocols):
        search = Search(choice.method, choice.options, val, protocol, memory)
        if search.possible() and choice.network:
            search = replace(search, source=runner.images.source_for(choice.network, val, file, runner))
        if search.possible():
            found[choice.label, protocol] = search
    if not found:
        grid_of(spec.methods[0].method, {})  # an error that names the methods with a grid
    return found
