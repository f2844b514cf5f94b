"""`fsbench sweep`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    from collections.abc import Iterable, Sequence

    from fsbench.evaluation.run import Runner
    from fsbench.evaluation.sweep import Plan
    from fsbench.features.store import FeatureFile
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
    plans, name = plans_of(context)
    if plot:
        check_ending(plot)
    with open_runner(device, batch, results_dir, out=plot, force=force, quiet=quiet) as runner:
        runner.ranks.agree(lambda: require_writable(results_dir / SWEEPS))
        files = find_features(features, features_dir, runner.reporter, runner.ranks)
        refuse_one_figure_for_many(plot, files)
        sweeps = (run_sweep(plans, file, runner, name=name, tasks=tasks, seed=seed, preset=preset) for file in files)
        show_sweeps(sweeps, runner, results_dir, plot, as_json=as_json)


def plans_of(context: typer.Context) -> tuple[list[Plan], str]:
    """What a command line asks for: the panels to measure, and their name."""
    said = context.params
    over, figure, methods = said["over"], said["figure"], said["methods"]
    if (figure is None) == (not over):
        raise UsageError("over", "give either --over NAME=VALUE,VALUE or --figure 3, 4 or 5")
    if figure is not None:
        if idle := typed(context, _FIXED_BY_FIGURES):
            message = f"a figure has methods, splits and tasks of its own; leave out {', '.join(idle)}"
            raise UsageError("figure", message)
        return figure_plans(figure, said["preset"]), f"figure {figure}"
    along, options, splits = axes(over), parameters(said["others"]), parse_words(said["split"], "split")
    swept = [axis.name for axis in along]
    refuse_swept_and_given(context, swept, said["unbalanced"])
    refuse_common(options, "--set", swept, "over")
    rules: dict[str, Any] = {name: said[name] for name in ("alpha", "shots", "ways", "queries", "protocol")}
    protocols = parse_protocols(settings=setting_of(said["unbalanced"]), **rules)
    if "shots" in swept:
        protocols = protocols[:1]  # its own number of shots does not matter
    choices = with_prior(parse_methods(methods), said["prior_alpha"])
    refuse_same_methods(choices)
    for choice in choices:
        refuse_common(choice.options, f"--methods {choice.label}", options, "set")
        refuse_common(choice.options, f"--methods {choice.label}", swept, "over")
    return plan_sweep(choices, along, splits, protocols, options), f"{methods} over {', '.join(swept)}"


def refuse_one_figure_for_many(plot: Path | None, files: Sequence[FeatureFile]) -> None:
    """Refuse a name for the figure of several feature files, of which only the last would remain."""
    if plot and len(files) > 1:
        raise UsageError("out", "one figure is drawn per feature file; give one file, or leave out --out")


def show_sweeps(sweeps: Iterable[Sweep], runner: Runner, results: Path, plot: Path | None, *, as_json: bool) -> None:
    """Store curves and their figures, and print the tables, each as soon as it is there; or all curves as JSON."""
    shown = []
    for curves in sweeps:
        if runner.ranks.leads:
            stored = results / SWEEPS / f"{curves.name}.json"
            drawn = plot or stored.with_suffix(".png")
            save_sweep(stored, curves)
            save(draw_sweep(curves), drawn)
            shown.append(asdict(curves))
        if runner.ranks.leads and not as_json:
            console = stdout_console()
            for panel in curves.panels:
                console.print(panel_table(panel))
            console.print(Signature(curves.signature), crop=False)
            console.print(f"Figure: {drawn}. Points: {stored}.", soft_wrap=True)
    if runner.ranks.leads and as_json:
        print(json.dumps(shown, indent=1))
