"""`fsbench tune`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fsbench.cli import complete
from fsbench.cli import options as use
from fsbench.cli.parse import axes, parameters, refuse_common, setting_of
from fsbench.cli.session import find_features, open_runner
from fsbench.errors import UsageError
from fsbench.evaluation.source import base_of
from fsbench.evaluation.spec import parse_methods, parse_protocols, with_prior
from fsbench.evaluation.tuning import Search, grid_of, validation_source
from fsbench.evaluation.tuning import tune as search_parameters
from fsbench.io.files import require_writable
from fsbench.methods.registry import method_class
from fsbench.report.plots.studies import draw_surface
from fsbench.report.plots.style import check_ending, save
from fsbench.report.tables import stdout_console, surface_tables
from fsbench.results.tuned import tuning_path

if TYPE_CHECKING:
    from fsbench.evaluation.run import Runner
    from fsbench.evaluation.source import Source
    from fsbench.features.store import FeatureFile
    from fsbench.results.tuned import Tuned


def tune(
    features: use.FeaturesArgument = None,
    method: Annotated[
        str, use.of_method(help="NAME, NAME:VARIANT or file.py:CLASS.", autocompletion=complete.methods)
    ] = "bavardage",
    over: Annotated[
        list[str] | None,
        use.of_method(
            "--over", metavar="NAME=VALUE,…", help="Parameters and values to search. (default: the method's own grid)"
        ),
    ] = None,
    trials: Annotated[
        int | None,
        use.of_method(min=1, help="Number of Optuna trials within the grid's range. (default: the whole grid)"),
    ] = None,
    prior_alpha: use.PriorAlpha = None,
    others: use.SetOption = None,
    unbalanced: use.Unbalanced = True,
    alpha: use.Alpha = None,
    shots: use.Shots = "1,5",
    ways: use.Ways = None,
    queries: use.Queries = 75,
    tasks: use.Tasks = 500,
    seed: use.Seed = 0,
    protocol: use.ProtocolName = "disjoint",
    present: use.Present = None,
    plot: Annotated[
        Path | None,
        use.of_output("--out", "--plot", metavar="FILE", help="Figure of the surface, per setting: PNG, PDF or SVG."),
    ] = None,
    as_json: use.AsJson = False,
    device: use.Device = "auto",
    batch: use.Batch = None,
    features_dir: use.FeaturesRoot = Path("features"),
    results_dir: use.ResultsRoot = Path("results"),
    quiet: use.Quiet = False,
) -> None:
    """Tune parameters on the val classes, never on novel ones.

    By a grid, by Optuna (--trials), or by gradient where a method learns its parameters (unem-gaussian). The result is
    stored next to the feature file, and `solve --tune` and `compare --tune` use it. Run the same command again to
    resume an interrupted search.

    Example: [bold]fsbench tune --method bavardage --shots 1[/bold]
    """
    if plot:
        check_ending(plot)
    along, fixed = axes(over), parameters(others)
    swept = [axis.name for axis in along]
    refuse_common(fixed, "--set", swept, "over")
    protocols = parse_protocols(
        settings=setting_of(unbalanced),
        alpha=alpha,
        shots=shots,
        ways=ways,
        queries=queries,
        protocol=protocol,
        present=present,
    )
    (choice,) = with_prior(parse_methods([method]), prior_alpha)
    refuse_common(choice.options, f"--method {method}", fixed, "set")
    refuse_common(choice.options, f"--method {method}", swept, "over")
    fixed = {**choice.options, **fixed}
    grid = along or grid_of(choice.method, fixed)
    if plot and not grid:
        raise UsageError("out", f"{choice.method} learns its parameters by gradient, so there is no surface to draw")
    with open_runner(device, batch, results_dir, quiet=quiet) as runner:
        if plot:
            runner.ranks.agree(lambda: require_writable(plot.parent))
        found: list[Tuned] = []
        for file in find_features(features, features_dir, runner.reporter, runner.ranks):
            val = _val_source(file, method_class(choice.method).info.network_for(fixed), runner)
            for setting in protocols:
                search = Search(choice.method, fixed, val, setting, tuning_path(file.path))
                tuned = search_parameters(search, grid, runner, trials=trials, tasks=tasks, seed=seed)
                if runner.ranks.leads:
                    found.append(tuned)
                if runner.ranks.leads and not as_json:
                    _show(tuned, search.memory if search.remembered() == tuned else None)
                if runner.ranks.leads and plot:
                    figure = plot.with_stem(f"{plot.stem}-{file.path.stem}-{setting.setting}-{setting.shots}shot")
                    save(draw_surface(tuned, file.path.stem), figure)
                    runner.reporter.say(f"Figure: {figure}.")
        if runner.ranks.leads and as_json:
            print(json.dumps([asdict(tuned) | {"params": tuned.params} for tuned in found], indent=1))


def _val_source(file: FeatureFile, network: str, runner: Runner) -> Source:
    """The val classes of a feature file; their images, for a method on these."""
    val = validation_source(file, base_of(file, runner.reporter, runner.ranks))
    return runner.images.source_for(network, val, file, runner) if network else val


def _show(tuned: Tuned, memory: Path | None) -> None:
    """Print the searched grid, the outcome, and where it is kept, if it is."""
    console = stdout_console()
    for table in surface_tables(tuned):
        console.print(table)
    kept = f" Kept in {memory} for --tune." if memory else ""
    console.print(f"{tuned.describe()}.{kept}", soft_wrap=True)
