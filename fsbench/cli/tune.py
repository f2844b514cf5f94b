"""`fsbench tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsbench.cli import complete
from fsbench.cli.options import (
    OF_METHOD,
    OF_OUTPUT,
    Alpha,
    Batch,
    Device,
    FeaturesArgument,
    FeaturesRoot,
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
from fsbench.cli.parse import axes, parameters, protocols, refuse_common

if TYPE_CHECKING:
    from fsbench.evaluation.tuning import Tuned


def tune(
    features: FeaturesArgument = None,
    method: Annotated[
        str,
        typer.Option(
            help="NAME, NAME:VARIANT or file.py:CLASS.", rich_help_panel=OF_METHOD, autocompletion=complete.methods
        ),
    ] = "bavardage",
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            metavar="NAME=VALUE,…",
            rich_help_panel=OF_METHOD,
            help="What to search. (default: the method's own grid)",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Guesses of optuna between the ends of the grid. (default: the whole grid)",
            rich_help_panel=OF_METHOD,
        ),
    ] = None,
    others: SetOption = None,
    unbalanced: Unbalanced = True,
    alpha: Alpha = None,
    shots: Shots = "1,5",
    ways: Ways = 5,
    queries: Queries = 75,
    tasks: Tasks = 500,
    seed: Seed = 0,
    protocol: ProtocolName = "disjoint",
    plot: Annotated[
        Path | None,
        typer.Option(help="A picture of what was searched, per setting: PNG, PDF or SVG.", rich_help_panel=OF_OUTPUT),
    ] = None,
    device: Device = "auto",
    batch: Batch = None,
    features_dir: FeaturesRoot = Path("features"),
    results_dir: ResultsRoot = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Choose parameters on the val classes, never on novel ones.

    What was found is kept beside the feature file, and `solve --tune` and `compare --tune` use it. A broken search goes
    on where it was.

    Example: [bold]fsbench tune --method bavardage --shots 1[/bold]
    """
    settings, along, fixed = (
        protocols(protocol, ways, shots, queries, unbalanced, alpha),
        axes(over),
        parameters(others),
    )
    swept = [axis.name for axis in along]
    refuse_common(fixed, "--set", swept, "--over")

    from fsbench.devices import choose_device
    from fsbench.evaluation.run import Machine
    from fsbench.evaluation.source import base_of
    from fsbench.evaluation.tuning import Search, grid_of
    from fsbench.evaluation.tuning import tune as search_parameters
    from fsbench.io.files import require_writable
    from fsbench.methods.registry import split_variant
    from fsbench.ranks import join_ranks
    from fsbench.report.plots.studies import draw_surface
    from fsbench.report.plots.style import check_ending, save
    from fsbench.reporter import Reporter

    if plot:
        check_ending(plot)
    name, variant = split_variant(method)
    refuse_common(variant, f"--method {method}", fixed, "--set")
    refuse_common(variant, f"--method {method}", swept, "--over")
    fixed = {**variant, **fixed}
    with join_ranks() as ranks:
        if plot:
            ranks.agree(lambda: require_writable(plot.parent))
        reporter, machine = Reporter(quiet, not ranks.leads), Machine(choose_device(device), batch, ranks)
        for file in find_features(features, features_dir, reporter, ranks):
            base = base_of(file, reporter, ranks)
            for setting in settings:
                search = Search.on(file, base, name, fixed, setting)
                label = f"{file.provenance.dataset} {setting.shots}-shot tuning {method} on val"
                with reporter.bar(label, 0) as advance:
                    found = search_parameters(
                        search, along or grid_of(name, fixed), machine, trials=trials, tasks=tasks, seed=seed,
                        results=results_dir, progress=lambda done, total: advance(1, total), warn=reporter.warn,
                    )  # fmt: skip
                if ranks.leads:
                    show(found, search.memory if search.remembered() == found else None)
                    if plot:
                        words = f"{plot.stem}-{file.path.stem}-{setting.setting}-{setting.shots}shot"
                        save(draw_surface(found), plot.with_stem(words))
                        reporter.say(f"Picture: {plot.with_stem(words)}.")


def show(found: Tuned, memory: Path | None) -> None:
    """Print what was searched and found, and where it is kept, if it is."""
    from fsbench.report.tables import stdout_console, surface_tables

    console = stdout_console()
    for table in surface_tables(found):
        console.print(table)
    kept = f" Kept in {memory} for --tune." if memory else ""
    console.print(f"{found.describe()}.{kept}", soft_wrap=True)
