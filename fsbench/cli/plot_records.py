"""`fsbench plot bars`, `differences` and `curves`: pictures of results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsbench.cli.options import PictureFile, Quiet, RecordsArgument, ResultsRoot

if TYPE_CHECKING:
    from fsbench.evaluation.comparison import Comparison
    from fsbench.report.progress import Reporter


def bars(
    records: RecordsArgument = None,
    out: PictureFile = Path("bars.png"),
    results_dir: ResultsRoot = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Draw accuracies with their intervals.

    Example: [bold]fsbench plot bars --out bars.pdf[/bold]
    """
    from fsbench.evaluation.collect import collect, read_records
    from fsbench.report.plots.bars import accuracy_bars
    from fsbench.report.plots.style import check_ending
    from fsbench.report.progress import Reporter

    check_ending(out)
    reporter = Reporter(quiet)
    accuracy_bars(_largest(collect(read_records(records, results_dir, reporter)), reporter), out)
    reporter.say(f"Wrote {out}.")


def differences(
    method: Annotated[str, typer.Argument(help="As `fsbench compare` calls it.")],
    baseline: Annotated[str, typer.Argument(help="The method to subtract.")] = "soft-kmeans",
    records: RecordsArgument = None,
    out: PictureFile = Path("differences.png"),
    results_dir: ResultsRoot = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Draw how a method fares against another, task by task.

    Example: [bold]fsbench plot differences bavardage soft-kmeans[/bold]
    """
    from fsbench.errors import FsbenchError, unknown_name
    from fsbench.evaluation.collect import collect, read_records
    from fsbench.report.plots.differences import differences_figure, paired_runs
    from fsbench.report.plots.style import check_ending, save
    from fsbench.report.progress import Reporter

    check_ending(out)
    reporter = Reporter(quiet)
    found = collect(read_records(records, results_dir, reporter))
    known = {entry.label for comparison in found for entry in comparison.entries}
    for name in (method, baseline):
        if name not in known:
            raise unknown_name("method among the records", name, known)
    both = [comparison for comparison in found if paired_runs(comparison, method, baseline)]
    if not both:
        raise FsbenchError(
            f"{method} and {baseline} did not run on the same tasks of the same features.",
            f"Run them together: fsbench compare --methods {method} --baseline {baseline}",
        )
    pairs = paired_runs(_largest(both, reporter), method, baseline)
    save(differences_figure(pairs, method, baseline), out)
    reporter.say(f"Wrote {out}.")


def curves(
    sweep: Annotated[Path, typer.Argument(help="A file that `fsbench sweep` wrote into results/sweeps/.")],
    out: PictureFile = Path("curves.png"),
    quiet: Quiet = False,
) -> None:
    """Draw the curves of a sweep again, for instance as PDF.

    Example: [bold]fsbench plot curves results/sweeps/SWEEP.json --out curves.pdf[/bold]
    """
    from fsbench.report.curves import load_sweep
    from fsbench.report.plots.curves import draw_sweep
    from fsbench.report.plots.style import check_ending, save
    from fsbench.report.progress import Reporter

    check_ending(out)
    save(draw_sweep(load_sweep(sweep)), out)
    Reporter(quiet).say(f"Wrote {out}.")


def _largest(comparisons: list[Comparison], reporter: Reporter) -> Comparison:
    """The comparison of the most runs; the others are named, for a picture shows one list of tasks."""
    first, *others = comparisons
    if others:
        left = ", ".join(other.signature() for other in others)
        reporter.warn(
            f"A picture shows one list of tasks: {first.signature()}. Left out: {left}. Name records to choose."
        )
    return first
