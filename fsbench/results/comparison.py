"""A comparison as plain data: methods by settings, with paired tests and published numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fsbench.errors import FsbenchError
from fsbench.methods.registry import method_info
from fsbench.results.published import ONLY_PUBLISHED, Published, published
from fsbench.results.record import common_signature, network_words
from fsbench.results.statistics import (
    LEVEL,
    Interval,
    first_in_common,
    holm,
    interval,
    interval_over_classes,
    paired_difference,
    paired_p_values,
)
from fsbench.results.warnings import warning_lines, warnings_of
from fsbench.tasks.protocol import setting_title

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fsbench.methods.base import MethodInfo
    from fsbench.results.record import RunRecord
    from fsbench.results.warnings import ResultWarning
    from fsbench.tasks.protocol import TaskProtocol


@dataclass(frozen=True)
class Column:
    """One setting."""

    balanced: bool
    alpha: float | None
    shots: int
    present: int | None = None
    pooled: bool = False

    @classmethod
    def of(cls, protocol: TaskProtocol) -> Column:
        """The column of a protocol."""
        return cls(protocol.balanced, protocol.alpha, protocol.shots, protocol.present, protocol.pooled)

    @property
    def title(self) -> str:
        """As printed."""
        return f"{setting_title(self.alpha, self.present, self.pooled)} {self.shots}-shot"


@dataclass(frozen=True)
class Entry:
    """A method as it appears in the table.

    Attributes:
        label: Its name and variant.
        method: Its name alone.
        assumes: Inductive, or its prior; several in a row where it depends on the column.
        info: What is known of it; None if it is not installed.
    """

    label: str
    method: str
    assumes: str = ""
    info: MethodInfo | None = None


def entry_of(label: str, method: str) -> Entry:
    """The row of a method that is installed, or of a file."""
    info = method_info(method)
    return Entry(label, info.name, info=info)


@dataclass(frozen=True)
class Cell:
    """One method in one setting.

    Attributes:
        record: The run; None where there is only a published number.
        best: Whether it has the highest mean of its column.
        tied: Whether it is not significantly worse than the best, Holm-corrected over all pairs of the table.
        difference: To the baseline, over the same tasks; None for the baseline itself, or where it did not run.
        p_value: Of that difference, Holm-corrected over the table's differences to the baseline.
        over_data: Accuracy for new images of these classes, from `over_data_tasks` tasks that share none; if asked for.
        over_data_difference: To the baseline, on the same tasks; `over_data_lead`, of the best, to `next_best`.
        over_classes: Accuracy for new classes, from the jackknife over the classes; if asked for.
        over_classes_difference: To the baseline; `over_classes_lead`, of the best, to `next_best`.
        assumes: What the method assumes in this setting.
        warnings: What to know before trusting it.
    """

    record: RunRecord | None
    best: bool = False
    tied: bool = False
    difference: Interval | None = None
    p_value: float | None = None
    published: Published | None = None
    over_data: Interval | None = None
    over_data_difference: Interval | None = None
    over_data_lead: Interval | None = None
    over_data_tasks: int = 0
    over_classes: Interval | None = None
    over_classes_difference: Interval | None = None
    over_classes_lead: Interval | None = None
    next_best: str = ""
    assumes: str = ""
    warnings: tuple[ResultWarning, ...] = ()


@dataclass(frozen=True)
class Group:
    """The rows of one feature file.

    Attributes:
        cells: By label of the method and column; a method may be missing in some.
        details: The family and weights of the network, and what else tells it from another group.
    """

    dataset: str
    backbone: str
    cells: Mapping[tuple[str, Column], Cell]
    details: str

    @property
    def title(self) -> str:
        """As printed."""
        return f"{self.dataset} {self.backbone}" + (f" ({self.details})" if self.details else "")


@dataclass(frozen=True)
class PairedRow:
    """A run, and the baseline on the same tasks if there is one."""

    record: RunRecord
    baseline: RunRecord | None
    difference: Interval | None
    warnings: tuple[ResultWarning, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        row, other, difference = self.record.row(), self.baseline, self.difference
        if other and difference:
            row["baseline"] = {"method": other.key.method, "accuracy": other.accuracy, "ci95": other.ci95}
            width = difference.half_width if self.record.key.tasks > 1 else None
            row["baseline"] |= {"difference": difference.mean, "difference_ci95": width}
        row["warnings"] = [warning.code for warning in self.warnings]
        return row


@dataclass(frozen=True)
class Comparison:
    """Methods by settings, for one or more feature files."""

    entries: Sequence[Entry]
    columns: Sequence[Column]
    groups: Sequence[Group] = field(repr=False)
    baseline: str
    tasks: int

    @property
    def records(self) -> list[RunRecord]:
        """All runs."""
        return [cell.record for group in self.groups for cell in group.cells.values() if cell.record]

    def paired_rows(self) -> list[PairedRow]:
        """Every run with the baseline on the same tasks; the baseline's own runs only if it is the only method."""
        rows = []
        for group in self.groups:
            for (label, column), cell in group.cells.items():
                if cell.record and (label != self.baseline or len(self.entries) == 1):
                    beside = group.cells.get((self.baseline, column)) if label != self.baseline else None
                    rows.append(
                        PairedRow(cell.record, beside.record if beside else None, cell.difference, cell.warnings)
                    )
        return rows

    def below_baseline(self, label: str, by: float = 0.0) -> list[str]:
        """Where one of our methods is worse than the baseline by more than so many points, with the whole interval."""
        paired = {
            f"{group.title}, {column.title}": cell.difference
            for group in self.groups
            for (name, column), cell in group.cells.items()
            if name.partition(" (")[0] == label and cell.difference and cell.record and not cell.record.origin
        }  # a label may have the number of tasks that a budget allowed
        if not paired:
            raise FsbenchError(f"{label} is not compared with {self.baseline}.", "Name another --baseline.")
        worse = {where: one for where, one in paired.items() if one.mean + one.half_width < -by}
        return [f"{where}: {one.mean:+.2f} ± {one.half_width:.2f}" for where, one in worse.items()]

    def notes(self) -> list[str]:
        """What a reader must know of the published numbers, each once."""
        cells = [cell for group in self.groups for cell in group.cells.values()]
        return list(dict.fromkeys(note for cell in cells if cell.published for note in cell.published.notes))

    def warnings(self) -> list[str]:
        """What to know before trusting the numbers, each once: first of the features, then of methods on them."""
        return warning_lines(
            (group.title if len(self.groups) > 1 else "", label, column.title, cell.warnings)
            for group in self.groups
            for label in (entry.label for entry in self.entries)
            for column in self.columns
            if (cell := group.cells.get((label, column)))
        )

    def by_accuracy(self) -> Comparison:
        """The same with methods ordered by their mean accuracy over all cells, the best first; published ones last."""

        def mean(entry: Entry) -> float:
            cells = [group.cells.get((entry.label, column)) for group in self.groups for column in self.columns]
            return float(np.mean([cell.record.accuracy for cell in cells if cell and cell.record] or [-1.0]))

        return replace(self, entries=sorted(self.entries, key=mean, reverse=True))

    def is_tuned(self, label: str) -> bool:
        """Whether parameters of a method were tuned, in any setting."""
        cells = (cell for group in self.groups for (other, _), cell in group.cells.items() if other == label)
        return any(cell.record and cell.record.params_from.startswith("tuned") for cell in cells)

    def signature(self) -> str:
        """Everything that determines the comparison, in one line; CSV and JSON have one per run."""
        return common_signature(self.records)


