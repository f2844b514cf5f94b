"""A comparison as plain data: methods by settings in one metric, with paired tests and published numbers."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbench.errors import FsbenchError
from fsbench.results.metrics import ACCURACY, Metric, has_confidence
from fsbench.results.published import Published, published
from fsbench.results.record import MethodFacts, Record, common_signature, network_words
from fsbench.results.statistics import (
    FEW_TASKS,
    LEVEL,
    Interval,
    holm,
    interval,
    interval_over_classes,
    paired_p_values,
)
from fsbench.results.warnings import OF_FEATURES, ResultWarning, warning_lines, warnings_beside, warnings_of
from fsbench.tasks.protocol import TaskProtocol

Column = TaskProtocol  # a setting: one column of the table
Runs = dict[tuple[int, str, Column], Record]  # by number of the feature file, label of the method, and column
Pairs = dict[tuple[int, Column, frozenset[str]], float]
ROUNDING = 1e-4  # share of the answers in which two methods may differ that are the same but for rounding
TELLING = 3.0  # points: tasks are enough where methods that are tied with the best are surely this close to it


@dataclass(frozen=True)
class Entry:
    """A method as it appears in the table."""

    label: str  # its name and variant, and what else tells it from other rows
    method: str  # its name alone
    facts: MethodFacts
    assumes: str = ""  # inductive, or its prior; several in a row where it depends on the column
    tuned: bool = False  # whether its parameters were, in any setting
    fewer: str = ""  # `100 tasks`, or `64-96 tasks`, of a method that solved fewer than others
    same_as: str = ""  # label of an earlier method whose answers are the same everywhere: both share a row


@dataclass(frozen=True)
class Cell:
    """One method in one setting."""

    record: Record
    value: Interval  # the mean of the metric over the tasks, with its interval; a single task has no half-width (NaN)
    best: bool = False  # whether it has the best mean of its column; with fewer tasks, is surely better than that
    tied: bool = False  # whether it is not significantly worse, Holm-corrected over all pairs of the table
    unsure: bool = False  # whether that is all that can be said, as it solved fewer tasks than the best
    difference: Interval | None = None  # to the baseline, over the same tasks; None where that did not run
    p_value: float | None = None  # of it, Holm-corrected over the table's differences to the baseline
    published: Published | None = None
    over_classes: Interval | None = None  # the mean for new classes, from the jackknife over the classes; if asked for
    over_classes_difference: Interval | None = None  # to the baseline
    warnings: tuple[ResultWarning, ...] = ()

    @property
    def significant(self) -> bool:
        """Whether the difference to the baseline is."""
        return self.p_value is not None and self.p_value < LEVEL

    @property
    def own_warnings(self) -> list[str]:
        """The warnings that belong to this method and setting, not to all of the features."""
        return [warning.text for warning in self.warnings if warning.code not in OF_FEATURES]


@dataclass(frozen=True)
class Group:
    """The rows of one feature file."""

    dataset: str
    backbone: str
    cells: Mapping[tuple[str, Column], Cell]  # by label of the method; a method may be missing in some columns
    details: str  # the family and weights of the network, and what else tells it from another group
    p_values: Mapping[tuple[Column, frozenset[str]], float]  # of pairs of labels, Holm-corrected over all of the group
    undecided: frozenset[Column] = frozenset()  # whose tasks are too few: a tie there may hide several points
    same_name: bool = False  # whether other features go by the same names: what they were before, perhaps

    def tasks(self, column: Column) -> int:
        """The tasks of a column; a method may have fewer."""
        return max(cell.record.tasks for (_, at), cell in self.cells.items() if at == column)

    @property
    def counted_tasks(self) -> str:
        """`1 task`, `10,000 tasks`, `100 to 300 tasks`, and where intervals do not come from their spread."""
        most = [self.tasks(column) for _, column in self.cells]
        counts = sorted({min(most), max(most)})
        by_classes = " (intervals over tasks or classes, the wider)" if counts[0] < FEW_TASKS else ""
        return f"{' to '.join(f'{count:,}' for count in counts)} {'task' if counts == [1] else 'tasks'}{by_classes}"

    @property
    def title(self) -> str:
        """As printed."""
        return f"{self.dataset} {self.backbone}" + (f" ({self.details})" if self.details else "")


@dataclass(frozen=True)
class Comparison:
    """Methods by settings in one metric, for one or more feature files."""

    metric: Metric
    entries: Sequence[Entry]
    columns: Sequence[Column]
    groups: Sequence[Group] = field(repr=False)
    baseline: str
    tasks: int
    others: Sequence[Comparison] = field(default=(), repr=False)  # of the same runs, in further metrics
    cut: tuple[str, ...] = ()  # labels of methods with more tasks than most, of which only these are shown

    @property
    def in_all_metrics(self) -> list[Comparison]:
        """This one, and the same runs in further metrics."""
        return [self, *self.others]

    @property
    def rows(self) -> dict[str, Entry]:
        """The rows of a table by their titles; methods whose answers are the same share one: `ncm = simpleshot`."""
        firsts = [entry for entry in self.entries if not entry.same_as]
        twins = {one.label: [two.label for two in self.entries if two.same_as == one.label] for one in firsts}
        return {" = ".join([entry.label, *twins[entry.label]]): entry for entry in firsts}

    @property
    def cells(self) -> list[Cell]:
        """All cells."""
        return [cell for group in self.groups for cell in group.cells.values()]

    @property
    def records(self) -> list[Record]:
        """All runs."""
        return [cell.record for cell in self.cells]

    def below_baseline(self, label: str, by: float = 0.0) -> list[str]:
        """Where one of our methods is worse than the baseline by more than so many points, with the whole interval."""
        paired = {
            f"{group.title}, {column.title}": cell.difference
            for group in self.groups
            for (name, column), cell in group.cells.items()
            if name == label and cell.difference
        }
        if not paired:
            raise FsbenchError(f"{label} is not compared with {self.baseline}.", "Name another --baseline.")
        sign = 1 if self.metric.higher_is_better else -1
        worse = {where: one for where, one in paired.items() if sign * one.mean + one.half_width < -by}
        return [f"{where}: {one.mean:+.2f} ± {one.half_width:.2f}" for where, one in worse.items()]

    def notes(self) -> list[str]:
        """What a reader must know of the published numbers, each once."""
        return list(dict.fromkeys(note for cell in self.cells if cell.published for note in cell.published.notes))

    def warnings(self) -> list[str]:
        """What to know before trusting the numbers, each once: first of the features, then of methods on them."""
        states = dict.fromkeys(f"{one.dataset} {one.backbone}" for one in self.groups if one.same_name)
        told = (
            "different features or base classes under one name; if one replaced another, older records are out of date"
        )
        lines = [f"{name}: {told}" for name in states]
        if self.cut:
            lines.append(f"cut to the first tasks, which most methods have: {', '.join(self.cut)}")
        return lines + warning_lines(
            (group.title if len(self.groups) > 1 else "", entry.label, column.title, cell.warnings)
            for group in self.groups
            for entry in self.entries
            for column in self.columns
            if (cell := group.cells.get((entry.label, column)))
        )

    def signature(self) -> str:
        """Everything that determines the comparison, in one line; CSV and JSON have one per run."""
        names = [one.metric.name for one in self.in_all_metrics]
        return common_signature(self.records) + ("" if names == [ACCURACY.name] else f"|metrics:{'+'.join(names)}")


def compare_records(
    runs: Runs,
    labels: Sequence[str],
    columns: Sequence[Column],
    baseline: str,
    *,
    metrics: Sequence[Metric] = (ACCURACY,),
    with_published: bool = True,
    over_classes: bool = False,
) -> Comparison:
    """Test all pairs of methods in every metric, mark the best, and add published numbers.

    Runs of a source and column are over the same list of tasks. Those of unequal length are cut to the first tasks that
    more than half of them have; a run with fewer is paired over its own, not ranked, and marked only if it is better.
    Not every method need have run everywhere, nor the baseline, which is given by its label. Labels and columns are in
    table order.
    """
    _check_tasks(runs)
    counts: dict[tuple[int, Column], list[int]] = {}
    for (source, _, column), record in runs.items():
        counts.setdefault((source, column), []).append(record.tasks)
    common = {place: sorted(tasks)[(len(tasks) - 1) // 2] for place, tasks in counts.items()}
    cut = dict.fromkeys(key[1] for key, record in runs.items() if record.tasks > common[key[0], key[2]])
    runs = {key: record.first(common[key[0], key[2]]) for key, record in runs.items()}
    order = labels, columns, baseline
    first, *others = (_in_metric(runs, *order, one, with_published, over_classes) for one in metrics)
    return replace(first, others=others, cut=tuple(cut))


def _check_tasks(runs: Runs) -> None:
    """Refuse to pair runs whose tasks cannot be the same, even if what determines them agrees."""
    first: dict[tuple[int, Column], Record] = {}
    for (source, _, column), record in runs.items():
        other = first.setdefault((source, column), record)
        shared, both = slice(min(other.tasks, record.tasks)), (other.answers, record.answers)
        pairs = ([getattr(answers, name)[shared] for answers in both] for name in ("labels", "classes"))
        if not all(np.array_equal(*pair) for pair in pairs):
            raise FsbenchError(
                f"The records of {record.dataset} {record.backbone}, {column.title}, are not over the same tasks: "
                f"{record.run.method} has other queries or classes than the rest.",
                "Recompute them with --force.",
            )


def _in_metric(
    runs: Runs, labels: Sequence[str], columns: Sequence[Column], baseline: str, metric: Metric, with_published: bool,
    over_classes: bool,
) -> Comparison:  # fmt: skip
    """The comparison in one metric; one that needs confidences leaves out runs without."""
    if metric.needs_outliers and not all(column.unknown for column in columns):
        raise FsbenchError(f"{metric.title} needs tasks with unknown classes.", "Use --protocol open-set.")
    if metric.needs_confidence:
        runs = {key: record for key, record in runs.items() if has_confidence(record.answers)}
        labels = [label for label in labels if any(label == own for _, own, _ in runs)]
        if not runs:
            raise FsbenchError(f"No run has the confidences that {metric.title} needs.", "Leave it out of --metrics.")
    means = {key: record.interval(metric.name) for key, record in runs.items()}
    same = _same_answers(runs, means, sorted(labels, key=lambda label: label != baseline))
    p_values = _p_values(runs, metric)
    against_any = _corrected(p_values)
    best = _best({key: record for key, record in runs.items() if key[1] not in same}, metric, against_any)
    against_baseline = _corrected({pair: p_value for pair, p_value in p_values.items() if baseline in pair[2]})
    sources: dict[int, dict[tuple[str, Column], Cell]] = {source: {} for source in sorted({key[0] for key in runs})}
    for key, record in runs.items():
        source, label, column = key
        leader, row = best[source, column], same.get(label, label)
        equal = label != leader and against_any.get((source, column, frozenset((row, leader))), 1.0) >= LEVEL
        fewer = record.tasks < runs[source, leader, column].tasks
        reference = runs.get((source, baseline, column)) if label != baseline else None
        warnings = warnings_of(record)
        if metric is ACCURACY:
            warnings = warnings_beside(key, runs, against_any) + warnings
        else:  # a table of another metric does not show accuracies
            warnings = [one for one in warnings if one.code != "near-chance"]
        cell = Cell(
            record,
            means[key],
            best=label == leader,
            tied=equal and not fewer,
            unsure=equal and fewer,
            difference=difference(record, reference, metric) if reference else None,
            p_value=against_baseline.get((source, column, frozenset((label, baseline)))),
            published=published(record) if with_published and metric is ACCURACY else None,
            warnings=tuple(warnings),
        )
        if over_classes:
            cell = _over_classes(cell, metric, reference)
        sources[source][label, column] = cell
    groups = _groups(sources, against_any, metric)
    entries = [replace(_entry(label, groups, columns), same_as=same.get(label, "")) for label in labels]
    return Comparison(metric, entries, columns, groups, baseline, max(record.tasks for record in runs.values()))


def _best(runs: Runs, metric: Metric, p_values: Pairs) -> dict[tuple[int, Column], str]:
    """The label of the best mean of every column; or of a run with fewer tasks, if it is significantly better there."""
    sign = 1 if metric.higher_is_better else -1
    best: dict[tuple[int, Column], str] = {}
    ranks = {key: (-one.tasks, -sign * one.interval(metric.name).mean, one.method.order) for key, one in runs.items()}
    for key in sorted(runs, key=lambda key: (ranks[key], key[1])):
        source, label, column = key
        leader = best.setdefault((source, column), label)
        rival = runs[source, leader, column]
        if runs[key].tasks < rival.tasks and p_values[source, column, frozenset((label, leader))] < LEVEL:
            best[source, column] = label if sign * difference(runs[key], rival, metric).mean > 0 else leader
    return best


def difference(one: Record, other: Record, metric: Metric) -> Interval:
    """One run minus another over the tasks that both have, with the interval of the differences."""
    tasks = min(one.tasks, other.tasks)
    pair = one.first(tasks), other.first(tasks)
    means = (record.interval(metric.name).mean for record in pair)
    samples = zip(*(record.samples(metric.name) for record in pair), strict=True)
    return Interval(next(means) - next(means), max(interval(np.subtract(*both)).half_width for both in samples))


def _over_classes(cell: Cell, metric: Metric, reference: Record | None) -> Cell:
    """A cell with intervals for new classes: of its mean, and of its difference to the baseline."""
    record, classes = cell.record, cell.record.answers.classes.astype(np.int64)
    if record.tasks < FEW_TASKS:
        return cell  # whose interval is one for new classes
    own, gap = interval_over_classes(record.metric(metric.name), classes), None
    if reference:
        tasks = min(record.tasks, reference.tasks)  # the first ones of both
        values = (one.first(tasks).metric(metric.name) for one in (record, reference))
        gap = interval_over_classes(np.subtract(*values), classes)
    mean = replace(own, mean=cell.value.mean) if own else None
    return replace(cell, over_classes=mean, over_classes_difference=gap)


def _same_answers(
    runs: Runs, means: Mapping[tuple[int, str, Column], Interval], labels: Sequence[str]
) -> dict[str, str]:
    """The labels of methods whose answers are everywhere those of an earlier one but for rounding, and its label."""
    own: dict[str, dict[tuple[int, Column], tuple[float, NDArray[Any]]]] = {label: {} for label in labels}
    for (source, label, column), record in runs.items():
        own[label][source, column] = means[source, label, column].mean, record.answers.predicted
    same: dict[str, str] = {}
    for one, other in itertools.combinations(own, 2):
        if one not in same and own[one].keys() == own[other].keys():
            pairs = [(*own[one][place], *own[other][place]) for place in own[one]]
            if all(abs(a - b) < 0.01 and x.shape == y.shape and np.mean(x != y) < ROUNDING for a, x, b, y in pairs):
                same.setdefault(other, one)
    return same


def _entry(label: str, groups: Sequence[Group], columns: Sequence[Column]) -> Entry:
    """The row of a method, with what it assumes, column after column where that differs: `free / uniform prior`."""
    cells = [(group.cells.get((label, column)), group, column) for column in columns for group in groups]
    records = [cell.record for cell, *_ in cells if cell]
    words = list(dict.fromkeys(record.method.assumes for record in records))
    if len(words) > 1 and all(word.endswith(" prior") for word in words):
        words = [*(word.removesuffix(" prior") for word in words[:-1]), words[-1]]
    fewer = sorted({cell.record.tasks for cell, group, at in cells if cell and cell.record.tasks < group.tasks(at)})
    return Entry(
        label, records[0].run.method.partition("@")[0], records[0].method, " / ".join(words),
        tuned=any(record.origins.tuning for record in records),
        fewer=f"{'-'.join(f'{count:,}' for count in dict.fromkeys((fewer[0], fewer[-1])))} tasks" if fewer else "",
    )  # fmt: skip


def _p_values(runs: Runs, metric: Metric) -> Pairs:
    """P-values of all pairs of methods that ran on the same tasks."""
    columns: dict[tuple[int, Column], dict[str, Record]] = {}
    for (source, label, column), record in runs.items():
        columns.setdefault((source, column), {})[label] = record
    p_values: Pairs = {}
    for (source, column), records in columns.items():
        for one, other in itertools.combinations(records, 2):
            tasks = min(records[one].tasks, records[other].tasks)
            values = (records[label].first(tasks).samples(metric.name) for label in (one, other))
            samples = list(zip(*values, strict=True))
            signs = max(len(first) for first, _ in samples)
            each = [float(paired_p_values(first, second, signs=signs)) for first, second in samples]
            p_values[source, column, frozenset((one, other))] = max(each)
    return p_values


def _corrected(p_values: Pairs) -> Pairs:
    """Holm's correction over all pairs of a feature file, so that no table depends on what else was run.

    The best of a column is known only after the runs: any pair could contain it, so it is tested within all pairs,
    while the baseline, which is chosen before, is tested within its own.
    """
    corrected: Pairs = {}
    for source in {pair[0] for pair in p_values}:
        family = {pair: p_value for pair, p_value in p_values.items() if pair[0] == source}
        corrected.update(zip(family, holm(list(family.values())), strict=True))
    return corrected


def _groups(sources: Mapping[int, Mapping[tuple[str, Column], Cell]], p_values: Pairs, metric: Metric) -> list[Group]:
    """One group per source, named with its network; those of the same name are told apart by crops, then digests."""
    firsts = [next(iter(cells.values())).record for cells in sources.values()]
    details = [[word] if (word := network_words(first.provenance)) else [] for first in firsts]
    origins = [first.provenance for first in firsts]
    names: list[tuple[str, ...]] = [
        (made.dataset, made.backbone, *words) for made, words in zip(origins, details, strict=True)
    ]
    counts = [made.crops for made in origins]
    crops = [f"{count} crops" if count > 1 else "1 crop" for count in counts]
    digests = [f"features {first.run.features[:6]}, base {first.run.base[:6] or 'none'}" for first in firsts]
    for aspect in (crops, digests):
        count = Counter(names)
        for words, name, word in zip(details, names, aspect, strict=True):
            words += [word] if count[name] > 1 else []
        same = [count[name] > 1 for name in names]
        names = [(*name, word) for name, word in zip(names, aspect, strict=True)]
    undecided: list[list[Column]] = []  # where a method that is tied with the best may yet be several points below it
    for cells in sources.values():
        best = {column: cell.record for (_, column), cell in cells.items() if cell.best}
        tied = [(at, difference(cell.record, best[at], metric)) for (_, at), cell in cells.items() if cell.tied]
        undecided.append([column for column, gap in tied if not abs(gap.mean) + gap.half_width <= TELLING])
    return [
        Group(
            first.provenance.dataset, first.provenance.backbone, sources[source], ", ".join(words),
            {(column, pair): p_value for (at, column, pair), p_value in p_values.items() if at == source},
            frozenset(columns), twin,
        )
        for source, first, words, columns, twin in zip(sources, firsts, details, undecided, same, strict=True)
    ]  # fmt: skip
