"""The comparison table as a value; every output format is a rendering of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import fsbench
from fsbench.evaluate.statistics import LEVEL, Interval, holm, paired_difference, paired_p_value
from fsbench.report.published import ONLY_PUBLISHED, Published, published

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fsbench.report.record import RunRecord


@dataclass(frozen=True)
class Column:
    """One setting."""

    balanced: bool
    alpha: float | None
    shots: int

    @property
    def title(self) -> str:
        """As printed."""
        setting = "balanced" if self.balanced else f"unbalanced α={self.alpha:g}"
        return f"{setting} {self.shots}-shot"


@dataclass(frozen=True)
class Entry:
    """A method as it appears in the table.

    Attributes:
        label: Name, with its variant.
        method: Name alone.
        assumes: Inductive, or the class prior that a transductive method assumes.
    """

    label: str
    method: str
    assumes: str


@dataclass(frozen=True)
class Cell:
    """One method in one setting.

    Attributes:
        record: The run; None where there is only a published number.
        best: Whether it has the highest mean of its column.
        tied: Whether it is not significantly worse than the best.
        difference: To the baseline, over the same tasks; None for the baseline itself.
        p_value: Of that difference, Holm-corrected over the table.
        published: The published number that belongs here, if any.
        over_data: Interval over the data, if asked for.
    """

    record: RunRecord | None
    best: bool = False
    tied: bool = False
    difference: Interval | None = None
    p_value: float | None = None
    published: Published | None = None
    over_data: Interval | None = None


@dataclass(frozen=True)
class Group:
    """The rows of one feature file."""

    dataset: str
    backbone: str
    cells: Mapping[tuple[str, Column], Cell] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """Methods by settings, for one or more feature files."""

    entries: Sequence[Entry]
    columns: Sequence[Column]
    groups: Sequence[Group]
    baseline: str
    tasks: int

    def notes(self) -> list[str]:
        """What a reader must know of the published numbers, each once."""
        cells = [cell for group in self.groups for cell in group.cells.values()]
        return list(dict.fromkeys(cell.published.note for cell in cells if cell.published and cell.published.note))

    def signature(self) -> str:
        """What all runs have in common, in one line; each run's own line is in the CSV and JSON formats."""
        records = [cell.record for group in self.groups for cell in group.cells.values() if cell.record]
        key = records[0].key
        rules = f"{key.protocol['name']}:{key.protocol['version']}|{key.protocol['ways']}w{key.protocol['queries']}q"
        base = f"|base:{records[0].base_dataset}" if records[0].base_dataset else ""
        return f"fsbench:{fsbench.__version__}|{key.split}{base}|{rules}|seed:{key.seed}|tasks:{key.tasks}"


Runs = dict[tuple[int, str, Column], "RunRecord"]


def compare_records(
    runs: Runs,
    entries: Sequence[Entry],
    columns: Sequence[Column],
    sources: Sequence[tuple[str, str, int]],
    baseline: str,
    *,
    with_published: bool = True,
    over_data: Mapping[tuple[int, str, Column], Interval] | None = None,
) -> Comparison:
    """Test, mark and put together.

    Args:
        runs: Records by (number of the source, label of the method, column).
        entries: Methods in the order of the table.
        columns: Settings.
        sources: Data set, backbone and crops of every feature file.
        baseline: Label of the method that others are compared to.
        with_published: Whether to look up published numbers.
        over_data: Intervals over the data, where they were asked for.
    """
    best = _best(runs)
    corrected = _corrected(runs, baseline, best)
    groups = []
    for number, (dataset, backbone, crops) in enumerate(sources):
        cells = {}
        for key, record in runs.items():
            source, label, column = key
            if source != number:
                continue
            reference, leader = runs[source, baseline, column], best[source, column]
            p_best = corrected.get((source, column, frozenset((label, leader))), 0.0)
            cells[label, column] = Cell(
                record,
                best=label == leader,
                tied=label != leader and p_best >= LEVEL,
                difference=None if label == baseline else paired_difference(record.per_task, reference.per_task),
                p_value=corrected.get((source, column, frozenset((label, baseline)))),
                published=_published_for(record, column, crops) if with_published else None,
                over_data=(over_data or {}).get(key),
            )
        if with_published and not any(cell.record and cell.record.base_dataset for cell in cells.values()):
            cells |= _published_only(dataset, backbone, crops, columns)
        groups.append(Group(dataset, backbone, cells))
    extra = [
        name for name in ONLY_PUBLISHED if any((name, column) in group.cells for group in groups for column in columns)
    ]
    rows = [*entries, *(Entry(name, name, "trains the network") for name in extra)]
    return Comparison(rows, columns, groups, baseline, next(iter(runs.values())).key.tasks)


Pair = tuple[int, Column, frozenset[str]]


def _corrected(runs: Runs, baseline: str, best: Mapping[tuple[int, Column], str]) -> dict[Pair, float]:
    """Holm-corrected p-values of all pairs the table speaks of, each once: with the baseline, and with the best."""
    pairs: dict[Pair, float] = {}
    for source, label, column in runs:
        for other in (baseline, best[source, column]):
            if other != label:
                values, reference = runs[source, label, column].per_task, runs[source, other, column].per_task
                pairs[source, column, frozenset((label, other))] = paired_p_value(values, reference)
    return dict(zip(pairs, holm(list(pairs.values())), strict=True))


def _best(runs: Runs) -> dict[tuple[int, Column], str]:
    """The label with the highest mean of every column."""
    best: dict[tuple[int, Column], str] = {}
    for (source, label, column), record in runs.items():
        leader = best.get((source, column))
        if leader is None or record.accuracy > runs[source, leader, column].accuracy:
            best[source, column] = label
    return best


def _published_for(record: RunRecord, column: Column, crops: int) -> Published | None:
    protocol: dict[str, Any] = record.key.protocol
    if record.key.split != "novel" or protocol["ways"] != 5 or record.base_dataset:
        return None
    return published(
        record.key.method, record.dataset, record.backbone,
        balanced=column.balanced, alpha=column.alpha, shots=column.shots, queries=protocol["queries"], crops=crops,
    )  # fmt: skip


def _published_only(
    dataset: str, backbone: str, crops: int, columns: Sequence[Column]
) -> dict[tuple[str, Column], Cell]:
    """Cells of methods that exist as published numbers only."""
    cells = {}
    for name in ONLY_PUBLISHED:
        for column in columns:
            found = published(
                name, dataset, backbone,
                balanced=column.balanced, alpha=column.alpha, shots=column.shots, queries=75, crops=crops,
            )  # fmt: skip
            if found:
                cells[name, column] = Cell(None, published=found)
    return cells
