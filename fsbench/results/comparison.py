"""The comparison table as a value; every output format is a rendering of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsbench.methods.registry import method_class
from fsbench.results.published import ONLY_PUBLISHED, Published, published
from fsbench.results.statistics import LEVEL, Interval, holm, paired_difference, paired_p_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fsbench.results.record import RunRecord
    from fsbench.tasks.protocol import TaskProtocol


@dataclass(frozen=True)
class Column:
    """One setting."""

    balanced: bool
    alpha: float | None
    shots: int

    @classmethod
    def of(cls, protocol: TaskProtocol) -> Column:
        """The column of a protocol."""
        return cls(protocol.balanced, protocol.alpha, protocol.shots)

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


def entry_of(label: str, method: str) -> Entry:
    """The row of a method that is installed, or of a file."""
    info = method_class(method).info
    assumes = {"none": "no prior", "uniform": "uniform prior", "free": "free prior"}[info.prior]
    return Entry(label, info.name, assumes if info.transductive else "inductive")


@dataclass(frozen=True)
class Cell:
    """One method in one setting.

    Attributes:
        record: The run; None where there is only a published number.
        best: Whether it has the highest mean of its column.
        tied: Whether it is not significantly worse than the best.
        difference: To the baseline, over the same tasks; None for the baseline itself, or where it did not run.
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
    """The rows of one feature file.

    Attributes:
        dataset: Data set of the features.
        backbone: Backbone of the features.
        cells: By label of the method and column; a method may be missing in some.
        apart: What tells it from another group of the same data set and backbone; empty if there is none.
    """

    dataset: str
    backbone: str
    cells: Mapping[tuple[str, Column], Cell] = field(default_factory=dict)
    apart: str = ""

    @property
    def title(self) -> str:
        """As printed."""
        return f"{self.dataset} {self.backbone}" + (f" ({self.apart})" if self.apart else "")


@dataclass(frozen=True)
class PairedRow:
    """A run, and that of the baseline on the same tasks if there is one."""

    record: RunRecord
    baseline: RunRecord | None
    difference: Interval | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        row = self.record.row()
        if self.baseline and self.difference:
            row["baseline"] = {
                "method": self.baseline.key.method,
                "accuracy": self.baseline.accuracy,
                "ci95": self.baseline.ci95,
                "difference": self.difference.mean,
                "difference_ci95": self.difference.half_width if self.record.key.tasks > 1 else None,
            }
        return row


@dataclass(frozen=True)
class Comparison:
    """Methods by settings, for one or more feature files."""

    entries: Sequence[Entry]
    columns: Sequence[Column]
    groups: Sequence[Group] = field(repr=False)
    baseline: str
    tasks: int

    def __str__(self) -> str:
        from fsbench.report.render import as_text, render_rich

        return as_text(render_rich(self)).rstrip()

    def _repr_markdown_(self) -> str:
        """The table in a notebook."""
        from fsbench.report.render import render_markdown

        return render_markdown(self)

    def show(self, form: str = "rich", out: str | Path | None = None, *, timing: bool = False) -> None:
        """Print the table as `rich`, `markdown`, `latex`, `csv` or `json`, or write it to a file."""
        from fsbench.report.render import show

        show(self, form, Path(out) if out else None, timing)

    @property
    def records(self) -> list[RunRecord]:
        """All runs."""
        return [cell.record for group in self.groups for cell in group.cells.values() if cell.record]

    def paired_rows(self) -> list[PairedRow]:
        """Every run but those of the baseline, beside it; the baseline's own if it is the only method."""
        rows = []
        for group in self.groups:
            for (label, column), cell in group.cells.items():
                if cell.record and (label != self.baseline or len(self.entries) == 1):
                    beside = group.cells.get((self.baseline, column)) if label != self.baseline else None
                    rows.append(PairedRow(cell.record, beside.record if beside else None, cell.difference))
        return rows

    def notes(self) -> list[str]:
        """What a reader must know of the published numbers, each once."""
        cells = [cell for group in self.groups for cell in group.cells.values()]
        return list(dict.fromkeys(cell.published.note for cell in cells if cell.published and cell.published.note))

    def signature(self) -> str:
        """What all runs have in common, in one line; each run's own line is in the CSV and JSON formats."""
        records = self.records
        key = records[0].key
        made = sorted({record.versions.get("fsbench", "unknown") for record in records})
        rules = f"{key.protocol['name']}:{key.protocol['version']}|{key.protocol['ways']}w{key.protocol['queries']}q"
        bases = sorted({record.base_name for record in records})
        base = f"|base:{'+'.join(name or 'own' for name in bases)}" if any(bases) else ""
        return f"fsbench:{'+'.join(made)}|{key.split}{base}|{rules}|seed:{key.seed}|tasks:{key.tasks}"


Runs = dict[tuple[int, str, Column], "RunRecord"]


