"""Records read from files, labelled, and collected into comparisons."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fsbench.errors import FsbenchError, missing_file, unknown_name
from fsbench.reporter import Reporter
from fsbench.results.comparison import Comparison, Runs, compare_records
from fsbench.results.metrics import ACCURACY, Metric
from fsbench.results.record import Record, load_record
from fsbench.results.studies import SWEEPS, Sweep, load_sweep

T = TypeVar("T")
BASELINE = "soft-kmeans"  # what others are compared to unless told otherwise
_INSTEAD = ("simpleshot:L2N", "zero-shot")  # where that did not run: without base classes, without labelled images


def labels_of(records: Sequence[Record]) -> list[str]:
    """Labels for the runs of one comparison. No two runs of a setting share one.

    A run is labelled as by `fsbench compare`, or where another method has that label by the name in the record, with
    parameters given by hand, or that it was blind. Where runs of one name were configured in different ways, those that
    were tuned say so. Where labels are still the same, what differs is added.
    """
    methods: dict[str, set[str]] = {}
    for record in records:
        methods.setdefault(record.method.label, set()).add(record.run.method)
    names = [one.method.label if len(methods[one.method.label]) == 1 else one.run.method for one in records]
    pairs = [*zip(names, map(_remark, records), strict=True)]
    configurations = Counter(name for name, _ in {*pairs})
    labels = []
    for one, (name, remark) in zip(records, pairs, strict=True):
        told = configurations[name] > 1 or one.origins.by_hand or one.origins.blind
        labels.append(f"{name} {remark}" if remark and told else name)
    differing = _differing(records, labels)
    return [
        " ".join([label, *(f"{name}={record.run.params.get(name)}" for name in sorted(differing[label]))])
        for record, label in zip(records, labels, strict=True)
    ]


def _remark(record: Record) -> str:
    """How parameters differ from the defaults: `tau=0.2`, `(tuned:val:50x500)`, or nothing."""
    params, origins = record.run.params, record.origins
    words = [
        f"{name}={params[name]:.4g}" if isinstance(params[name], float) else f"{name}={params[name]}"
        for name in origins.by_hand
        if name in params
    ]
    if tuning := origins.tuning:
        words.append(f"(tuned:val:{tuning.how}:{tuning.trials}x{tuning.tasks})")
    elif origins.blind:
        words.append("(blind)")
    return " ".join(words)


def _differing(records: Sequence[Record], labels: Sequence[str]) -> dict[str, set[str]]:
    """For every label, the parameters that differ between runs of one setting."""
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    differing: dict[str, set[str]] = {label: set() for label in labels}
    for record, label in zip(records, labels, strict=True):
        cells.setdefault((label, record.source, record.run.protocol), []).append(record.run.params)
    for (label, *_), params in cells.items():
        names = {name for one in params for name in one}
        differing[label] |= {name for name in names if any(one.get(name) != params[0].get(name) for one in params)}
    return differing


def _order(label: str, record: Record) -> tuple[int, list[str | float]]:
    """Sorts labels in the order of the methods; numbers in labels by value."""
    parts = re.split(r"(\d+(?:\.\d+)?)", label)  # text and numbers alternate
    return record.method.order, [float(part) if number % 2 else part for number, part in enumerate(parts)]


def read_records(
    paths: Sequence[Path] | None, folder: Path, reporter: Reporter, versions: Mapping[str, int] | None = None
) -> list[Record]:
    """Read record files and folders of them, else the folder of results; not subfolders, which hold points of sweeps.

    Files that are named must be valid; invalid files of a folder are left out with a warning. Of a run that is stored
    twice the longer record counts, and of a method that has changed its newest version, or that of `versions`.
    """
    records: list[Record] = []
    for path in paths or [folder]:
        is_folder = path.is_dir() or not paths
        if not is_folder and not path.exists():
            raise missing_file(path, "Name records or folders of them.")
        records += _valid(sorted(path.glob("*.h5")), load_record, reporter) if is_folder else [load_record(path)]
    if not records:
        places = ", ".join(f"{path}/" for path in paths or [folder])
        remedy = "Create some with fsbench compare, or name a folder of records."
        raise FsbenchError(f"There are no records in {places}.", remedy)
    newest = _of_newest_versions(records, reporter, versions or {})
    by_length = sorted(newest, key=lambda record: (record.tasks, record.created))
    return [*{(record.run.digest, *record.source): record for record in by_length}.values()]


def _of_newest_versions(records: Sequence[Record], reporter: Reporter, versions: Mapping[str, int]) -> list[Record]:
    newest = dict(versions)
    for record in records:
        newest[record.run.method] = max(record.run.version, newest.get(record.run.method, 0))
    old = Counter(one.run.method for one in records if one.run.version < newest[one.run.method])
    for name, count in old.items():
        noun, verb, them = ("records", "are", "them") if count > 1 else ("record", "is", "it")
        left_out = f"{count} {noun} of an earlier version of {name} {verb} left out."
        reporter.warn(f"{left_out} Run it again to replace {them}.")
    return [record for record in records if record.run.version == newest[record.run.method]]


def _valid(paths: Iterable[Path], load: Callable[[Path], T], reporter: Reporter) -> list[T]:
    """What can be read; the rest is left out with a warning."""
    loaded = []
    for path in paths:
        try:
            loaded.append(load(path))
        except FsbenchError as error:
            reporter.warn(f"{error.message} It is left out.")
    return loaded


def read_sweeps(folder: Path, reporter: Reporter) -> list[Sweep]:
    """Read all sweeps of a folder of results, of those with the same words the last; what is left out is named."""
    sweeps = _valid(sorted((folder / SWEEPS).glob("*.json"), key=lambda one: one.stat().st_mtime), load_sweep, reporter)
    shown = [
        [one.title, *((each.title, *(line.label for line in each.curves)) for each in one.panels)] for one in sweeps
    ]
    newest = dict(zip(map(str, shown), sweeps, strict=True))
    if old := len(sweeps) - len(newest):
        reporter.warn(f"Sweeps left out, as later ones have the same titles: {old}.")
    return [*newest.values()]


def collect(
    records: Iterable[Record],
    baseline: str = BASELINE,
    *,
    metrics: Sequence[Metric] = (ACCURACY,),
    published: bool = True,
) -> list[Comparison]:
    """Collect records into comparisons: one per split, origin of the base classes, rules and seed.

    The comparison with the most tasks comes first, and of those the one with the most runs. The order of the records
    does not matter. The baseline is the label of the method that others are compared to, where it ran. Published
    numbers are looked up unless `published` is false.
    """
    lists: dict[tuple[Any, ...], list[Record]] = {}
    for record in sorted(as_asked(records), key=lambda record: (record.run.digest, record.source)):
        lists.setdefault(_rules(record), []).append(record)
    ordered = sorted(lists, key=str)
    ordered.sort(key=lambda rules: (-max(one.tasks for one in lists[rules]), -len(lists[rules])))
    comparisons = [_comparison(lists[rules], baseline, metrics, published) for rules in ordered]
    labels = {entry.label for comparison in comparisons for entry in comparison.entries}
    if baseline != BASELINE and baseline not in labels:
        raise unknown_name("baseline", baseline, labels)
    return comparisons


def as_asked(records: Iterable[Record]) -> list[Record]:
    """Every record under each of the names that its parameters were asked for with: as defaults, blind, by hand."""
    copies: list[Record] = []
    for record in records:
        names = (*record.also, record.origins) if record.also else ()
        by_name = [record.model_copy(update={"origins": one, "also": ()}) for one in names]
        copies += {_remark(one): one for one in by_name or [record]}.values()
    return copies


def split_ablations(records: Sequence[Record], baseline: str = BASELINE) -> tuple[list[Record], list[Record]]:
    """Records for the ranking, and those of ablations.

    An ablation is a run with parameters set by hand, where the same method also ran on the same tasks without. The
    second list has these runs, those of the same methods, and the baseline; only the first are not in both.
    """
    plain: dict[str, set[str]] = {}
    records = as_asked(records)
    for record in records:
        if not record.origins.by_hand:
            plain.setdefault(record.run.tasks_digest, set()).add(record.run.method)
    by_hand = (record for record in records if record.origins.by_hand)
    ablations = [one for one in by_hand if one.run.method in plain.get(one.run.tasks_digest, ())]
    studied: dict[str, set[str]] = {}
    for record in ablations:
        studied.setdefault(record.run.tasks_digest, {baseline}).add(record.run.method)
    ranking = [record for record in records if not any(record is other for other in ablations)]
    return ranking, [record for record in records if record.run.method in studied.get(record.run.tasks_digest, ())]


def _rules(record: Record) -> tuple[Any, ...]:
    """What the runs of one comparison have in common."""
    run, rules = record.run, record.run.protocol
    drawn = rules.ways, rules.queries, rules.present or "all", rules.unknown, rules.support
    base = run.base if run.base == "pool" else record.base_dataset  # statistics of each task, or of base classes
    return run.split, base, rules.name, rules.version, *drawn, run.seed


_TITLED = (
    "{} classes", "base {}", "protocol {}", "version {}", "{}-way", "{} queries", "{} classes present",
    "{} unknown classes", "{} shots", "seed {}",
)  # fmt: skip
_BASES = {"": "classes of their own", "pool": "statistics of each task"}


def titles(comparisons: Sequence[Comparison]) -> list[str]:
    """Short names that tell comparisons apart: `10,000 tasks`, and what else differs between them: `seed 1`."""
    rules = [_rules(comparison.records[0]) for comparison in comparisons]
    differing = [place for place in range(len(_TITLED)) if len({one[place] for one in rules}) > 1]
    names = []
    for comparison, one in zip(comparisons, rules, strict=True):
        named = {**dict(enumerate(one)), 1: _BASES.get(one[1], f"classes of {one[1]}")}
        words = [_TITLED[place].format(named[place]) for place in differing]
        names.append(", ".join([f"{comparison.tasks:,} tasks", *words]))
    return names


def _comparison(records: Sequence[Record], baseline: str, metrics: Sequence[Metric], published: bool) -> Comparison:
    names = {(one.dataset, one.backbone, one.provenance.crops, one.source) for one in records}
    sources = [source for *_, source in sorted(names)]
    named = sorted(zip(labels_of(records), records, strict=True), key=lambda pair: _order(*pair))
    runs: Runs = {(sources.index(record.source), label, record.run.protocol): record for label, record in named}
    columns = sorted({column for *_, column in runs}, key=lambda one: (one.balanced, one.alpha or 0.0, one.shots))
    labels = list(dict.fromkeys(label for label, _ in named))
    if baseline == BASELINE and baseline not in labels:
        baseline = next((label for label in _INSTEAD if label in labels), baseline)
    return compare_records(runs, labels, columns, baseline, metrics=metrics, with_published=published)


def add_records(
    runs: Runs, paths: Sequence[Path], reporter: Reporter, versions: Mapping[str, int] | None = None
) -> list[str]:
    """Add stored records, such as those of other people, to runs of the same tasks; returns their labels.

    Of a record of more tasks the first ones are taken; records of fewer or of other tasks are counted and left out.
    """
    longest = sorted(runs.items(), key=lambda item: item[1].tasks)
    cells = {run.run.tasks_digest: (source, column, run.tasks) for (source, _, column), run in longest}
    ours, taken = [*runs.values()], {label for _, label, _ in runs}
    solved = {run.run.digest for run in ours}
    others: dict[str, tuple[Record, Path]] = {}
    for path in paths:
        records = [one for one in read_records([path], path, reporter, versions) if one.run.digest not in solved]
        fitting = [one for one in records if one.tasks >= cells.get(one.run.tasks_digest, (0, None, math.inf))[2]]
        others |= {one.run.digest: (one, path) for one in fitting}
        if left_out := len(records) - len(fitting):
            reporter.warn(f"Records left out of {path}: {left_out} (other tasks than this table, or fewer).")
    labels: dict[str, None] = {}
    named = labels_of([*ours, *(record for record, _ in others.values())])[len(ours) :]
    for own, (record, path) in zip(named, others.values(), strict=True):
        source, column, tasks = cells[record.run.tasks_digest]
        label = f"{own} ({path})" if own in taken else own
        labels[label], runs[source, label, column] = None, record.first(tasks)
    return [*labels]
