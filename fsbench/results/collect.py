"""Names of runs in a table: the method, its variant, and the parameters that tell it from its neighbours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from fsbench.errors import FsbenchError, unknown_name
from fsbench.methods.presets import ARTICLE_UNITS
from fsbench.methods.registry import BASELINE, METHODS, installed_class
from fsbench.results.comparison import Column, Comparison, Entry, compare_records, entry_of
from fsbench.results.curves import SWEEPS, Sweep, load_sweep
from fsbench.results.record import RunRecord, load_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from fsbench.methods.base import Variants
    from fsbench.reporter import Reporter
    from fsbench.results.comparison import Runs
    from fsbench.results.record import RunRecord


def label_runs(records: Sequence[RunRecord]) -> list[str]:
    """Labels for the runs of one comparison, such that no two runs of a setting share one.

    A run is called as `fsbench compare` calls it. Where runs of one name were configured in different ways, those that
    do not have the default parameters say what was given, or that they were tuned. If that does not tell them apart,
    the parameters that differ do.
    """
    names = _names(records)
    remarks = [_remark(record) for record in records]
    ways: dict[str, set[str]] = {}
    for name, remark in zip(names, remarks, strict=True):
        ways.setdefault(name, set()).add(remark)
    found = [
        f"{name} {remark}" if remark and len(ways[name]) > 1 else name
        for name, remark in zip(names, remarks, strict=True)
    ]
    differing = _differing(records, found)
    return [
        " ".join([label, *(f"{name}={record.key.params.get(name)}" for name in differing[label])])
        for record, label in zip(records, found, strict=True)
    ]


def order(label: str, method: str) -> tuple[int, list[str | float]]:
    """Sorts labels as the table of methods lists them, then others; numbers in labels by value."""
    place = [*METHODS].index(method) if method in METHODS else len(METHODS)
    parts = re.split(r"(\d+(?:\.\d+)?)", label)  # text and numbers take turns
    return place, [float(part) if number % 2 else part for number, part in enumerate(parts)]


def _names(records: Sequence[RunRecord]) -> list[str]:
    """Method and variant; a class of the user's file goes by its own name while there is one of that name."""
    classes = {record.key.method: _class_name(record.key.method) for record in records}
    short = list(classes.values())
    return [
        record.key.method if short.count(classes[record.key.method]) > 1 else _with_variant(record, classes)
        for record in records
    ]


def _class_name(method: str) -> str:
    """`Mine` for `mine.py:Mine@1a2b3c4d`, `theirs` for `theirs@1.2`."""
    return (method.rpartition(":")[2] if ".py:" in method else method).partition("@")[0]


def _with_variant(record: RunRecord, classes: dict[str, str]) -> str:
    method = record.key.method
    variants = _variants(method)
    variant = record.key.params.get(variants.parameter, variants.default) if variants else None
    return classes[method] if variants is None or variant == variants.default else f"{classes[method]}:{variant}"


def _variants(method: str) -> Variants | None:
    """The variants of an installed method, by its name in a record."""
    found = installed_class(method.partition("@")[0])
    return found.info.variants if found else None


def _remark(record: RunRecord) -> str:
    """How a run departs from the default parameters: `tau=0.2`, `(tuned:val:50x500)`, or nothing."""
    origin, _, given = record.params_from.partition(" + given:")
    params = record.key.params
    variants = _variants(record.key.method)
    named = [ARTICLE_UNITS.get(name, name) for name in given.split(",") if name]
    words = [
        f"{name}={params[name]:.4g}" if isinstance(params[name], float) else f"{name}={params[name]}"
        for name in named
        if name in params and not (variants and name == variants.parameter)
    ]
    if not origin.startswith(("default", "preset:")):
        words.append(f"({origin})")
    return " ".join(words)