@dataclass(frozen=True)
class Beyond:
    """What intervals beyond the sampled tasks are computed from.

    Attributes:
        over_data: Accuracies (T',) of a run's method on tasks that share no image.
        classes: (T, K) classes of the tasks of a source and column.
    """

    over_data: Mapping[tuple[int, str, Column], NDArray[np.float64]] = field(default_factory=dict)
    classes: Mapping[tuple[int, Column], NDArray[np.int64]] = field(default_factory=dict)

    def intervals(self, key: tuple[int, str, Column], others: Mapping[str, str], runs: Runs) -> dict[str, Any]:
        """The fields of a cell that they give; others are labels of methods to subtract, by the ending of the field."""
        source, label, column = key
        beside = {ending: (source, other, column) for ending, other in others.items() if other != label}
        found: dict[str, Any] = {}
        if key in self.over_data:
            values = self.over_data[key]
            found |= {"over_data": interval(values), "over_data_tasks": len(values)}
            for ending, other in beside.items():
                if other in self.over_data:
                    found[f"over_data_{ending}"] = paired_difference(values, self.over_data[other])
        if (source, column) in self.classes:
            classes, values = self.classes[source, column], runs[key].per_task
            found["over_classes"] = interval_over_classes(values, classes)
            for ending, other in beside.items():
                if other in runs:
                    difference = np.subtract(*first_in_common(values, runs[other].per_task))
                    found[f"over_classes_{ending}"] = interval_over_classes(difference, classes)
        return found


