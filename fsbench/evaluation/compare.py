"""What `fsbench compare` does: every method on the very same tasks of every setting and feature file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fsbench.errors import FsbenchError
from fsbench.evaluation.over_data import interval_over_data
from fsbench.evaluation.run import Job, Machine, configure, run
from fsbench.evaluation.solve import Solved
from fsbench.evaluation.source import source_of
from fsbench.evaluation.spec import ALL, MethodChoice, parse_methods
from fsbench.evaluation.tuning import Search, configure_tuned
from fsbench.methods.registry import (
    BASELINE,
    BASELINE_WITHOUT_BASE,
    method_key,
    needs_base,
)
from fsbench.results.comparison import Column, Comparison, compare_records, entry_of
from fsbench.tasks.protocol import TaskProtocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fsbench.evaluation.source import Source
    from fsbench.features.store import FeatureFile
    from fsbench.methods.base import Method
    from fsbench.reporter import Reporter
    from fsbench.results.comparison import Runs
    from fsbench.results.statistics import Interval


@dataclass(frozen=True)
class Question:
    """What to compare.

    Attributes:
        contestants: Methods.
        columns: Settings.
        baseline: Label of the method that others are compared to.
        protocol: Rules of the tasks; ways and queries. Shots and α come from the columns.
        split: Where tasks are drawn from.
        tasks: How many per setting.
        seed: Of the task lists.
        results: Folder of records.
        force: Run again what has a record.
        published: Whether to show published numbers.
        over_data: Whether to add intervals over the data.
        tune: Whether to use parameters chosen on the validation classes, where a method has some to choose.
        base: Feature file whose base classes to use, if not the files' own.
    """

    contestants: Sequence[MethodChoice]
    columns: Sequence[Column]
    baseline: str
    protocol: TaskProtocol
    split: str = "novel"
    tasks: int = 10_000
    seed: int = 0
    results: Path | None = None
    force: bool = False
    published: bool = True
    over_data: bool = False
    tune: bool = False
    base: FeatureFile | None = None


def choose_methods(
    text: str, baseline: str | None, files: Sequence[FeatureFile], base: FeatureFile | None, reporter: Reporter
) -> tuple[list[MethodChoice], str]:
    """The methods asked for and their baseline, where the files have what they need.

    Without base classes, `all` is every method that needs none, and the baseline is SimpleShot without centring.
    """
    contestants = parse_methods(text)
    lacking = [str(file.path) for file in files if base is None and "base" not in file.splits]
    if not lacking:
        return contestants, baseline or BASELINE
    needy = [contestant.label for contestant in contestants if contestant.needs_base]
    if text == ALL:
        reporter.say(f"Left out, as {lacking[0]} has no base classes: {', '.join(needy)}.")
        contestants, needy = [entrant for entrant in contestants if not entrant.needs_base], []
    if baseline and needs_base(baseline):
        needy.append(baseline)
    if needy:
        raise FsbenchError(
            f"{lacking[0]} has no base classes, which {', '.join(dict.fromkeys(needy))} need.",
            "Give those of another feature file of the same backbone with --base FILE, or compare the methods that "
            "need none: --methods all.",
        )
    return contestants, baseline or BASELINE_WITHOUT_BASE


def _warn(runs: Runs, baseline: str, reporter: Reporter) -> None:
    """Say where BAVARDAGE failed, as `solve` does: once per feature file and variant, where it is worst."""
    if baseline != BASELINE:
        return
    failed: dict[tuple[int, str], list[Solved]] = {}
    for (source, label, column), record in runs.items():
        solved = Solved(record, runs[source, baseline, column])
        if solved.warning():
            failed.setdefault((source, label), []).append(solved)
    for cases in failed.values():
        worst = min(cases, key=lambda solved: solved.gain.mean if solved.gain else 0.0)
        others = f" So it is in {len(cases) - 1} more of these settings." if len(cases) > 1 else ""
        reporter.warn(f"{worst.warning()}{others}")


def _configure(
    question: Question,
    contestant: MethodChoice,
    file: FeatureFile,
    source: Source,
    protocol: TaskProtocol,
    machine: Machine,
    reporter: Reporter,
) -> tuple[Method, str]:
    if question.tune:
        search = Search.on(file, source.base, contestant.method, contestant.options, protocol)
        if search.possible():
            return configure_tuned(search, source, machine, reporter, question.results)
    return configure(contestant.method, source, protocol, contestant.options)


def _with_baseline(question: Question) -> tuple[list[MethodChoice], str]:
    """All methods that run, and the label of the baseline.

    Own methods go by the name of their class, and by that of their file too where two classes have the same name.
    """
    contestants = list(question.contestants)
    (wanted,) = [one for one in contestants if one.label == question.baseline] or parse_methods(question.baseline)
    place = next((place for place, one in enumerate(contestants) if one.runs_as(wanted)), None)
    if place is None:
        contestants, place = [wanted, *contestants], 0
    count = Counter(contestant.label for contestant in contestants)
    distinct = [replace(one, label=one.method) if count[one.label] > 1 else one for one in contestants]
    return distinct, distinct[place].label


def compare(question: Question, files: Sequence[FeatureFile], machine: Machine, reporter: Reporter) -> Comparison:
    """Run what is missing, read the rest from records, and put the table together."""
    contestants, baseline = _with_baseline(question)
    runs: Runs = {}
    over_data: dict[tuple[int, str, Column], Interval] = {}
    for number, file in enumerate(files):
        source = source_of(file, question.split, question.base, reporter, machine.ranks)
        for column in question.columns:
            protocol = TaskProtocol(
                question.protocol.name, question.protocol.ways, column.shots, question.protocol.queries, column.alpha
            )
            for contestant in contestants:
                method, origin = _configure(question, contestant, file, source, protocol, machine, reporter)
                job = Job(method, protocol, question.seed, question.tasks, origin, method_key(contestant.method))
                with reporter.bar(f"{source.dataset} {column.title} {contestant.label}", job.tasks) as advance:
                    runs[number, contestant.label, column] = run(
                        job, source, machine, question.results, force=question.force, progress=advance
                    )
                if question.over_data:
                    found = interval_over_data(method, source, protocol, question.seed, machine.device)
                    if found:
                        over_data[number, contestant.label, column] = found
            if question.over_data and (number, contestants[0].label, column) not in over_data:
                reporter.warn(
                    f"{source.dataset} {column.title}: fewer than two tasks that share no image fit into "
                    f"{question.split}, so there is no interval over the data."
                )
    _warn(runs, baseline, reporter)
    return compare_records(
        runs,
        [entry_of(contestant.label, contestant.method) for contestant in contestants],
        question.columns,
        baseline,
        with_published=question.published,
        over_data=over_data,
    )
