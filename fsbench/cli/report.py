"""`fsbench report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsbench.cli import complete
from fsbench.cli import options as use
from fsbench.io.files import write_text
from fsbench.report.html import render_html
from fsbench.report.plots.studies import draw_sweep
from fsbench.report.plots.style import svg_text
from fsbench.reporter import Reporter
from fsbench.results.collect import collect, read_records, read_sweeps


def report(
    records: use.RecordsArgument = None,
    baseline: Annotated[
        str, typer.Option(help="Method that others are compared to.", autocompletion=complete.methods)
    ] = "soft-kmeans",
    published: Annotated[bool, typer.Option("--published/--no-published", help="Show published numbers.")] = True,
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Few-shot benchmark",
    out: Annotated[Path, typer.Option(help="The page: one self-contained HTML file.")] = Path("report.html"),
    results_dir: use.ResultsRoot = Path("results"),
    quiet: use.Quiet = False,
) -> None:
    """Write all records into one self-contained HTML page.

    Sortable tables, figures, the curves of sweeps, signatures and environment.

    Example: [bold]fsbench report --out report.html[/bold]
    """
    reporter = Reporter(quiet)
    comparisons = collect(read_records(records, results_dir, reporter), baseline, published=published)
    figures = [(sweep.title, svg_text(draw_sweep(sweep))) for sweep in read_sweeps(results_dir, reporter)]
    write_text(out, render_html(comparisons, figures, title=title))
    reporter.say(f"Wrote {out}.")