def _differing(records: Sequence[RunRecord], labels: Sequence[str]) -> dict[str, list[str]]:
    """For every label, the parameters that differ between runs of one setting."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    found: dict[str, set[str]] = {label: set() for label in labels}
    for record, label in zip(records, labels, strict=True):
        key = record.key
        setting = repr((key.features_sha256, key.base_sha256, sorted(key.protocol.items())))
        cells.setdefault((label, setting), []).append(key.params)
    for (label, _), params in cells.items():
        for name in {name for one in params for name in one}:
            if any(one.get(name) != params[0].get(name) for one in params):
                found[label].add(name)
    return {label: sorted(names) for label, names in found.items()}


T = TypeVar("T")
Rules = tuple[str, str, str, int, int, int, int, int]


def read_records(given: Sequence[Path] | None, folder: Path, reporter: Reporter) -> list[RunRecord]:
    """Read the records given, else all of the folder.

    Args:
        given: Records, which must be sound, and folders.
        folder: Where to look if none is given. Its sub-folders hold the points of sweeps and are not read; files that
            are no sound record are left out with a warning.
        reporter: Takes the warnings.
    """
    records: list[RunRecord] = []
    for path in given or [folder]:
        records += _of_folder(path, reporter) if path.is_dir() or not given else [load_record(path)]
    if not records:
        places = ", ".join(f"{path}/" for path in given or [folder])
        raise FsbenchError(
            f"There are no records in {places}.", "Make some: fsbench compare. Or name a folder of them."
        )
    newest: dict[str, RunRecord] = {}
    for record in sorted(records, key=lambda record: record.created):
        newest[record.key.digest()] = record  # equal keys mean equal results, so one of them is enough
    return list(newest.values())


def _of_folder(folder: Path, reporter: Reporter) -> list[RunRecord]:
    return _sound(folder.glob("*.json"), load_record, reporter)


def _sound(paths: Iterable[Path], load: Callable[[Path], T], reporter: Reporter) -> list[T]:
    """What can be read; for the rest there is a warning."""
    found = []
    for path in sorted(paths):
        try:
            found.append(load(path))
        except FsbenchError as error:
            reporter.warn(f"{error.message} It is left out.")
    return found


def read_sweeps(folder: Path, reporter: Reporter) -> list[Sweep]:
    """Read all sweeps of a folder of results; files that are no sound sweep are left out with a warning."""
    return _sound((folder / SWEEPS).glob("*.json"), load_sweep, reporter)


def collect(records: Iterable[RunRecord], baseline: str = BASELINE, *, published: bool = True) -> list[Comparison]:
    """Put records side by side, one comparison per split, origin of the base classes, rules, seed and number of tasks.

    The comparison of the most runs comes first.

    Args:
        records: In any order; the outcome does not depend on it.
        baseline: Label of the method that others are compared to, wherever it ran.
        published: Whether to look up published numbers.
    """
    lists: dict[Rules, list[RunRecord]] = {}
    for record in sorted(records, key=lambda record: record.key.digest()):
        lists.setdefault(_rules(record), []).append(record)
    ordered = sorted(lists, key=lambda rules: (-len(lists[rules]), rules))
    found = [_comparison(lists[rules], baseline, published) for rules in ordered]
    labels = {entry.label for comparison in found for entry in comparison.entries}
    if baseline != BASELINE and baseline not in labels:
        raise unknown_name("baseline", baseline, labels)
    return found


def _rules(record: RunRecord) -> Rules:
    """What the runs of one comparison have in common."""
    key, protocol = record.key, record.key.protocol
    rules = protocol["name"], protocol["version"], protocol["ways"], protocol["queries"]
    return key.split, record.base_dataset, *rules, key.seed, key.tasks


def _comparison(records: Sequence[RunRecord], baseline: str, published: bool) -> Comparison:
    names = {_source(record): (record.dataset, record.backbone, record.crops) for record in records}
    sources = sorted(names, key=lambda source: (names[source], source))
    named = sorted(zip(label_runs(records), records, strict=True), key=lambda pair: order(pair[0], pair[1].key.method))
    runs: Runs = {(sources.index(_source(record)), label, _column(record)): record for label, record in named}
    _check_tasks(runs)
    entries = {label: _entry(label, record.key.method) for label, record in named}
    columns = sorted(
        {column for _, _, column in runs}, key=lambda column: (column.balanced, column.alpha, column.shots)
    )
    return compare_records(runs, [*entries.values()], columns, baseline, with_published=published)


def _source(record: RunRecord) -> tuple[str, str]:
    """The feature file, told by its content."""
    return record.key.features_sha256, record.key.base_sha256


def _column(record: RunRecord) -> Column:
    protocol = record.key.protocol
    return Column(protocol["alpha"] is None, protocol["alpha"], protocol["shots"])


def _check_tasks(runs: Runs) -> None:
    """Refuse to pair runs whose tasks cannot be the same, whatever their keys say."""
    first: dict[tuple[int, Column], RunRecord] = {}
    for (source, _, column), record in runs.items():
        if first.setdefault((source, column), record).queries != record.queries:
            raise FsbenchError(
                f"The records of {record.dataset} {record.backbone}, {column.title}, are not over the same tasks: "
                f"those of {record.key.method} have other numbers of queries than the rest.",
                "Run them again with --force.",
            )


def _entry(label: str, method: str) -> Entry:
    """The row of a method; nothing is known of one that is not installed, and files of others are not imported."""
    name = method.partition("@")[0]
    return entry_of(label, name) if installed_class(name) else Entry(label, method, "not known")