def compare_records(
    runs: Runs,
    entries: Sequence[Entry],
    columns: Sequence[Column],
    baseline: str,
    *,
    with_published: bool = True,
    over_data: Mapping[tuple[int, str, Column], Interval] | None = None,
) -> Comparison:
    """Test, mark and put together.

    Args:
        runs: Records by (number of the source, label of the method, column), all over the same tasks of a source and
            column. Not every method need have run everywhere, nor the baseline.
        entries: Methods in the order of the table.
        columns: Settings.
        baseline: Label of the method that others are compared to.
        with_published: Whether to look up published numbers.
        over_data: Intervals over the data, where they were asked for.
    """
    best = _best(runs)
    corrected = _corrected(runs, baseline, best)
    sources: dict[int, dict[tuple[str, Column], Cell]] = {}
    for key, record in runs.items():
        source, label, column = key
        reference, leader = runs.get((source, baseline, column)), best[source, column]
        p_best = corrected.get((source, column, frozenset((label, leader))), 0.0)
        sources.setdefault(source, {})[label, column] = Cell(
            record,
            best=label == leader,
            tied=label != leader and p_best >= LEVEL,
            difference=paired_difference(record.per_task, reference.per_task)
            if reference and label != baseline
            else None,
            p_value=corrected.get((source, column, frozenset((label, baseline)))),
            published=_published(_published_name(record), record) if with_published else None,
            over_data=(over_data or {}).get(key),
        )
    if with_published:
        for cells in sources.values():
            cells |= _published_only(cells)
    groups = _groups(sources)
    extra = [
        name for name in ONLY_PUBLISHED if any((name, column) in group.cells for group in groups for column in columns)
    ]
    rows = [*entries, *(Entry(name, name, "trains the network") for name in extra)]
    return Comparison(rows, columns, groups, baseline, next(iter(runs.values())).key.tasks)


Pair = tuple[int, Column, frozenset[str]]


def _corrected(runs: Runs, baseline: str, best: Mapping[tuple[int, Column], str]) -> dict[Pair, float]:
    """Holm-corrected p-values of all pairs a table speaks of, each once: with the baseline, and with the best.

    The tables of different feature files are corrected apart, so that one does not depend on what else was run.
    """
    pairs: dict[int, dict[Pair, float]] = {}
    for (source, label, column), record in runs.items():
        for other in (baseline, best[source, column]):
            reference = runs.get((source, other, column))
            if reference and other != label:
                p_value = paired_p_value(record.per_task, reference.per_task)
                pairs.setdefault(source, {})[source, column, frozenset((label, other))] = p_value
    corrected: dict[Pair, float] = {}
    for family in pairs.values():
        corrected.update(zip(family, holm(list(family.values())), strict=True))
    return corrected


def _best(runs: Runs) -> dict[tuple[int, Column], str]:
    """The label with the highest mean of every column."""
    best: dict[tuple[int, Column], str] = {}
    for (source, label, column), record in runs.items():
        leader = best.get((source, column))
        if leader is None or record.accuracy > runs[source, leader, column].accuracy:
            best[source, column] = label
    return best


def _groups(sources: Mapping[int, Mapping[tuple[str, Column], Cell]]) -> list[Group]:
    """One group per source, named by its records; where names are the same, by crops or digest too."""
    firsts = [next(cell.record for cell in cells.values() if cell.record) for _, cells in sorted(sources.items())]
    names = [(first.dataset, first.backbone) for first in firsts]
    crops = [(*name, first.crops) for name, first in zip(names, firsts, strict=True)]
    groups = []
    for (_, cells), first, name, full in zip(sorted(sources.items()), firsts, names, crops, strict=True):
        apart = []
        if names.count(name) > 1:
            apart.append(f"{first.crops} crops" if first.crops > 1 else "1 crop")
        if crops.count(full) > 1:
            apart.append(f"features {first.key.features_sha256[:6]}, base {first.key.base_sha256[:6] or 'none'}")
        groups.append(Group(*name, cells, ", ".join(apart)))
    return groups


def _published_name(record: RunRecord) -> str:
    """The name of what ran in the list of published numbers: a stage of BAVARDAGE has a row of its own."""
    return record.key.method + ("+vb" if record.key.params.get("stage") == "vb" else "")


def _published(name: str, record: RunRecord) -> Published | None:
    """The published number of a method in the setting of a record."""
    protocol = record.key.protocol
    if record.key.split != "novel" or protocol["ways"] != 5 or record.base_dataset:
        return None
    return published(
        name, record.dataset, record.backbone, balanced=protocol["alpha"] is None, alpha=protocol["alpha"],
        shots=protocol["shots"], queries=protocol["queries"], crops=record.crops,
    )  # fmt: skip


def _published_only(cells: Mapping[tuple[str, Column], Cell]) -> dict[tuple[str, Column], Cell]:
    """Cells of methods that exist as published numbers only, in the settings of the cells given."""
    settings = {column: cell.record for (_, column), cell in cells.items() if cell.record}
    found = {(name, column): _published(name, run) for name in ONLY_PUBLISHED for column, run in settings.items()}
    return {key: Cell(None, published=number) for key, number in found.items() if number}
