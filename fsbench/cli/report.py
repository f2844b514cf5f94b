"""`fsbench report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsbench.cli import complete
from fsbench.cli import options as use
from fsbench.cli.run_file import read_study
from fsbench.errors import FsbenchError
from fsbench.io.files import write_text
from fsbench.report.html import STUDY, render_html
from fsbench.report.plots.studies import draw_surface, draw_sweep
from fsbench.report.plots.style import svg_text
from fsbench.reporter import Reporter
from fsbench.results.collect import (
    collect,
    read_others,
    read_records,
    read_sweeps,
    split_ablations,
    without_same_runs,
)
from fsbench.results.tuned import read_memory


def report(
    records: use.RecordsArgument = None,
    others: use.With = None,
    baseline: Annotated[
        str, typer.Option(help="Method that others are compared to.", autocompletion=complete.methods)
    ] = "soft-kmeans",
    published: Annotated[bool, typer.Option("--published/--no-published", help="Show published numbers.")] = True,
    title: Annotated[str, typer.Option(metavar="TEXT", help="Heading of the page.")] = "Few-shot benchmark",
    out: Annotated[Path, typer.Option(metavar="FILE", help="The HTML file to write.")] = Path("report.html"),
    study: Annotated[
        Path | None, typer.Option(help="Run file to show. (default: the one last run into the results folder)")
    ] = None,
    results_dir: use.ResultsRoot = Path("results"),
    features_dir: use.FeaturesRoot = Path("features"),
    quiet: use.Quiet = False,
) -> None:
    """Write all records into one self-contained HTML page.

    A leaderboard with filters, a table per feature file, ablations, sweeps and tuning, and the command behind every
    number. Searches are read from the features folder, the run file of `fsbench run` from the results folder.

    Example: [bold]fsbench report --out report.html[/bold]
    """
    reporter = Reporter(quiet)
    ours = read_records(records, results_dir, reporter)
    theirs = without_same_runs(ours, read_others(others or [], reporter), reporter)
    ranking, studied = split_ablations([*ours, *theirs], baseline)
    comparisons = collect(ranking, baseline, published=published)
    ablations = collect(studied, baseline, published=published) if studied else []
    studies = {
        "Sweeps": [
            (sweep.title, svg_text(draw_sweep(sweep)), sweep.signature) for sweep in read_sweeps(results_dir, reporter)
        ],
        "Tuning": _searches(features_dir, reporter),
    }
    stored = results_dir / STUDY
    repeated = read_study(study or stored)[0] if study or stored.exists() else ""
    write_text(out, render_html(comparisons, ablations, studies, title=title, study=repeated))
    reporter.say(f"Wrote {out}.")


def _searches(folder: Path, reporter: Reporter) -> list[tuple[str, str, str]]:
    """What `fsbench tune` remembers next to the feature files: descriptions, figures and captions."""
    found = []
    for path in sorted(folder.glob("*.tuned.json")):
        features = path.name.removesuffix(".tuned.json")
        try:
            searches = read_memory(path)
        except FsbenchError as error:
            reporter.warn(f"{error.message} It is left out.")
            continue
        for tuned in searches.values():
            words = f"{features}: {tuned.describe()}."
            found.append((words, svg_text(draw_surface(tuned, features)), words))
    return found
