"""Comparisons from records alone: nothing is run, and no feature file is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from fsbench.errors import FsbenchError, unknown_name
from fsbench.evaluation.compare import Contestant
from fsbench.evaluation.comparison import Column, Comparison, Entry, compare_records
from fsbench.evaluation.labels import label_runs, order
from fsbench.evaluation.solve import BASELINE
from fsbench.methods import method_names
from fsbench.report.curves import SWEEPS, Sweep, load_sweep
from fsbench.report.record import RunRecord, load_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from fsbench.evaluation.comparison import Runs
    from fsbench.report.progress import Reporter

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
    return Contestant(label, name, {}).entry() if name in method_names() else Entry(label, method, "not known")
