"""Records read from files, labelled, and collected into comparisons."""

from __future__ import annotations

import operator
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from fsbench.errors import FsbenchError, unknown_name
from fsbench.methods.base import MethodInfo
from fsbench.methods.presets import ARTICLE_UNITS
from fsbench.methods.registry import BASELINE, METHODS, installed_info
from fsbench.reporter import printable
from fsbench.results.comparison import Column, Comparison, Entry, compare_records, entry_of
from fsbench.results.curves import SWEEPS, Sweep, load_sweep
from fsbench.results.record import RunRecord, first_tasks, load_record
from fsbench.tasks.protocol import TaskProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from fsbench.methods.base import Variants
    from fsbench.reporter import Reporter
    from fsbench.results.comparison import Runs

T = TypeVar("T")


def _labels(records: Sequence[RunRecord]) -> list[str]:
    """Labels for the runs of one comparison. No two runs of a setting share one.

    A run is labelled as by `fsbench compare`. Where runs of one name were configured in different ways, those without
    the default parameters say what was given, or that they were tuned. Where labels are still the same, the parameters
    that differ are added.
    """
    pairs = [*zip(_names(records), map(_remark, records), strict=True)]
    ways = Counter(name for name, _ in {*pairs})  # in which runs of a name were configured
    labels = [f"{name} {remark}" if remark and ways[name] > 1 else name for name, remark in pairs]
    differing = _differing(records, labels)
    return [
        " ".join([label, *(f"{name}={record.key.params.get(name)}" for name in sorted(differing[label]))])
        for record, label in zip(records, labels, strict=True)
    ]


def _order(label: str, method: str) -> tuple[int, list[str | float]]:
    """Sorts labels in the order of the registry of methods, then others; numbers in labels by value."""
    place = [*METHODS].index(method) if method in METHODS else len(METHODS)
    parts = re.split(r"(\d+(?:\.\d+)?)", label)  # text and numbers alternate
    return place, [float(part) if number % 2 else part for number, part in enumerate(parts)]


def _names(records: Sequence[RunRecord]) -> list[str]:
    """Method and variant; short where no other method has the same short name, else as in the key."""
    methods = {record.key.method for record in records}
    # `Mine` for `mine.py:Mine@1a2b3c4d`, `theirs` for `theirs@1.2`
    short = {name: (name.rpartition(":")[2] if ".py:" in name else name).partition("@")[0] for name in methods}
    count = Counter(short.values())
    names = (
        record.key.method if count[short[record.key.method]] > 1 else short[record.key.method] + variant_suffix(record)
        for record in records
    )
    return [f"{name} ({record.origin})" if record.origin else name for name, record in zip(names, records, strict=True)]


def _variants(record: RunRecord) -> Variants | None:
    """The variants of the method that ran, if it is installed and has some."""
    info = installed_info(record.key.method.partition("@")[0])
    return info.variants if info else None


def variant_suffix(record: RunRecord) -> str:
    """`:released`, or nothing for the default variant and for methods without variants."""
    variants = _variants(record)
    return variants.suffix(record.key.params) if variants else ""


def _remark(record: RunRecord) -> str:
    """How parameters differ from the defaults: `tau=0.2`, `(tuned:val:50x500)`, or nothing."""
    origin, _, given = record.params_from.partition(" + given:")
    origin = origin.partition(":edge:")[0]
    params, variants = record.key.params, _variants(record)
    words = [
        f"{name}={params[name]:.4g}" if isinstance(params[name], float) else f"{name}={params[name]}"
        for name in (ARTICLE_UNITS.get(name, name) for name in given.split(","))
        if name in params and not (variants and name == variants.parameter)
    ]
    if not origin.startswith(("default", "preset:")):
        words.append(f"({origin})")
    return " ".join(words)