Runs = dict[tuple[int, str, Column], "RunRecord"]  # by number of the source, label of the method, and column
Pairs = dict[tuple[int, Column, frozenset[str]], float]


def compare_records(
    runs: Runs,
    entries: Sequence[Entry],
    columns: Sequence[Column],
    baseline: str,
    *,
    with_published: bool = True,
    beyond: Beyond | None = None,
) -> Comparison:
    """Test all pairs of methods, mark the best, and add published numbers.

    Runs of a source and column are over the same list of tasks; those of unequal length are paired over the first ones.
    Not every method need have run everywhere, nor the baseline, which is given by its label. Entries and columns are in
    the order of the table.
    """
    ranked: dict[tuple[int, Column], list[str]] = {}  # labels of every column, the highest mean first
    for source, label, column in sorted(runs, key=lambda key: -runs[key].accuracy):
        ranked.setdefault((source, column), []).append(label)
    p_values = _p_values(runs)
    against_any = _corrected(p_values)
    against_baseline = _corrected({pair: p_value for pair, p_value in p_values.items() if baseline in pair[2]})
    warnings = warnings_of(runs, against_any)
    by_label = {entry.label: entry for entry in entries}
    sources: dict[int, dict[tuple[str, Column], Cell]] = {}
    for key, record in runs.items():
        source, label, column = key
        leader, *rest = ranked[source, column]
        next_best = rest[0] if rest and label == leader else ""
        reference = runs.get((source, baseline, column)) if label != baseline else None
        sources.setdefault(source, {})[label, column] = Cell(
            record,
            best=label == leader,
            tied=label != leader and against_any[source, column, frozenset((label, leader))] >= LEVEL,
            difference=paired_difference(record.per_task, reference.per_task) if reference else None,
            p_value=against_baseline.get((source, column, frozenset((label, baseline)))),
            published=published(record) if with_published else None,
            assumes=_assumed(by_label[label], record),
            warnings=warnings[key],
            next_best=next_best,
            **(beyond or Beyond()).intervals(key, {"difference": baseline, "lead": next_best}, runs),
        )
    if with_published:
        for cells in sources.values():
            cells |= _published_only(cells)
    groups = _groups(sources)
    shown = {label for group in groups for label, _ in group.cells}
    extra = [Entry(name, name, "trains the network") for name in ONLY_PUBLISHED if name in shown]
    told = [replace(entry, assumes=_in_all_columns(entry, groups, columns)) for entry in entries]
    return Comparison([*told, *extra], columns, groups, baseline, max(run.key.tasks for run in runs.values()))


def _assumed(entry: Entry, record: RunRecord) -> str:
    """What a method assumes in one run."""
    if record.own_method:
        return record.own_method.assumes
    return entry.info.assumes(record.key.params, record.key.protocol["alpha"]) if entry.info else entry.assumes


