"""`fsbench reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsbench.cli.options import Reproduce
from fsbench.cli.session import find_features, open_runner
from fsbench.cli.sweep import show_sweeps
from fsbench.errors import unknown_name
from fsbench.evaluation.reproduce import TABLES
from fsbench.evaluation.reproduce import reproduce as reproduce_table
from fsbench.evaluation.run import Runner
from fsbench.evaluation.source import network_of
from fsbench.evaluation.sweep import FIGURES, run_sweep
from fsbench.features.store import FeatureFile
from fsbench.io.files import write_text
from fsbench.report.plots.style import check_ending
from fsbench.report.tables import reproduced_json, reproduced_tables, writer_for
from fsbench.report.writers import show
from fsbench.results.studies import Sweep

_FIGURES = {f"figure{number}": number for number in FIGURES}


def reproduce(options: Reproduce) -> None:
    """Run what a table or figure of the article needs, and show it next to the article's numbers."""
    what, out = options.what, options.out
    if what not in (*TABLES, *_FIGURES):
        raise unknown_name("table or figure", what, (*TABLES, *_FIGURES))
    write = writer_for(out) if out and what in TABLES else None
    if out and what in _FIGURES:
        check_ending(out)
    with open_runner(options) as runner:
        files = find_features(options, runner.reporter, runner.ranks)
        if what in _FIGURES:
            _figure(_FIGURES[what], files, runner, options)
            return
        tasks, weights = options.tasks or 10_000, options.weights_dir
        table = reproduce_table(what, files, runner, tasks=tasks, seed=options.seed, weights=weights)
        if not runner.ranks.leads:
            return
        if options.as_json:
            print(reproduced_json(table, options.metrics), end="")
        else:
            show(*reproduced_tables(table, options.metrics))
        if out and write:
            write_text(out, write(table, options.metrics))
            runner.reporter.say(f"Wrote {out}.")


def _figure(number: int, files: Sequence[FeatureFile], runner: Runner, options: Reproduce) -> None:
    """The curves of a figure for every feature file."""

    def curves_of(file: FeatureFile) -> Sweep:
        preset, tasks = "" if network_of(file) else "article", options.tasks or 1_000
        rules: dict[str, Any] = {"tasks": tasks, "seed": options.seed, "preset": preset}
        return run_sweep(FIGURES[number](preset), file, runner, name=f"figure {number}", **rules)

    show_sweeps(curves_of, files, runner, options)
