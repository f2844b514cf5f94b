"""`fsbench plot FIGURE`, figures of records and of features; and `fsbench report`, a page of all records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fsbench.cli import options as use
from fsbench.errors import UsageError
from fsbench.io.files import write_text
from fsbench.methods.registry import installed_versions
from fsbench.report.page import render_html
from fsbench.report.plots.comparison import draw_dots
from fsbench.report.plots.predictions import draw_calibration, draw_confusion
from fsbench.report.plots.studies import draw_spectra, draw_sweep
from fsbench.report.plots.style import check_ending, save, svg_text
from fsbench.reporter import Reporter
from fsbench.results.collect import BASELINE, collect, read_records, read_sweeps, split_ablations, titles
from fsbench.results.comparison import Comparison
from fsbench.results.metrics import metric_of
from fsbench.results.record import Record


def report(options: use.Report) -> None:
    """Write the page of all records and sweeps."""
    reporter, baseline = Reporter(options.quiet), options.baseline
    ranking, studied = split_ablations(_records(options, reporter), baseline)
    how: dict[str, Any] = {"metrics": [*map(metric_of, options.metrics)], "published": options.published}
    comparisons = collect(ranking, baseline, **how)
    ablations = collect(studied, baseline, **how) if studied else []
    sweeps = read_sweeps(options.results_dir, reporter)
    studies = [(sweep.title, svg_text(draw_sweep(sweep)), sweep.signature) for sweep in sweeps]
    write_text(options.out, render_html(comparisons, ablations, studies, title=options.title))
    reporter.say(f"Wrote {options.out}.")


def _records(options: use.Records, reporter: Reporter) -> list[Record]:
    return read_records(options.records, options.results_dir, reporter, installed_versions())


def _written(draw: Callable[[Any, Reporter], Figure]) -> Callable[[Any], None]:
    """The command of a figure: checks the ending of its file before anything is computed, draws, and writes it."""

    def command(options: use.Drawn) -> None:
        out, reporter = options.out or Path(f"{draw.__name__}.png"), Reporter(options.quiet)
        check_ending(out)
        save(draw(options, reporter), out)
        reporter.say(f"Wrote {out}.")

    return command


@_written
def dots(options: use.Dots, reporter: Reporter) -> Figure:
    """Accuracies or differences as dots with intervals."""
    records, baseline = _records(options, reporter), options.baseline
    (metric, *more) = map(metric_of, options.metrics)
    if more:
        raise UsageError("metrics", "a figure shows one metric", "Plot each to a file of its own.")
    first = _first(collect(records, baseline or BASELINE, metrics=[metric]), reporter)
    return draw_dots(first, options.width, differences=bool(baseline))


@_written
def confusion(options: use.Confusion, reporter: Reporter) -> Figure:
    """Which classes are confused, over all tasks."""
    comparison = _recorded(options, reporter)
    return draw_confusion(comparison, comparison.groups[0], options.method, options.width)


@_written
def calibration(options: use.Calibration, reporter: Reporter) -> Figure:
    """How often methods are right against how sure they are, one panel per setting."""
    comparison = _recorded(options, reporter)
    return draw_calibration(comparison, comparison.groups[0], options.width)


@_written
def spectrum(options: use.Spectrum, reporter: Reporter) -> Figure:
    """The spectrum of S_w, and what the clamp cuts."""
    from fsbench.cli.session import find_features  # noqa: PLC0415 - import torch, which all other figures do without
    from fsbench.features.scatter import base_statistics  # noqa: PLC0415
    from fsbench.methods.bavardage import Bavardage  # noqa: PLC0415

    spectra = [
        (f"{file.path.stem} {file.provenance.named_weights}".strip(), base_statistics(file, reporter))
        for file in find_features(options, reporter)
    ]
    return draw_spectra(spectra, Bavardage.sigma, options.width)


def _recorded(options: use.Records, reporter: Reporter) -> Comparison:
    """The first comparison of the records; a note names feature files left out."""
    comparison = _first(collect(_records(options, reporter)), reporter)
    if others := [group.title for group in comparison.groups[1:]]:
        reporter.say(f"Plotting {comparison.groups[0].title}; pass record files to choose {', '.join(others)}.")
    return comparison


def _first(comparisons: list[Comparison], reporter: Reporter) -> Comparison:
    """The comparison with the most tasks; a note names those left out."""
    shown, *others = titles(comparisons)
    if others:
        reporter.warn(f"Plotting the runs over {shown}; pass record files to choose others ({'; '.join(others)}).")
    return comparisons[0]
