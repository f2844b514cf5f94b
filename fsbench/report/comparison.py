"""A comparison as tables: for people, and as rows of plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from fsbench.io.files import write_text
from fsbench.report import writers
from fsbench.report.answer import sentences, unranked
from fsbench.report.writers import NOTHING, Cell, Column, Note, Table, Value, cells, interval_text
from fsbench.results.comparison import Cell as Result
from fsbench.results.comparison import Column as Setting
from fsbench.results.comparison import Comparison, Entry, Group
from fsbench.results.metrics import ACCURACY, confused
from fsbench.results.record import Record
from fsbench.results.statistics import Interval

_NEW_CLASSES = "new classes, from the jackknife over the classes"


@dataclass(frozen=True)
class ComparisonTable:
    """A comparison that can be printed, shown in a notebook, and written to a file."""

    comparison: Comparison

    def __str__(self) -> str:
        return render(self.comparison, "rich").rstrip()

    def _repr_markdown_(self) -> str:
        """The table in a notebook."""
        return render(self.comparison, "markdown")

    @property
    def records(self) -> list[Record]:
        """All runs."""
        return self.comparison.records

    def show(self, form: str = "rich", out: str | Path | None = None, *, per_class: bool = False) -> None:
        """Print the table as `rich`, `markdown`, `latex`, `csv` or `json`, or write it to a file."""
        if out is not None:
            write_text(Path(out), render(self.comparison, form, per_class=per_class))
        elif form == "rich":
            writers.show(*comparison_tables(self.comparison, per_class=per_class))
        else:
            print(render(self.comparison, form, per_class=per_class), end="")


def render(comparison: Comparison, form: str, *, per_class: bool = False) -> str:
    """The text of a comparison in one of the formats; csv and json have one row per method, setting and metric."""
    tables = partial(comparison_tables, comparison, per_class=per_class)
    return writers.render(form, tables, partial(flat_rows, comparison))


def comparison_tables(comparison: Comparison, *, per_class: bool = False) -> list[Table]:
    """Tables of methods by settings, several per feature file and metric, with all notes below the last one."""
    tables = [table for one in comparison.in_all_metrics for table in _tables_of_metric(one)]
    if per_class:
        places = product(comparison.groups, comparison.columns)
        tables += [_class_table(comparison, *place) for place in places if place[1] in {at for _, at in place[0].cells}]
    tables[-1] = replace(tables[-1], notes=[*_notes(comparison)])
    return [replace(tables[0], answers=sentences(comparison)), *tables[1:]]


def _class_table(comparison: Comparison, group: Group, setting: Setting) -> Table:
    """Recall of every class over the list, the largest difference to the baseline first."""
    records = {label: cell.record for (label, at), cell in group.cells.items() if at == setting}
    answers = {label: confused(record) for label, record in records.items()}
    recalls = {label: 100 * np.diag(one) / one.sum(axis=1).clip(1) for label, one in answers.items()}
    baseline = recalls.get(comparison.baseline, 0.0)
    apart = np.max([np.abs(one - baseline) for one in recalls.values()], axis=0)
    first = next(iter(records))
    names, queries = records[first].class_names, answers[first].sum(axis=1)
    rows = [
        cells(names[number], f"{queries[number]:,}", *(f"{one[number]:.1f}" for one in recalls.values()))
        for number in np.argsort(-apart, kind="stable")
        if queries[number]
    ]
    columns = [Column("class"), *(Column(name, numeric=True) for name in ("queries", *recalls))]
    return Table(f"{group.title}, {setting.title}: recall of every class in %", columns, rows)


def _tables_of_metric(comparison: Comparison) -> list[Table]:
    """The tables of one metric."""
    columns = [Column("method"), Column("assumes", whole=True, optional=True)]
    columns += [Column(setting.title.replace(" ", "\n", 1), numeric=True) for setting in comparison.columns]
    tables = []
    for group in comparison.groups:
        for number, (heading, text_of) in enumerate(_views(comparison, group)):
            rows = []
            for title, entry in comparison.rows.items():
                alike = [one for one in comparison.entries if entry.label in (one.label, one.same_as)]
                marks = " †" if any(one.tuned for one in alike) else ""
                marks += " ‡" if any(one.facts.elsewhere for one in alike) else ""
                fewer = f" ({entry.fewer})" if entry.fewer else ""
                results = [
                    (group.cells.get((entry.label, one)), one not in group.undecided) for one in comparison.columns
                ]
                row = [_cell(result, text_of, marked=number == 0 and decided) for result, decided in results]
                if any(cell.text != NOTHING for cell in row):
                    rows.append([Cell(title + fewer + marks), Cell(entry.assumes), *row])
            tables.append(Table(f"{group.title}: {heading}", columns, rows))
    return tables


def _cell(result: Result | None, text_of: Callable[[Result], str], *, marked: bool) -> Cell:
    text = text_of(result) if result else ""
    if not (result and text and marked):
        return Cell(text or NOTHING)
    return Cell(text, "best" if result.best else "tied" if result.tied else "", bool(result.own_warnings))


def _views(comparison: Comparison, group: Group) -> Iterator[tuple[str, Callable[[Result], str]]]:
    """The tables of a group that have something to show: a title, and what makes the text of a result, or nothing."""
    results, metric, baseline = group.cells.values(), comparison.metric.title, comparison.baseline
    lower = "" if comparison.metric.higher_is_better else " (lower is better)"
    title = f"{metric} in %{lower}, {group.counted_tasks} ± 95 % interval"
    yield title, lambda result: interval_text(result.value)
    of_metric = "" if comparison.metric is ACCURACY else f" in {metric}"
    if any(result.difference for result in results):
        yield f"difference to {baseline}{of_metric} on the same tasks", difference_text
    if any(result.published for result in results):
        yield "published (ours minus published)", published_text
    if any(result.over_classes for result in results):
        yield f"{metric} ± 95 % interval for {_NEW_CLASSES}", lambda result: interval_text(result.over_classes)
    if any(result.over_classes_difference for result in results):
        yield f"difference to {baseline}, for {_NEW_CLASSES}", partial(difference_text, over_classes=True)


def difference_text(result: Result, *, over_classes: bool = False) -> str:
    """Difference to the baseline, with its interval; in brackets if not significant, or for new classes perhaps 0."""
    gap = result.over_classes_difference if over_classes else result.difference
    sure = gap and abs(gap.mean) > gap.half_width if over_classes else result.significant
    text = interval_text(gap, signed=True)
    return text if sure or "±" not in text else f"({text})"


def published_text(result: Result, *, interval: bool = False) -> str:
    """The published number, and how far ours is from it; with its interval where there is space."""
    if result.published is None:
        return ""
    mean, width = result.published.accuracy, result.published.ci95
    text = interval_text(Interval(mean, math.nan if width is None or not interval else width))
    return f"{text} ({result.value.mean - mean:+.1f})"


def _notes(comparison: Comparison) -> Iterator[Note]:
    """What marks mean, the signature, warnings, and notes on published numbers."""
    results = comparison.cells
    if len(comparison.rows) > 1 and any(set(comparison.columns) - group.undecided for group in comparison.groups):
        tied = "*: not significantly worse than the best (paired test, 5 %, Holm-corrected over all pairs of the table)"
        yield Note(f"best of its column; {tied}", "best")
        if any(result.tied for result in results):
            why = "tests compare task by task, and a small loss on most tasks counts more than a larger one on some"
            yield Note(f"a method without * may have a higher mean than one with it: {why}")
    if any(entry.same_as for entry in comparison.entries):
        yield Note("a = b: methods with the same answers, but for rounding")
    every = len(comparison.entries) * len(comparison.columns) * len(comparison.groups)
    gaps = len(results) < every or any(entry.fewer for entry in comparison.entries)
    for one in unranked(comparison) if gaps else []:
        yield Note("; ".join([f"without a rank: {one.method}, which lacks {one.missing}", *one.commands]))
    if any(difference_text(result).startswith("(") for result in results):
        test = "paired test, 5 %, Holm-corrected over all differences to it"
        yield Note(f"(…): not significantly different from {comparison.baseline} ({test})")
    if any(result.over_classes_difference for result in results):
        yield Note("(…) in differences for new classes: the interval includes 0")
    if any(entry.tuned for entry in comparison.entries):
        yield Note("†: parameters tuned on the val classes")
    if any(entry.facts.elsewhere for entry in comparison.entries):
        yield Note("‡: predictions of another program, scored on the same tasks")
    yield Note(comparison.signature(), "signature")
    yield from (Note(line, "warning") for line in comparison.warnings())
    yield from (Note(f"published: {line}") for line in comparison.notes())


def flat_rows(comparison: Comparison) -> list[dict[str, Value]]:
    """One row of plain data per method, setting and metric."""
    return [
        _flat_row(comparison, group, entry, setting, result)
        for comparison in comparison.in_all_metrics
        for group in comparison.groups
        for entry in comparison.entries
        for setting in comparison.columns
        if (result := group.cells.get((entry.label, setting))) is not None
    ]


def _flat_row(comparison: Comparison, group: Group, entry: Entry, setting: Setting, result: Result) -> dict[str, Value]:
    record, published = result.record, result.published
    made, decided = record.provenance, setting not in group.undecided
    return {
        "dataset": group.dataset,
        "backbone": group.backbone,
        "method": entry.label,
        "assumes": result.record.method.assumes,
        "setting": setting.setting,
        "alpha": setting.alpha,
        "shots": setting.shots,
        "ways": record.run.protocol.ways,
        "queries": record.run.protocol.queries,
        "protocol": setting.name,
        "present": setting.present,
        "unknown": setting.unknown,
        "support": setting.support,
        "split": record.run.split,
        "seed": record.run.seed,
        "tasks": record.tasks,
        "accuracy": record.accuracy,
        "metric": comparison.metric.name,
        **_mean_and_width("value", result.value, "ci95"),
        "best": result.best and decided,
        "tied_with_best": result.tied and decided,
        "baseline": comparison.baseline,
        **_mean_and_width("difference", result.difference),
        "p_value_holm": result.p_value,
        "published": published.accuracy if published else None,
        "published_ci95": published.ci95 if published else None,
        "published_source": published.source if published else None,
        **_mean_and_width("over_classes", result.over_classes),
        **_mean_and_width("over_classes_difference", result.over_classes_difference),
        "tasks_per_second": record.tasks_per_second if record.seconds else None,
        "peak_memory": record.peak_memory,
        "family": made.family,
        "weights": made.named_weights,
        "crops": made.crops,
        "features_sha256": record.run.features,
        "base_sha256": record.run.base or None,
        "signature": record.signature,
        "params": record.run.params,
        "params_from": str(record.origins),
        "warnings": " ".join(one.code for one in result.warnings),
    }


def _mean_and_width(name: str, interval: Interval | None, width: str = "") -> dict[str, Value]:
    finite = interval is not None and not math.isnan(interval.half_width)
    return {
        name: interval.mean if interval else None,
        width or f"{name}_ci95": interval.half_width if interval and finite else None,
    }
