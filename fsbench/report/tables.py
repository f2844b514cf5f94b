"""The tables of single commands: scatter, sweep, tune and reproduce."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsbench.report.writers import NOTHING, Cell, Column, Note, Table, cells, interval_text, number, numbers
from fsbench.results.metrics import ACCURACY, Metric, metric_of
from fsbench.results.statistics import Interval
from fsbench.results.studies import Curve, Panel, Sweep, Tuned, Value, symbol

if TYPE_CHECKING:
    from fsbench.evaluation.reproduce import Cell as Reproduced
    from fsbench.evaluation.reproduce import Reproduction
    from fsbench.features.scatter import BaseStatistics

_WIDE = 5  # curves up to which a table has space for intervals
_SHOWN = 12  # trials of a search
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


def trials_table(tuned: Tuned) -> Table:
    """The table of `fsbench tune`: its best trials, the best first."""
    names = list(tuned.trials[0].params)
    best = sorted(tuned.trials, key=lambda trial: -trial.accuracy if trial.ece is None else trial.ece)[:_SHOWN]
    spread = tuned.trials[0].ece is None  # an interval of the accuracy
    return Table(
        f"{tuned.method}, {tuned.setting}: best of {len(tuned.trials)} trials, {tuned.metric} on val in %",
        numbers(*map(symbol, names), tuned.metric),
        [
            cells(
                *map(number, trial.params.values()),
                interval_text(Interval(trial.score, trial.ci95 if spread and trial.ci95 is not None else math.nan)),
            )
            for trial in best
        ],
    )


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


def reproduced_rows(reproduction: Reproduction, metrics: Sequence[str] = (ACCURACY.name,)) -> list[dict[str, Any]]:
    """A row per cell: ours, the published number, and ours minus published; None for what is missing."""
    return [
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
