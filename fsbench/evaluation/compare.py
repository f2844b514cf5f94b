"""Compare methods: each on the same tasks of every setting and feature file. `solve` is one method and its baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.run import NEEDS_TEXT, Job, Runner, configure, lack_of_examples
from fsbench.evaluation.source import Base, Source, source_of, with_pixels
from fsbench.evaluation.spec import NETWORK_TASKS, NO_BASELINE, MethodChoice, Spec, parse_methods
from fsbench.evaluation.tuning import configure_tuned, grid_of
from fsbench.features.store import FeatureFile
from fsbench.methods import registry
from fsbench.methods.pool import ENOUGH, POOL
from fsbench.reporter import Reporter
from fsbench.results.collect import add_records
from fsbench.results.comparison import Comparison, Runs, compare_records
from fsbench.results.metrics import metric_of
from fsbench.results.record import Record
from fsbench.tasks.protocol import ALL, TaskProtocol
from fsbench.tasks.sampling import feasible_sizes


def compare(
    spec: Spec, files: Sequence[FeatureFile], runner: Runner, base: Base = None, *, others: Sequence[Path] = ()
) -> Comparison:
    """Run what is missing, read the rest from records, and assemble the table, with a group of rows per file.

    The base classes are those of `base`, if not the files' own; `pool` does without. Further records, or folders of
    them, join where tasks are the same.
    """
    if base == POOL and spec.tune:
        raise UsageError("tune", "parameters are tuned with base classes, and --base pool does without; choose one")
    if spec.by_default and base is None and (without := [file.path for file in files if "base" not in file.splits]):
        spec = replace(spec, methods=tuple(parse_methods(registry.DEFAULT_WITHOUT_BASE)))
        runner.reporter.say(
            f"{without[0]} has no base classes: comparing {', '.join(registry.DEFAULT_WITHOUT_BASE)}, which need none. "
            f"For others, such as bavardage:weighted, which fsbench label uses, add --base FILE, or --base pool where "
            f"tasks have about {ENOUGH} images or more."
        )
    choices, baseline = _choices(spec, files, base)
    protocols = _feasible(spec, files, runner.reporter)
    chosen = _able(spec, choices, baseline, files, base, runner)
    count = sum(len(own) * len(rules) for own, rules in zip(chosen, protocols, strict=True))
    others_have_shots = any(protocol.shots for protocol in spec.protocols)  # then a cell at 0 shots may be empty
    runs: Runs = {}
    failures: dict[str, FsbenchError] = {}
    with runner.reporter.bar("preparing", count * spec.tasks) as bar:
        for number, file in enumerate(files):
            source = source_of(file, spec.split, base, runner.reporter, runner.ranks)
            for protocol in protocols[number]:
                able = [one for one in chosen[number] if one.info.zero_shot or protocol.shots or not others_have_shots]
                jobs = [_job(spec, choice, protocol, source, file, runner) for choice in able]
                if spec.tune and not any(job.origins.tuning for job in jobs):
                    grid_of(spec.methods[0])  # an error that names the methods with a grid
                for job, record in zip(jobs, runner.run_all(jobs, bar), strict=True):
                    if isinstance(record, Record):
                        runs[number, job.choice.label, protocol] = record
                    else:
                        failures.setdefault(f"{job.choice.label}, {protocol.title}", record)
    if failures:
        _refuse_failures(failures, runs, baseline, runner.reporter)
    labels = [choice.label for choice in choices if any(choice.label == label for _, label, _ in runs)]
    if others:
        labels += add_records(runs, others, runner.reporter, registry.installed_versions())
    columns = [protocol for protocol in spec.protocols if any(protocol == column for *_, column in runs)]
    how = {"with_published": spec.published, "over_classes": spec.over_classes}
    return compare_records(runs, labels, columns, baseline, metrics=[*map(metric_of, spec.metrics)], **how)


def _refuse_failures(failures: Mapping[str, FsbenchError], runs: Runs, baseline: str, reporter: Reporter) -> None:
    """Name the methods that failed; the table has the others, if there are others than the baseline."""
    if all(label == baseline for _, label, _ in runs):
        raise next(iter(failures.values()))
    for where, error in failures.items():
        reporter.warn(f"{where}: {error.message} It is left out. {error.hint}")


def _job(
    spec: Spec, choice: MethodChoice, protocol: TaskProtocol, source: Source, file: FeatureFile, runner: Runner
) -> Job:
    """What to run for one cell, with tuned parameters where they are asked for and there are some to tune."""
    rows = with_pixels(source, choice.network, file, runner)
    # A baseline that was not asked for takes over what was given, and is not tuned.
    asked = not choice.options or any(choice.label == other.label for other in spec.methods)
    tuned = configure_tuned(choice, protocol, file, rows, runner) if spec.tune and asked else None
    method, origins = tuned or configure(choice, rows, protocol, preset=spec.preset, blind=spec.blind)
    # All classes of this split: val may have another number of them.
    rules = replace(protocol, ways=len(source.split.class_names)) if protocol.ways == ALL else protocol
    few = spec.all_methods and choice.network and choice.info.cost == "network"
    return Job(choice, method, origins, rows, rules, spec.seed, min(spec.tasks, NETWORK_TASKS) if few else spec.tasks)


def _feasible(spec: Spec, files: Sequence[FeatureFile], reporter: Reporter) -> list[list[TaskProtocol]]:
    """The protocols of every file, checked before the first task; infeasible ones are refused, or may be left out."""
    feasible: list[list[TaskProtocol]] = []
    refused: dict[str, list[str]] = {}
    for file in files:
        offsets = file.summary(spec.split).offsets
        feasible.append([])
        for protocol in spec.protocols:
            try:
                if not protocol.shots and file.summary(spec.split).text is None:
                    raise FsbenchError("0 shots need text prototypes of the classes, and there are none.", NEEDS_TEXT)
                feasible_sizes(protocol, offsets)
                feasible[-1].append(protocol)
            except FsbenchError as error:
                refused.setdefault(f"{error.message} {error.hint}", []).append(f"{file.path}, {protocol.title}")
    if refused and not (any(feasible) and spec.skip_infeasible):
        others = "Go on with the other settings: --skip-infeasible" if any(feasible) else ""
        raise FsbenchError("\n".join(f"{'; '.join(places)}: {why}" for why, places in refused.items()), others)
    for why, places in refused.items():
        reporter.warn(f"Left out: {'; '.join(places)}: {why}")
    return feasible


def _choices(spec: Spec, files: Sequence[FeatureFile], base: Base) -> tuple[list[MethodChoice], str]:
    """The methods to run, the baseline first if it is not among those asked for, and the label of the baseline.

    Methods of files go by the name of their class, and by that of their file too where two classes have the same name.
    """
    choices, name = list(spec.methods), spec.baseline
    if name is None:
        without_shots = not all(protocol.shots for protocol in spec.protocols)
        without_base = base is None and any("base" not in file.splits for file in files)
        name = registry.usual_baseline(base=not without_base, shots=not without_shots)
    place = None
    if name != NO_BASELINE:
        (wanted,) = [choice for choice in choices if choice.label == name] or parse_methods(name)
        if len(choices) == 1 and wanted.method == registry.BASELINE and "t_km" in choices[0].options:
            shared = {"t_km": choices[0].options["t_km"]}  # the temperature of both
            wanted = replace(wanted, label=f"{wanted.label} t_km={shared['t_km']:g}", options=shared)
        same = (wanted.method, wanted.options)  # may go by another label
        place = next((place for place, choice in enumerate(choices) if (choice.method, choice.options) == same), None)
        if place is None:
            choices, place = [wanted, *choices], 0
    count = Counter(choice.label for choice in choices)
    distinct = [replace(choice, label=choice.method) if count[choice.label] > 1 else choice for choice in choices]
    return distinct, NO_BASELINE if place is None else distinct[place].label


def _able(
    spec: Spec, choices: Sequence[MethodChoice], baseline: str, files: Sequence[FeatureFile], base: Base, runner: Runner
) -> list[list[MethodChoice]]:
    """The methods for every file. One that lacks something there is refused, or left out where all were asked for."""
    lacking: dict[tuple[str, str], dict[str, None]] = {}
    able: list[list[MethodChoice]] = []
    for file in files:
        problems = {choice.label: _lack(choice, spec, file, base, runner) for choice in choices}
        able.append([choice for choice in choices if problems[choice.label] is None])
        for label, problem in problems.items():
            if problem:
                lacking.setdefault((problem.message, problem.hint), {})[label] = None
    for (reason, hint), labels in lacking.items():
        if not spec.all_methods or baseline in labels:
            raise FsbenchError(f"{', '.join(labels)} cannot run here. {reason}", hint)
        runner.reporter.say(f"Left out: {', '.join(labels)}. {reason}")
    adapting = (one for each in able for one in each if one.network and one.info.cost == "network")
    if spec.all_methods and spec.tasks > NETWORK_TASKS and (few := dict.fromkeys(one.label for one in adapting)):
        runner.reporter.say(
            f"{', '.join(few)}: {NETWORK_TASKS} of {spec.tasks:,} tasks, as a network is adapted to every task. "
            "For all tasks, name the methods in --methods."
        )
    return able


def _lack(choice: MethodChoice, spec: Spec, file: FeatureFile, base: Base, runner: Runner) -> FsbenchError | None:
    """What a method needs and a file does not have; None if it has everything."""
    if choice.info.needs_base_for(choice.options) and base is None and "base" not in file.splits:
        return FsbenchError(
            f"{file.path} has no base classes.",
            "Use those of another feature file of the same backbone with --base FILE, the images of each task with "
            f"--base pool (from about {ENOUGH} on), or compare the methods that need none: --methods all.",
        )
    if choice.network:
        look = partial(runner.images.unavailable, choice.network, file, spec.split, runner.reporter)
        return runner.ranks.first_alone(look)
    shots = max(protocol.shots for protocol in spec.protocols)
    return lack_of_examples(choice, file.summary(spec.split).text is not None, shots)
