"""The tables of single commands: solve, scatter, verify, sweep, tune and reproduce."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsbench.errors import FsbenchError
from fsbench.report import writers
from fsbench.report.writers import NOTHING, Cell, Column, Mark, Note, Table, cells, interval_text, number, numbers
from fsbench.results.metrics import ACCURACY, Metric, metric_of
from fsbench.results.statistics import Interval
from fsbench.results.studies import Curve, Panel, Sweep, Trial, Tuned, Value, symbol

if TYPE_CHECKING:
    from fsbench.evaluation.reproduce import Cell as Reproduced
    from fsbench.evaluation.reproduce import Reproduction
    from fsbench.evaluation.verify import Verdict
    from fsbench.features.scatter import BaseStatistics

_WIDE = 5  # curves up to which a table has space for intervals
_SHOWN = 10  # trials of a search that is not a grid
_VERDICT = ("data set", "backbone", "method", "setting", "shots", "tasks", "result")
_MEANING = "Cells: ours/published, and ours minus published before rounding."


def scatter_table(rows: list[tuple[Path, BaseStatistics, float]]) -> Table:
    """The table of `fsbench scatter`: one row per feature file, with the σ that `solve` would use."""
    return Table(
        "Within-class scatter of the base classes",
        [Column("features"), *numbers("N_base", "classes", "D", "effective rank", "clamped")],
        [
            cells(
                path.name,
                f"{sum(base.class_counts):,}",
                f"{len(base.class_counts):,}",
                str(len(base.mean)),
                f"{base.effective_rank:.1f}",
                f"{100 * base.share_clamped(sigma):.0f} % at σ = {sigma:g}",
            )
            for path, base, sigma in rows
        ],
    )


def verdicts_table(verdicts: Sequence[Verdict]) -> Table:
    """The table of `fsbench verify`: one row per record."""
    marks: dict[str, Mark] = {"equal": "good", "different": "bad", "not verified": "doubtful"}
    rows = []
    for verdict in verdicts:
        record, protocol = verdict.record, verdict.record.run.protocol
        texts = (record.dataset, record.backbone, record.method.label, protocol.mix_title, str(protocol.shots))
        checked = f"{len(verdict.tasks):,} of {record.tasks:,}"
        rows.append([*cells(*texts, checked), Cell(verdict.state, marks[verdict.state])])
    columns = [Column(name, whole=name in ("setting", "shots", "result"), numeric=name == "tasks") for name in _VERDICT]
    return Table("Records, solved again on a sample of their tasks", columns, rows)


def sweep_tables(sweep: Sweep) -> list[Table]:
    """The tables of `fsbench sweep`, one per panel."""
    *tables, last = map(_panel_table, sweep.panels)
    return [*tables, replace(last, notes=[Note(sweep.signature, "signature")])]


def _panel_table(panel: Panel) -> Table:
    """One row per value of the axis, one column per curve, the best point of which is marked."""
    wide = len(panel.curves) <= _WIDE
    return Table(
        f"{panel.title}: accuracy in %" + (" ± 95 % interval" if wide else ""),
        numbers(panel.axis, *(curve.label for curve in panel.curves)),
        [
            [Cell(number(x)), *(_point(curve, x, wide) for curve in panel.curves)]
            for x in dict.fromkeys(point.x for curve in panel.curves for point in curve.points)
        ],
    )


def _point(curve: Curve, x: Value, interval: bool) -> Cell:
    (point,) = (point for point in curve.points if point.x == x)
    text = interval_text(Interval(point.accuracy, math.nan if point.ci95 is None or not interval else point.ci95))
    published = {point.x: point.accuracy for point in curve.published}
    text += f" (published {published[x]:.2f})" if x in published else ""
    return Cell(text, "best" if point == curve.best else "")


def surface_tables(tuned: Tuned) -> list[Table]:
    """A grid as tables of its two longest axes; anything else as a list of the best trials."""
    if tuned.how != "grid":
        return [_best_trials(tuned)]
    axes = grid_axes(tuned.trials)
    down, across, rest = split_axes(axes)
    trials = {tuple(sorted(trial.params.items())): trial for trial in tuned.trials}
    tables = []
    for values in itertools.product(*(axes[name] for name in rest)):
        fixed = dict(zip(rest, values, strict=True))
        title = "".join(f", {symbol(name)} = {number(value)}" for name, value in fixed.items())
        places = [{across: value} for value in axes[across]] if across else [{}]
        heads = [f"{symbol(across)} = {number(value)}" for value in axes[across]] if across else [tuned.metric]
        rows = []
        for y in axes[down]:
            row = [trials[tuple(sorted({**fixed, down: y, **place}.items()))] for place in places]
            marked = [Cell(f"{trial.score:.2f}", "best" if trial.params == tuned.params else "") for trial in row]
            rows.append([Cell(number(y)), *marked])
        heading = f"{tuned.method}, {tuned.setting}: {tuned.metric} on val in %{title}"
        tables.append(Table(heading, numbers(symbol(down), *heads), rows))
    return tables


def _best_trials(tuned: Tuned) -> Table:
    names = list(tuned.trials[0].params)
    best = sorted(tuned.trials, key=lambda trial: -trial.accuracy)[:_SHOWN]
    return Table(
        f"{tuned.method}, {tuned.setting}: best of {len(tuned.trials)} trials, accuracy on val in %",
        numbers(*map(symbol, names), "accuracy"),
        [
            cells(
                *map(number, trial.params.values()),
                interval_text(Interval(trial.accuracy, math.nan if trial.ci95 is None else trial.ci95)),
            )
            for trial in best
        ],
    )


def grid_axes(trials: Sequence[Trial]) -> dict[str, list[Value]]:
    """Names and values of the axes of a grid."""
    return {name: list(dict.fromkeys(trial.params[name] for trial in trials)) for name in trials[0].params}


def split_axes(axes: dict[str, list[Value]]) -> tuple[str, str, list[str]]:
    """The longest axis goes down, the next one (or none, "") across, the rest are tables or panels of their own."""
    longest = sorted(axes, key=lambda name: -len(axes[name]))
    down, across = longest[0], longest[1] if len(longest) > 1 else ""
    return down, across, [name for name in axes if name not in (down, across)]


def reproduced_tables(reproduction: Reproduction, metrics: Sequence[str] = (ACCURACY.name,)) -> list[Table]:
    """A table of the article with our numbers beside its own, one per data set; other metrics have ours alone."""
    columns = [Column("method", whole=True), Column("network", whole=True)]
    columns += numbers(*(column.title.replace(" ", "\n", 1) for column in reproduction.columns))
    tables = [
        Table(
            f"{reproduction.caption}: {dataset}" + ("" if metric is ACCURACY else f", {metric.title}"),
            columns,
            [cells(row.method, row.backbone, *(_reproduced_text(cell, metric) for cell in row.cells)) for row in rows],
        )
        for metric in map(metric_of, metrics)
        for dataset, rows in reproduction.blocks
    ]
    notes = [Note(_MEANING), *(Note(note, "item") for note in reproduction.notes)]
    return [*tables[:-1], replace(tables[-1], notes=notes)]


def _reproduced_text(cell: Reproduced, metric: Metric) -> str:
    """`75.2/74.1 +1.1`, with a dash for what is missing."""
    if metric is not ACCURACY:
        return f"{cell.ours.interval(metric.name).mean:.1f}" if cell.ours else NOTHING
    ours = f"{cell.ours.accuracy:.1f}" if cell.ours else NOTHING
    published = NOTHING if cell.published is None else f"{cell.published + 1e-9:.1f}"  # 71.35 is 71.4 in the article
    if ours == published == NOTHING:
        return NOTHING
    return f"{ours}/{published}" + (f" {cell.gap:+.1f}" if cell.gap is not None else "")


def reproduced_json(reproduction: Reproduction, metrics: Sequence[str] = (ACCURACY.name,)) -> str:
    """A list of cells: ours, the published number, and ours minus published; null for what is missing."""
    rows = [
        {
            "dataset": dataset, "backbone": row.backbone, "method": row.method,
            "setting": "balanced" if column.balanced else "unbalanced", "alpha": column.alpha, "shots": column.shots,
            "ours": cell.ours.accuracy if cell.ours else None, "ci95": cell.ours.ci95 if cell.ours else None,
            "metrics": {name: cell.ours.interval(name).mean for name in metrics} if cell.ours else None,
            "published": cell.published, "gap": cell.gap, "signature": cell.ours.signature if cell.ours else None,
        }
        for dataset, block in reproduction.blocks
        for row in block
        for column, cell in zip(reproduction.columns, row.cells, strict=True)
    ]  # fmt: skip
    return json.dumps({"table": reproduction.caption, "cells": rows, "notes": reproduction.notes}, indent=1) + "\n"


def writer_for(out: Path) -> Callable[[Reproduction, Sequence[str]], str]:
    """What makes the text of a file of the article's table, by its ending."""
    makers: dict[str, Callable[[Reproduction, Sequence[str]], str]] = {
        ".tex": lambda table, metrics: writers.latex(reproduced_tables(table, metrics)),
        ".md": lambda table, metrics: writers.markdown(reproduced_tables(table, metrics)),
        ".html": lambda table, metrics: writers.html(reproduced_tables(table, metrics), table.caption),
        ".json": reproduced_json,
        ".txt": lambda table, metrics: writers.as_text(reproduced_tables(table, metrics)),
    }
    if out.suffix.lower() not in makers:
        raise FsbenchError(f"Cannot write a table as {out.name}.", f"Endings: {', '.join(makers)}.")
    return makers[out.suffix.lower()]
