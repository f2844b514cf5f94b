"""`fsbench sweep`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from fsbench.cli.options import Sweep as Options
from fsbench.cli.session import find_features, open_runner
from fsbench.errors import UsageError
from fsbench.evaluation.run import Runner
from fsbench.evaluation.spec import OF_PROTOCOL, Axis, protocols_of, varied_methods
from fsbench.evaluation.sweep import Plan, plan_sweep, run_sweep
from fsbench.features.store import FeatureFile
from fsbench.io.files import require_writable
from fsbench.report.plots.studies import draw_sweep
from fsbench.report.plots.style import check_ending, save
from fsbench.report.tables import sweep_tables
from fsbench.report.writers import show, stdout_console
from fsbench.results.studies import SWEEPS, Sweep, save_sweep


def sweep(options: Options) -> None:
    """Measure the curves for every feature file, then print, draw and store them."""
    plans, name = _plans(options), f"{','.join(options.methods)} over {', '.join(options.over)}"
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
            show(*sweep_tables(curves))
            stdout_console().print(f"Figure: {drawn}. Points: {stored}.", soft_wrap=True)
    if runner.ranks.leads and options.as_json:
        print(json.dumps(shown, indent=1))
