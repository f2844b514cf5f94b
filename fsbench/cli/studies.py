"""`fsbench sweep`, `tune` and `reproduce`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from fsbench.cli.options import Reproduce, Tune
from fsbench.cli.options import Sweep as Options
from fsbench.cli.session import find_features, format_of, open_runner
from fsbench.errors import UsageError, unknown_name
from fsbench.evaluation.reproduce import TABLES, Cell, Reproduction
from fsbench.evaluation.reproduce import reproduce as reproduce_table
from fsbench.evaluation.run import Runner
from fsbench.evaluation.source import base_of, network_of, with_pixels
from fsbench.evaluation.spec import OF_PROTOCOL, Axis, protocols_of, varied_methods
from fsbench.evaluation.sweep import FIGURES, Plan, plan_sweep, run_sweep
from fsbench.evaluation.tuning import CALIBRATIONS, Search, grid_of, validation_source
from fsbench.evaluation.tuning import tune as search_parameters
from fsbench.features.store import FeatureFile
from fsbench.io.files import require_writable, write_text
from fsbench.options import text_of
from fsbench.report.plots.studies import draw_sweep
from fsbench.report.plots.style import check_ending, save
from fsbench.report.writers import (
    NOTHING,
    Column,
    Note,
    Table,
    cells,
    interval_text,
    number,
    numbers,
    render,
    show,
    stdout_console,
)
from fsbench.report.writers import Cell as TableCell
from fsbench.results.metrics import ACCURACY, Metric, metric_of
from fsbench.results.statistics import Interval
from fsbench.results.studies import SWEEPS, Curve, Panel, Sweep, Tuned, Value, save_sweep, symbol, tuning_path

_WIDE = 5  # curves up to which a table has space for intervals
_SHOWN = 12  # trials of a search


def sweep(options: Options) -> None:
    """Measure the curves for every feature file, then print, draw and store them."""
    given = "".join(f", {name} = {text_of(value)}" for name, value in options.parameters.items())
    plans = [replace(plan, title=plan.title + given) for plan in _plans(options)]
    name = f"{','.join(options.methods)} over {', '.join(options.over)}{given}"
    if options.out:
        check_ending(options.out)
    with open_runner(options) as runner:
        rules: dict[str, Any] = {"tasks": options.tasks, "seed": options.seed, "preset": options.preset}
        files = find_features(options, runner.reporter, runner.ranks)
        show_sweeps(lambda file: run_sweep(plans, file, runner, name=name, **rules), files, runner, options)


def _plans(options: Options) -> list[Plan]:
    """The panels to measure."""
    for name in set(OF_PROTOCOL) & options.over.keys() & options.model_fields_set:
        raise UsageError("over", f"{name} is swept and also given by --{name}; choose one")
    if "alpha" in options.over and not options.unbalanced:
        raise UsageError("over", "α has no meaning for balanced tasks; leave out --balanced")
    protocols = protocols_of(options)
    if "shots" in options.over:
        protocols = protocols[:1]  # its own number of shots does not matter
    axes = [Axis(*item) for item in options.over.items()]
    return plan_sweep(varied_methods(options.methods, options), axes, options.split, protocols)


def show_sweeps(
    curves_of: Callable[[FeatureFile], Sweep], files: Sequence[FeatureFile], runner: Runner, options: Any
) -> None:
    """Measure the curves of every file, store and draw them, and print tables as soon as they are there, or JSON."""
    if options.out and len(files) > 1:  # only the last would remain
        raise UsageError("out", "one figure is drawn per feature file; give one file, or leave out --out")
    folder, shown = options.results_dir / SWEEPS, []
    runner.ranks.agree(lambda: require_writable(folder))
    for curves in map(curves_of, files):
        if not runner.ranks.leads:
            continue
        stored = folder / f"{curves.name}.json"
        drawn = options.out or stored.with_suffix(".png")
        save_sweep(stored, curves)
        save(draw_sweep(curves), drawn)
        shown.append(asdict(curves))
        if not options.as_json:
            *tables, last = map(_panel_table, curves.panels)
            show(*tables, replace(last, notes=[Note(curves.signature, "signature")]))
            stdout_console().print(f"Figure: {drawn}. Points: {stored}.", soft_wrap=True)
    if runner.ranks.leads and options.as_json:
        print(json.dumps(shown, indent=1))


def tune(options: Tune) -> None:
    """Search parameters for every feature file and setting, and print what was tried and chosen."""
    protocols = protocols_of(options)
    (choice,) = varied_methods([options.method], options)
    confidence = [Axis("calibration", CALIBRATIONS)] if options.goal == "confidence" else []
    grid = [Axis(*item) for item in options.over.items()] or confidence or grid_of(choice)
    with open_runner(options) as runner:
        searched: list[Tuned] = []
        for file in find_features(options, runner.reporter, runner.ranks):
            val = validation_source(file, base_of(file, runner.reporter, runner.ranks))
            val = with_pixels(val, choice.network, file, runner)
            for protocol in protocols:
                search = Search(choice, val, protocol, tuning_path(file.path))
                search = search.for_confidence() if confidence else search
                tuned = search_parameters(search, grid, runner, tasks=options.tasks, seed=options.seed)
                if not runner.ranks.leads:
                    continue
                searched.append(tuned)
                if not options.as_json:
                    show(_trials_table(tuned))
                    stored = f" Kept in {search.memory} for --tune." if search.stored() == tuned else ""
                    stdout_console().print(f"{tuned.describe()}.{stored}", soft_wrap=True)
        if runner.ranks.leads and options.as_json:
            print(json.dumps([asdict(tuned) | {"params": tuned.params} for tuned in searched], indent=1))


_FIGURES = {f"figure{number}": number for number in FIGURES}


def reproduce(options: Reproduce) -> None:
    """Run what a table or figure of the article needs, and show it next to the article's numbers."""
    what, out = options.what, options.out
    if what not in (*TABLES, *_FIGURES):
        raise unknown_name("table or figure", what, (*TABLES, *_FIGURES))
    form = format_of("json" if options.as_json else None, out) if what in TABLES else ""
    if out and what in _FIGURES:
        check_ending(out)
    with open_runner(options) as runner:
        files = find_features(options, runner.reporter, runner.ranks)
        if what in _FIGURES:

            def curves_of(file: FeatureFile) -> Sweep:
                preset, tasks = "" if network_of(file) else "article", options.tasks or 1_000
                rules: dict[str, Any] = {"tasks": tasks, "seed": options.seed, "preset": preset}
                number = _FIGURES[what]
                return run_sweep(FIGURES[number](preset), file, runner, name=f"figure {number}", **rules)

            show_sweeps(curves_of, files, runner, options)
            return
        tasks, weights = options.tasks or 10_000, options.weights_dir
        table = reproduce_table(what, files, runner, tasks=tasks, seed=options.seed, weights=weights)
        if not runner.ranks.leads:
            return
        tables = _reproduced_tables(table, options.metrics)
        text = render(form, lambda: tables, lambda: _reproduced_rows(table, options.metrics))
        if out:
            write_text(out, text)
            runner.reporter.say(f"Wrote {out}.")
        if options.as_json:
            print(text, end="")
        else:
            show(*tables)


