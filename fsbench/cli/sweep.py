"""`fsbench sweep`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsbench.cli import complete
from fsbench.cli import options as use
from fsbench.cli.parse import axes, parameters, refuse_common, refuse_swept_and_given, setting_of, typed
from fsbench.cli.session import find_features, open_runner
from fsbench.errors import UsageError
from fsbench.evaluation.spec import parse_methods, parse_protocols, parse_words, refuse_same_methods, with_prior
from fsbench.evaluation.sweep import figure as figure_plans
from fsbench.evaluation.sweep import plan_sweep, run_sweep
from fsbench.io.files import require_writable
from fsbench.report.plots.studies import draw_sweep
from fsbench.report.plots.style import check_ending, save
from fsbench.report.tables import Signature, panel_table, stdout_console
from fsbench.results.curves import SWEEPS, save_sweep

if TYPE_CHECKING:
    from fsbench.results.curves import Sweep

_FIXED_BY_FIGURES = (
    "methods",
    "split",
    "unbalanced",
    "alpha",
    "shots",
    "ways",
    "queries",
    "protocol",
    "others",
    "prior_alpha",
)


def sweep(
    context: typer.Context,
    features: use.FeaturesArgument = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over", metavar="NAME=VALUE,…", help="A parameter of the method, or shots, queries, ways, alpha."
        ),
    ] = None,
    figure: Annotated[int | None, typer.Option(help="The curves of the article's figure 3, 4 or 5.")] = None,
    methods: Annotated[
        str, typer.Option(help="Names separated by commas.", autocompletion=complete.methods)
    ] = "bavardage",
    split: Annotated[
        str, typer.Option(help="Splits separated by commas: val, novel, base.", autocompletion=complete.splits)
    ] = "novel",
    unbalanced: use.Unbalanced = True,
    alpha: use.Alpha = None,
    shots: use.Shots = "1,5",
    ways: use.Ways = None,
    queries: use.Queries = 75,
    tasks: use.Tasks = 1_000,
    seed: use.Seed = 0,
    protocol: use.ProtocolName = "disjoint",
    preset: use.Preset = "",
    prior_alpha: use.PriorAlpha = None,
    others: use.SetOption = None,
    plot: Annotated[
        Path | None, use.of_output("--out", "--plot", metavar="FILE", help="Figure file: PNG, PDF or SVG.")
    ] = None,
    as_json: use.AsJson = False,
    device: use.Device = "auto",
    batch: use.Batch = None,
    force: use.Force = False,
    features_dir: use.FeaturesRoot = Path("features"),
    results_dir: use.ResultsRoot = Path("results"),
    quiet: use.Quiet = False,
) -> None:
    """Show how accuracy depends on a parameter, as tables and a figure.

    The first --over runs along the curves, every further one adds curves. Every point is recorded and reused.

    Example: [bold]fsbench sweep --over tau=0.1,0.2,0.3,0.5 --split val,novel[/bold]
    """
    if (figure is None) == (over is None):
        raise UsageError("over", "give either --over NAME=VALUE,VALUE or --figure 3, 4 or 5")
    if figure is not None and (idle := typed(context, _FIXED_BY_FIGURES)):
        raise UsageError("figure", f"a figure has methods, splits and tasks of its own; leave out {', '.join(idle)}")
    if plot:
        check_ending(plot)
    along, options, splits = axes(over), parameters(others), parse_words(split, "split")
    swept = [axis.name for axis in along]
    refuse_swept_and_given(context, swept, unbalanced)
    refuse_common(options, "--set", swept, "over")
    protocols = parse_protocols(
        settings=setting_of(unbalanced), alpha=alpha, shots=shots, ways=ways, queries=queries, protocol=protocol
    )
    if "shots" in swept:
        protocols = protocols[:1]  # its own number of shots does not matter
    choices = with_prior(parse_methods(methods), prior_alpha)
    refuse_same_methods(choices)
    for choice in choices:
        refuse_common(choice.options, f"--methods {choice.label}", options, "set")
        refuse_common(choice.options, f"--methods {choice.label}", swept, "over")
    with open_runner(device, batch, results_dir, out=plot, force=force, quiet=quiet) as runner:
        runner.ranks.agree(lambda: require_writable(results_dir / SWEEPS))
        for file in find_features(features, features_dir, runner.reporter, runner.ranks):
            if figure is None:
                plans = plan_sweep(choices, along, splits, protocols, options)
                name = f"{methods} over {', '.join(swept)}"
            else:
                plans, name = figure_plans(figure, preset), f"figure {figure}"
            curves = run_sweep(plans, file, runner, name=name, tasks=tasks, seed=seed, preset=preset)
            if runner.ranks.leads:
                show_sweep(curves, results_dir, plot, as_json=as_json)


def show_sweep(curves: Sweep, results: Path, plot: Path | None, *, as_json: bool = False) -> None:
    """Store the curves and their figure, and print the tables, or the curves as JSON."""
    stored = results / SWEEPS / f"{curves.name}.json"
    drawn = plot or stored.with_suffix(".png")
    save_sweep(stored, curves)
    save(draw_sweep(curves), drawn)
    if as_json:
        print(json.dumps(asdict(curves), indent=1))
        return
    console = stdout_console()
    for panel in curves.panels:
        console.print(panel_table(panel))
    console.print(Signature(curves.signature), crop=False)
    console.print(f"Figure: {drawn}. Points: {stored}.", soft_wrap=True)
