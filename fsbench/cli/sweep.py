"""`fsbench sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsbench.cli import complete
from fsbench.cli.options import (
    OF_OUTPUT,
    Alpha,
    Batch,
    Device,
    FeaturesArgument,
    FeaturesRoot,
    Force,
    ProtocolName,
    Queries,
    Quiet,
    ResultsRoot,
    Seed,
    SetOption,
    Shots,
    Tasks,
    Unbalanced,
    Ways,
    find_features,
)
from fsbench.cli.parse import (
    axes,
    parameters,
    protocols,
    refuse_beside,
    refuse_common,
    refuse_doubles,
    refuse_same_methods,
    refuse_swept_and_given,
)

if TYPE_CHECKING:
    from fsbench.results.curves import Sweep

OF_CURVES = ("methods", "split", "unbalanced", "alpha", "shots", "ways", "queries", "protocol", "others")


def sweep(
    context: typer.Context,
    features: FeaturesArgument = None,
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
    unbalanced: Unbalanced = True,
    alpha: Alpha = None,
    shots: Shots = "1,5",
    ways: Ways = 5,
    queries: Queries = 75,
    tasks: Tasks = 1_000,
    seed: Seed = 0,
    protocol: ProtocolName = "disjoint",
    others: SetOption = None,
    plot: Annotated[Path | None, typer.Option(help="The picture: PNG, PDF or SVG.", rich_help_panel=OF_OUTPUT)] = None,
    device: Device = "auto",
    batch: Batch = None,
    force: Force = False,
    features_dir: FeaturesRoot = Path("features"),
    results_dir: ResultsRoot = Path("results"),
    quiet: Quiet = False,
) -> None:
    """See how accuracy depends on a parameter, as tables and a picture.

    The first --over runs along the curves, every further one adds curves. Every point is recorded, so only missing
    ones are computed.

    Example: [bold]fsbench sweep --over tau=0.1,0.2,0.3,0.5 --split val,novel[/bold]
    """
    if (figure is None) == (over is None):
        raise typer.BadParameter("give either --over NAME=VALUE,VALUE or --figure 3, 4 or 5", param_hint="--over")
    if figure is not None:
        refuse_beside(context, "--figure", OF_CURVES, "a figure has methods, splits and tasks of its own")
    settings, along = protocols(protocol, ways, shots, queries, unbalanced, alpha), axes(over)
    splits, options = [word.strip() for word in split.split(",")], parameters(others)
    swept = [axis.name for axis in along]
    refuse_swept_and_given(context, along, unbalanced)
    refuse_common(options, "--set", swept, "--over")
    refuse_doubles(splits, "--split")

    from fsbench.devices import choose_device
    from fsbench.evaluation.run import Machine
    from fsbench.evaluation.spec import parse_methods
    from fsbench.evaluation.sweep import figure as figure_plans
    from fsbench.evaluation.sweep import plan_sweep, run_sweep
    from fsbench.io.files import require_place, require_writable
    from fsbench.ranks import join_ranks
    from fsbench.report.plots.style import check_ending
    from fsbench.reporter import Reporter
    from fsbench.results.curves import SWEEPS

    if plot:
        check_ending(plot)
    if "shots" in swept:
        settings = settings[:1]  # its own number of shots does not matter
    contestants = parse_methods(methods)
    refuse_same_methods(contestants)
    for contestant in contestants:
        refuse_common(contestant.options, f"--methods {contestant.label}", options, "--set")
        refuse_common(contestant.options, f"--methods {contestant.label}", swept, "--over")
    with join_ranks() as ranks:
        if plot:
            ranks.agree(lambda: require_place(plot))
        ranks.agree(lambda: require_writable(results_dir / SWEEPS))
        reporter, machine = Reporter(quiet, not ranks.leads), Machine(choose_device(device), batch, ranks)
        for file in find_features(features, features_dir, reporter, ranks):
            if figure is None:
                plans = plan_sweep(contestants, along, splits, settings, options)
                name = f"{methods} over {', '.join(swept)}"
            else:
                plans, name = figure_plans(figure, file.provenance.dataset), f"figure {figure}"
            found = run_sweep(
                plans, file, machine, reporter, name=name, tasks=tasks, seed=seed, results=results_dir, force=force
            )
            if ranks.leads:
                show(found, results_dir, plot)


def show(found: Sweep, results: Path, plot: Path | None) -> None:
    """Store the curves and their picture, and print the tables."""
    from fsbench.report.plots.studies import draw_sweep
    from fsbench.report.plots.style import save
    from fsbench.report.tables import panel_table, stdout_console
    from fsbench.results.curves import SWEEPS, save_sweep

    stored = results / SWEEPS / f"{found.name}.json"
    picture = plot or stored.with_suffix(".png")
    save_sweep(stored, found)
    save(draw_sweep(found), picture)
    console = stdout_console()
    for panel in found.panels:
        console.print(panel_table(panel))
    console.print(found.signature, style="dim", markup=False, soft_wrap=True)
    console.print(f"Picture: {picture}. Points: {stored}.", soft_wrap=True)
