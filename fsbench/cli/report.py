"""`fsbench report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fsbench.cli.options import Report
from fsbench.errors import FsbenchError, unknown_name
from fsbench.io.files import write_text
from fsbench.report.page import render_html
from fsbench.report.plots.studies import draw_surface, draw_sweep
from fsbench.report.plots.style import svg_text
from fsbench.reporter import Reporter
from fsbench.results.collect import collect, read_records, read_sweeps, split_ablations
from fsbench.results.comparison import Comparison
from fsbench.results.metrics import metric_of
from fsbench.results.studies import read_memory


def report(options: Report) -> None:
    """Write the page of all records, sweeps and searches."""
    reporter, baseline = Reporter(options.quiet), options.baseline
    ranking, studied = split_ablations(read_records(options.records, options.results_dir, reporter), baseline)
    how: dict[str, Any] = {"metrics": [*map(metric_of, options.metrics)], "published": options.published}
    comparisons = collect(ranking, baseline, **how)
    ablations = collect(studied, baseline, **how) if studied else []
    sweeps = read_sweeps(options.results_dir, reporter)
    studies = {
        "Predictions": _predictions(comparisons[0], options.figures),
        "Sweeps": [(sweep.title, svg_text(draw_sweep(sweep)), sweep.signature) for sweep in sweeps],
        "Tuning": _searches(options.features_dir, reporter),
    }
    write_text(options.out, render_html(comparisons, ablations, studies, title=options.title))
    reporter.say(f"Wrote {options.out}.")


def _predictions(comparison: Comparison, figures: Sequence[str]) -> list[tuple[str, str, str]]:
    """Figures of the predictions of the first comparison: descriptions, figures and captions."""
    if not figures:
        return []
    from fsbench.report.plots.predictions import FIGURES  # noqa: PLC0415 - scipy.cluster takes long to import

    sections = []
    for figure in figures:
        if figure not in FIGURES:
            raise unknown_name("figure", figure, FIGURES)
        for group in comparison.groups:
            drawn = FIGURES[figure](comparison, group)
            words = f"{group.title}: {figure}"
            sections.append((words, svg_text(drawn), words))
    return sections


def _searches(folder: Path, reporter: Reporter) -> list[tuple[str, str, str]]:
    """What `fsbench tune` stored next to the feature files: descriptions, figures and captions."""
    sections = []
    for path in sorted(folder.glob("*.tuned.json")):
        features = path.name.removesuffix(".tuned.json")
        try:
            searches = read_memory(path)
        except FsbenchError as error:
            reporter.warn(f"{error.message} It is left out.")
            continue
        for tuned in searches.values():
            words = f"{features}: {tuned.describe()}."
            sections.append((words, svg_text(draw_surface(tuned, features)), words))
    return sections