def _differing(records: Sequence[RunRecord], labels: Sequence[str]) -> dict[str, set[str]]:
    """For every label, the parameters that differ between runs of one setting."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    differing: dict[str, set[str]] = {label: set() for label in labels}
    for record, label in zip(records, labels, strict=True):
        setting = repr((record.source, sorted(record.key.protocol.items())))
        cells.setdefault((label, setting), []).append(record.key.params)
    for (label, _), params in cells.items():
        names = {name for one in params for name in one}
        differing[label] |= {name for name in names if any(one.get(name) != params[0].get(name) for one in params)}
    return differing


def read_records(given: Sequence[Path] | None, folder: Path, reporter: Reporter) -> list[RunRecord]:
    """Read the record files and folders given, else the folder of results.

    Files that are given must be valid; invalid files of a folder are left out with a warning. Subfolders, which hold
    the points of sweeps, are not read.
    """
    records: list[RunRecord] = []
    for path in given or [folder]:
        is_folder = path.is_dir() or not given
        records += _valid(path.glob("*.json"), load_record, reporter) if is_folder else [load_record(path)]
    records = _of_present_versions(records, reporter)
    if not records:
        places = ", ".join(f"{path}/" for path in given or [folder])
        remedy = "Create some with fsbench compare, or name a folder of records."
        raise FsbenchError(f"There are no records in {places}.", remedy)
    longest: dict[tuple[str, ...], RunRecord] = {}
    for record in sorted(_with_networks(records), key=lambda record: (record.key.tasks, record.created)):
        longest[_identity(record)] = record  # equal keys mean equal results, so the newest of the longest is enough
    return list(longest.values())


def read_others(folders: Sequence[Path], reporter: Reporter) -> list[RunRecord]:
    """Read folders of other people's records, which are labelled by where they lie: `anna` for `anna/results`."""
    found = []
    for folder in folders:
        place = folder.resolve()
        origin = printable(place.parent.name if place.name == "results" else place.name) or str(folder)
        found += [replace(record, origin=origin) for record in read_records([folder], folder, reporter)]
    return found


def _of_present_versions(records: Sequence[RunRecord], reporter: Reporter) -> list[RunRecord]:
    """Leave out records of methods that have changed since, with a warning."""
    old: Counter[str] = Counter()
    kept = []
    for record in records:
        info = installed_info(record.key.method.partition("@")[0])
        if info and record.key.method_version < info.version:
            old[record.key.method] += 1
        else:
            kept.append(record)
    for name, count in old.items():
        noun, verb, them = ("records", "are", "them") if count > 1 else ("record", "is", "it")
        reporter.warn(
            f"{count} {noun} of an earlier version of {name} {verb} left out. Run it again to replace {them}."
        )
    return kept


