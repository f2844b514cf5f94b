"""`fsbench report`."""

from __future__ import annotations

from pathlib import Path

from fsbench.cli.options import Report
from fsbench.errors import FsbenchError
from fsbench.io.files import write_text
from fsbench.report.page import render_html
from fsbench.report.plots.studies import draw_surface, draw_sweep
from fsbench.report.plots.style import svg_text
from fsbench.reporter import Reporter
from fsbench.results.collect import collect, read_records, read_sweeps, split_ablations
from fsbench.results.studies import read_memory


def report(options: Report) -> None:
    """Write the page of all records, sweeps and searches."""
    reporter, baseline = Reporter(options.quiet), options.baseline
    ranking, studied = split_ablations(read_records(options.records, options.results_dir, reporter), baseline)
    comparisons = collect(ranking, baseline, published=options.published)
    ablations = collect(studied, baseline, published=options.published) if studied else []
    sweeps = read_sweeps(options.results_dir, reporter)
    studies = {
        "Sweeps": [(sweep.title, svg_text(draw_sweep(sweep)), sweep.signature) for sweep in sweeps],
        "Tuning": _searches(options.features_dir, reporter),
    }
    write_text(options.out, render_html(comparisons, ablations, studies, title=options.title))
    reporter.say(f"Wrote {options.out}.")


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
