"""`fsbench report`."""

from __future__ import annotations

from typing import Any

from fsbench.cli.options import Report
from fsbench.io.files import write_text
from fsbench.methods.registry import installed_versions
from fsbench.report.page import render_html
from fsbench.report.plots.studies import draw_sweep
from fsbench.report.plots.style import svg_text
from fsbench.reporter import Reporter
from fsbench.results.collect import collect, read_records, read_sweeps, split_ablations
from fsbench.results.metrics import metric_of


def report(options: Report) -> None:
    """Write the page of all records and sweeps."""
    reporter, baseline = Reporter(options.quiet), options.baseline
    ranking, studied = split_ablations(
        read_records(options.records, options.results_dir, reporter, installed_versions()), baseline
    )
    how: dict[str, Any] = {"metrics": [*map(metric_of, options.metrics)], "published": options.published}
    comparisons = collect(ranking, baseline, **how)
    ablations = collect(studied, baseline, **how) if studied else []
    sweeps = read_sweeps(options.results_dir, reporter)
    studies = [(sweep.title, svg_text(draw_sweep(sweep)), sweep.signature) for sweep in sweeps]
    write_text(options.out, render_html(comparisons, ablations, studies, title=options.title))
    reporter.say(f"Wrote {options.out}.")