def _with_networks(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Name the network in earlier records, as other records of the same features do if they agree."""
    named: dict[tuple[str, ...], dict[tuple[str, ...], RunRecord]] = {}
    for record in records:
        if record.family or record.weights:
            named.setdefault(record.source[:-2], {})[record.source[-2:]] = record
    complete = []
    for record in records:
        others = [*named.get(record.source[:-2], {}).values()]
        if len(others) == 1 and not record.family and not record.weights:
            record = replace(record, **{name: getattr(others[0], name) for name in ("family", "weights", "network")})
        complete.append(record)
    return complete


def _identity(record: RunRecord) -> tuple[str, ...]:
    """The run with the tasks asked for, and the names of its features: equal ones may go by two, and both are shown."""
    return record.key.digest("tasks"), str(record.asked or record.key.tasks), *record.source


def _valid(paths: Iterable[Path], load: Callable[[Path], T], reporter: Reporter) -> list[T]:
    """What can be read; the rest is left out with a warning."""
    loaded = []
    for path in sorted(paths):
        try:
            loaded.append(load(path))
        except FsbenchError as error:
            reporter.warn(f"{error.message} It is left out.")
    return loaded


def read_sweeps(folder: Path, reporter: Reporter) -> list[Sweep]:
    """Read all sweeps of a folder of results; files that are not valid sweeps are left out with a warning."""
    return _valid((folder / SWEEPS).glob("*.json"), load_sweep, reporter)


def collect(records: Iterable[RunRecord], baseline: str = BASELINE, *, published: bool = True) -> list[Comparison]:
    """Collect records into comparisons: one per split, origin of the base classes, rules, seed and number of tasks.

    The comparison with the most tasks comes first, and of those the one with the most runs. The order of the records
    does not matter. The baseline is the label of the method that others are compared to, where it ran. Published
    numbers are looked up unless `published` is false.
    """
    lists: dict[tuple[Any, ...], list[RunRecord]] = {}
    for record in sorted(records, key=_identity):
        lists.setdefault(_rules(record), []).append(record)
    ordered = sorted(lists, key=lambda rules: (-rules[-1], -len(lists[rules]), rules))
    comparisons = [_comparison(lists[rules], baseline, published) for rules in ordered]
    labels = {entry.label for comparison in comparisons for entry in comparison.entries}
    if baseline != BASELINE and baseline not in labels:
        raise unknown_name("baseline", baseline, labels)
    return comparisons


def split_ablations(records: Sequence[RunRecord], baseline: str = BASELINE) -> tuple[list[RunRecord], list[RunRecord]]:
    """Records for the ranking, and those of ablations.

    An ablation is a run with parameters set by hand, where the same method also ran on the same tasks without. The
    second list has these runs, those of the same methods, and the baseline; only the first are not in both.
    """
    plain: dict[tuple[Any, ...], set[str]] = {}
    for record in records:
        if not _set_by_hand(record):
            plain.setdefault(_tasks(record), set()).add(record.key.method)
    studied: dict[tuple[Any, ...], set[str]] = {}
    ablations = [
        record for record in records if _set_by_hand(record) and record.key.method in plain.get(_tasks(record), ())
    ]
    for record in ablations:
        studied.setdefault(_tasks(record), {baseline}).add(record.key.method)
    ranking = [record for record in records if not any(record is other for other in ablations)]
    return ranking, [record for record in records if record.key.method in studied.get(_tasks(record), ())]


def _set_by_hand(record: RunRecord) -> bool:
    """Whether a parameter was given, other than the word for the variant."""
    variants = _variants(record)
    given = {*record.params_from.partition(" + given:")[2].split(",")} - {"", variants.parameter if variants else ""}
    return bool(given)


def _tasks(record: RunRecord) -> tuple[Any, ...]:
    """What identifies the tasks of a record."""
    return (
        *record.source,
        record.key.split,
        *sorted(map(str, record.key.protocol.items())),
        record.key.seed,
        record.asked or record.key.tasks,
    )


def _rules(record: RunRecord) -> tuple[Any, ...]:
    """What the runs of one comparison have in common."""
    rules = (record.key.protocol[name] for name in ("name", "version", "ways", "queries"))
    return record.key.split, record.base_dataset, *rules, record.key.seed, record.asked or record.key.tasks


_TITLED = ("{} classes", "base classes of {}", "protocol {}", "version {}", "{}-way", "{} queries", "seed {}")


def titles(comparisons: Sequence[Comparison]) -> list[str]:
    """Short names that tell comparisons apart: `10,000 tasks`, and what else differs between them: `seed 1`."""
    rules = [_rules(comparison.records[0]) for comparison in comparisons]
    differing = [place for place in range(len(_TITLED)) if len({one[place] for one in rules}) > 1]
    words = [
        [_TITLED[place].format("their own" if one[place] == "" else one[place]) for place in differing] for one in rules
    ]
    return [", ".join([f"{one[-1]:,} tasks", *more]) for one, more in zip(rules, words, strict=True)]


def with_tasks(runs: Iterable[tuple[str, RunRecord]]) -> dict[str, str]:
    """Labels, with the number of tasks where a budget allowed fewer than were asked for: `alpha-am (64-96 tasks)`."""
    records: dict[str, list[RunRecord]] = {}
    for label, record in runs:
        records.setdefault(label, []).append(record)
    named = {}
    for label, own in records.items():
        counts = {record.key.tasks for record in own}
        between = "-".join(f"{count:,}" for count in sorted({min(counts), max(counts)}))
        named[label] = f"{label} ({between} tasks)" if any(record.asked for record in own) else label
    return named


def _comparison(records: Sequence[RunRecord], baseline: str, published: bool) -> Comparison:
    names = {(record.dataset, record.backbone, record.crops, record.source) for record in records}
    sources = [source for *_, source in sorted(names)]
    labels = _labels(records)
    told = with_tasks(zip(labels, records, strict=True))
    pairs = ((told[label], record) for label, record in zip(labels, records, strict=True))
    named = sorted(pairs, key=lambda pair: _order(pair[0], pair[1].key.method))
    runs: Runs = {}
    entries = {}
    for label, record in named:
        column = Column.of(TaskProtocol(**record.key.protocol))
        runs[sources.index(record.source), label, column] = record
        entries[label] = _entry(label, record)
    _check_tasks(runs)
    columns = sorted({column for *_, column in runs}, key=lambda column: (column.balanced, column.alpha, column.shots))
    return compare_records(runs, [*entries.values()], columns, told.get(baseline, baseline), with_published=published)


def _entry(label: str, record: RunRecord) -> Entry:
    """The row of a record; no file named in it is imported."""
    name = record.key.method.partition("@")[0]
    return entry_of(label, name) if installed_info(name) else _recorded(label, record)


def join(runs: Runs, others: Sequence[RunRecord], reporter: Reporter) -> list[Entry]:
    """Add records of other people to runs of the same tasks; returns their rows. Others are named and left out.

    Tasks are the same if the content of the features, the rules and the seed are. Of a record of more tasks the first
    ones are taken.
    """
    others = without_same_runs([*runs.values()], others, reporter)
    longest = sorted(runs.items(), key=lambda item: item[1].key.tasks)
    cells = {(source, column): record for (source, _, column), record in longest}
    entries: dict[str, Entry] = {}
    left_out: Counter[tuple[str, str]] = Counter()
    for label, record in zip(_labels(others), others, strict=True):
        reasons = {place: _apart(record, cell) for place, cell in cells.items()}
        if all(reasons.values()):
            left_out[record.origin, min(reasons.values(), key=_APART.index)] += 1
            continue
        entries[label] = _entry(label, record)
        for (source, column), reason in reasons.items():
            if not reason:
                runs[source, label, column] = first_tasks(record, cells[source, column].key.tasks)
    _report(left_out, reporter)
    return [*entries.values()]


def without_same_runs(ours: Sequence[RunRecord], others: Sequence[RunRecord], reporter: Reporter) -> list[RunRecord]:
    """The records of other people that add something; where they contradict our own of the same run, that is said."""
    known = {record.key.digest("tasks"): record for record in ours}
    left_out: Counter[tuple[str, str]] = Counter()
    kept = []
    for record in others:
        same = known.get(record.key.digest("tasks"))
        if same is None:
            kept.append(record)
            continue
        wrong = sum(one != other for one, other in zip(same.correct, record.correct, strict=False))
        remark = f"{record.key.method}, with other right answers than here in {wrong} tasks (see fsbench verify)"
        left_out[record.origin, remark if wrong else "the same as here"] += 1
    _report(left_out, reporter)
    return kept


def _report(left_out: Mapping[tuple[str, str], int], reporter: Reporter) -> None:
    for (origin, reason), count in left_out.items():
        reporter.warn(f"{count} {'record' if count == 1 else 'records'} of {origin} left out: {reason}.")


_APART = ("fewer tasks", "another seed", "another protocol", "other base classes", "other features")


def _apart(record: RunRecord, cell: RunRecord) -> str:
    """What makes the tasks of two records different, the closest first in `_APART`; empty if they are the same."""
    one, other = record.key, cell.key
    if (one.features_sha256, one.split) != (other.features_sha256, other.split):
        return "other features"
    if one.base_sha256 and other.base_sha256 and one.base_sha256 != other.base_sha256:
        return "other base classes"
    if one.protocol != other.protocol:
        return "another protocol"
    if one.seed != other.seed:
        return "another seed"
    return "fewer tasks" if one.tasks < other.tasks else ""


def _recorded(label: str, record: RunRecord) -> Entry:
    """The row of a method of a user's file, or of a package that is not installed: what its record says of it."""
    own, name = record.own_method, record.key.method
    if own is None:
        return Entry(label, name, "not recorded")
    info = MethodInfo(
        name, own.title, own.reference, own.transductive, own.prior, needs_base=own.needs_base, url=own.url,
        version=record.key.method_version,
    )  # fmt: skip
    return Entry(label, name, info=info)


def _check_tasks(runs: Runs) -> None:
    """Refuse to pair runs whose tasks cannot be the same, even if their keys agree."""
    first: dict[tuple[int, Column], RunRecord] = {}
    for (source, _, column), record in runs.items():
        other = first.setdefault((source, column), record)
        if any(map(operator.ne, other.queries, record.queries)):
            raise FsbenchError(
                f"The records of {record.dataset} {record.backbone}, {column.title}, are not over the same tasks: "
                f"{record.key.method} has other numbers of queries than the rest.",
                "Recompute them with --force.",
            )
