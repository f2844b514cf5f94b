"""`fsbench reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsbench.cli import complete
from fsbench.cli import options as use
from fsbench.cli.session import find_features, open_runner
from fsbench.cli.sweep import refuse_one_figure_for_many, show_sweeps
from fsbench.errors import unknown_name
from fsbench.evaluation.reproduce import reproduce as reproduce_table
from fsbench.evaluation.source import network_of
from fsbench.evaluation.sweep import FIGURES, figure, run_sweep
from fsbench.io.files import require_writable, write_text
from fsbench.report.plots.style import check_ending
from fsbench.report.reproduced import render_json, render_rich, writer_for
from fsbench.report.tables import stdout_console
from fsbench.results.curves import SWEEPS
from fsbench.results.reproduction import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsbench.evaluation.run import Runner
    from fsbench.features.store import FeatureFile
    from fsbench.results.curves import Sweep

_FIGURES = {f"figure{number}": number for number in FIGURES}
_PARTS = (*TABLES, *_FIGURES)


def reproduce(
    what: Annotated[
        str,
        typer.Argument(metavar="WHAT", help=f"{', '.join(_PARTS)}.", autocompletion=complete.words(*_PARTS)),
    ],
    features: use.FeaturesArgument = None,
    tasks: Annotated[
        int | None,
        use.of_tasks(parser=use.whole_number, metavar="N", help="Tasks per setting. (default: 10,000; figures 1,000)"),
    ] = None,
    seed: use.Seed = 0,
    out: Annotated[
        Path | None, use.of_output(help="Table file (.tex, .md, .html, .json, .txt) or figure file (.png, .pdf, .svg).")
    ] = None,
    as_json: use.AsJson = False,
    device: use.Device = "auto",
    batch: use.Batch = None,
    force: use.Force = False,
    features_dir: use.FeaturesRoot = Path("features"),
    weights_dir: use.WeightsRoot = Path("weights"),
    results_dir: use.ResultsRoot = Path("results"),
    quiet: use.Quiet = False,
) -> None:
    """Reproduce a table or figure of the article, next to its numbers.

    Uses all feature files that have a place in it, and says which checkpoints the other cells need. Parameters are the
    article's where the network is the published one, and the scale-free defaults elsewhere. table2, the elements of
    BAVARDAGE, also includes all other feature files.

    Example: [bold]fsbench reproduce table3 --out table3.tex[/bold]
    """
    if what not in _PARTS:
        raise unknown_name("table or figure", what, _PARTS)
    write = writer_for(out) if out and what in TABLES else None
    if out and what in _FIGURES:
        check_ending(out)
    with open_runner(device, batch, results_dir, out=out, force=force, quiet=quiet) as runner:
        files = find_features(features, features_dir, runner.reporter, runner.ranks)
        if what in _FIGURES:
            _figure(_FIGURES[what], files, runner, tasks or 1_000, seed, out, as_json)
            return
        table = reproduce_table(what, files, runner, tasks=tasks or 10_000, seed=seed, weights=weights_dir)
        if not runner.ranks.leads:
            return
        if as_json:
            print(render_json(table), end="")
        else:
            stdout_console().print(render_rich(table))
        if out and write:
            write_text(out, write(table))
            runner.reporter.say(f"Wrote {out}.")


def _figure(
    number: int, files: Sequence[FeatureFile], runner: Runner, tasks: int, seed: int, out: Path | None, as_json: bool
) -> None:
    """The curves of a figure for every feature file."""
    refuse_one_figure_for_many(out, files)
    results = runner.results or Path("results")
    runner.ranks.agree(lambda: require_writable(results / SWEEPS))

    def curves_of(file: FeatureFile) -> Sweep:
        preset, name = "" if network_of(file) else "article", f"figure {number}"
        return run_sweep(figure(number, preset), file, runner, name=name, tasks=tasks, seed=seed, preset=preset)

    show_sweeps(map(curves_of, files), runner, results, out, as_json=as_json)