def _panel_table(panel: Panel) -> Table:
    """One row per value of the axis, one column per curve, the best point of which is marked."""
    wide = len(panel.curves) <= _WIDE
    return Table(
        f"{panel.title}: accuracy in %" + (" ± 95 % interval" if wide else ""),
        numbers(panel.axis, *(curve.label for curve in panel.curves)),
        [
            [TableCell(number(x)), *(_point(curve, x, wide) for curve in panel.curves)]
            for x in dict.fromkeys(point.x for curve in panel.curves for point in curve.points)
        ],
    )


def _point(curve: Curve, x: Value, interval: bool) -> TableCell:
    (point,) = (point for point in curve.points if point.x == x)
    text = interval_text(Interval(point.accuracy, math.nan if point.ci95 is None or not interval else point.ci95))
    published = {point.x: point.accuracy for point in curve.published}
    text += f" (published {published[x]:.2f})" if x in published else ""
    return TableCell(text, "best" if point == curve.best else "")


def _trials_table(tuned: Tuned) -> Table:
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


def _reproduced_tables(reproduction: Reproduction, metrics: Sequence[str]) -> list[Table]:
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
    notes = [
        Note("Cells: ours/published, and ours minus published before rounding."),
        *(Note(note, "item") for note in reproduction.notes),
    ]
    return [*tables[:-1], replace(tables[-1], notes=notes)]


def _reproduced_text(cell: Cell, metric: Metric) -> str:
    """`75.2/74.1 +1.1`, with a dash for what is missing."""
    if metric is not ACCURACY:
        return f"{cell.ours.interval(metric.name).mean:.1f}" if cell.ours else NOTHING
    ours = f"{cell.ours.accuracy:.1f}" if cell.ours else NOTHING
    published = NOTHING if cell.published is None else f"{cell.published + 1e-9:.1f}"  # 71.35 is 71.4 in the article
    if ours == published == NOTHING:
        return NOTHING
    return f"{ours}/{published}" + (f" {cell.gap:+.1f}" if cell.gap is not None else "")


def _reproduced_rows(reproduction: Reproduction, metrics: Sequence[str]) -> list[dict[str, Any]]:
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