def _in_all_columns(entry: Entry, groups: Sequence[Group], columns: Sequence[Column]) -> str:
    """What a method assumes, column after column where that differs: `free / uniform prior`."""
    cells = (group.cells.get((entry.label, column)) for column in columns for group in groups)
    words = list(dict.fromkeys(cell.assumes for cell in cells if cell))
    if len(words) > 1 and all(word.endswith(" prior") for word in words):
        return " / ".join(word.removesuffix(" prior") for word in words) + " prior"
    return " / ".join(words)


def _p_values(runs: Runs) -> Pairs:
    """P-values of all pairs of methods that ran on the same tasks."""
    accuracies: dict[tuple[int, Column], dict[str, NDArray[np.float64]]] = {}
    for (source, label, column), record in runs.items():
        accuracies.setdefault((source, column), {})[label] = record.per_task
    p_values: Pairs = {}
    for (source, column), by_label in accuracies.items():
        for place, (label, values) in enumerate(by_label.items()):
            for other in [*by_label][:place]:
                p_values[source, column, frozenset((label, other))] = float(paired_p_values(by_label[other], values))
    return p_values


def _corrected(p_values: Pairs) -> Pairs:
    """Holm's correction over all pairs of a feature file, so that no table depends on what else was run.

    The best of a column is known only after the runs: whichever pair it belongs to, all pairs could have been it. So
    the best is tested within all pairs, while the baseline, which is chosen before, is tested within its own.
    """
    corrected: Pairs = {}
    for source in {pair[0] for pair in p_values}:
        family = {pair: p_value for pair, p_value in p_values.items() if pair[0] == source}
        corrected.update(zip(family, holm(list(family.values())), strict=True))
    return corrected


def _groups(sources: Mapping[int, Mapping[tuple[str, Column], Cell]]) -> list[Group]:
    """One group per source, named with its network; those of the same name are told apart by crops, then digests."""
    cells = [sources[source] for source in sorted(sources)]
    firsts = [next(cell.record for cell in one.values() if cell.record) for one in cells]
    networks = [network_words(first.backbone, first.family, first.weights) for first in firsts]
    names: list[tuple[str, ...]] = [
        (first.dataset, first.backbone, network) for first, network in zip(firsts, networks, strict=True)
    ]
    details = [[network] if network else [] for network in networks]
    crops = [f"{first.crops} crops" if first.crops > 1 else "1 crop" for first in firsts]
    keys = [first.key for first in firsts]
    digests = [f"features {key.features_sha256[:6]}, base {key.base_sha256[:6] or 'none'}" for key in keys]
    for aspect in (crops, digests):
        count = Counter(names)
        for words, name, word in zip(details, names, aspect, strict=True):
            words += [word] if count[name] > 1 else []
        names = [(*name, word) for name, word in zip(names, aspect, strict=True)]
    return [
        Group(first.dataset, first.backbone, one, ", ".join(words))
        for first, one, words in zip(firsts, cells, details, strict=True)
    ]


def _published_only(cells: Mapping[tuple[str, Column], Cell]) -> dict[tuple[str, Column], Cell]:
    """Cells of methods that exist as published numbers only, in the settings of the cells given."""
    settings = {column: cell.record for (_, column), cell in cells.items() if cell.record}
    numbers = {(name, column): published(run, name) for name in ONLY_PUBLISHED for column, run in settings.items()}
    return {key: Cell(None, published=number) for key, number in numbers.items() if number}


def pair_p_values(group: Group) -> dict[tuple[Column, frozenset[str]], float]:
    """P-values of all pairs of methods that ran on a feature file, by column, Holm-corrected over all of them."""
    runs = {(0, label, column): cell.record for (label, column), cell in group.cells.items() if cell.record}
    return {(column, pair): p_value for (_, column, pair), p_value in _corrected(_p_values(runs)).items()}
