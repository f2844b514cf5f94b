"""`fsbench solve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fsbench.cli.options import (
    OF_METHOD,
    OF_OUTPUT,
    Alpha,
    AsJson,
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
    SplitName,
    Tasks,
    Unbalanced,
    Ways,
    find_features,
)
from fsbench.cli.parse import given, parameters, protocols


def solve(
    features: FeaturesArgument = None,
    method: Annotated[
        str, typer.Option(help="bavardage, soft-kmeans, pt-map, … or file.py:CLASS.", rich_help_panel=OF_METHOD)
    ] = "bavardage",
    variant: Annotated[
        str | None, typer.Option(help="Of BAVARDAGE: article or released.", rich_help_panel=OF_METHOD)
    ] = None,
    unbalanced: Unbalanced = True,
    alpha: Alpha = None,
    shots: Shots = "1,5",
    ways: Ways = 5,
    queries: Queries = 75,
    tasks: Tasks = 10_000,
    seed: Seed = 0,
    split: SplitName = "novel",
    protocol: ProtocolName = "disjoint",
    device: Device = "auto",
    batch: Batch = None,
    t_km: Annotated[float | None, typer.Option(help="Temperature of Soft-KMEANS.", rich_help_panel=OF_METHOD)] = None,
    t_vb: Annotated[
        float | None, typer.Option(help="Precision, in the article's units.", rich_help_panel=OF_METHOD)
    ] = None,
    s_max: Annotated[
        float | None, typer.Option(help="Largest scaling, in the article's units.", rich_help_panel=OF_METHOD)
    ] = None,
    tau: Annotated[
        str | None, typer.Option(help="Scale-free precision, or `learned`.", rich_help_panel=OF_METHOD)
    ] = None,
    sigma: Annotated[float | None, typer.Option(help="Scale-free largest scaling.", rich_help_panel=OF_METHOD)] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Use parameters chosen on the val classes.", rich_help_panel=OF_METHOD)
    ] = False,
    beta: Annotated[float | None, typer.Option(help="β_o. (default: 10)", rich_help_panel=OF_METHOD)] = None,
    prior_alpha: Annotated[
        float | None, typer.Option(help="α_o. (default: that of --alpha)", rich_help_panel=OF_METHOD)
    ] = None,
    mixing: Annotated[
        str | None, typer.Option(help="learned or uniform. (default: by setting)", rich_help_panel=OF_METHOD)
    ] = None,
    stage: Annotated[str | None, typer.Option(help="plda, or vb for the ablation.", rich_help_panel=OF_METHOD)] = None,
    steps: Annotated[
        int | None, typer.Option(help="Iterations of the method. (default: its own)", rich_help_panel=OF_METHOD)
    ] = None,
    others: SetOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write the rows to this JSON file.", rich_help_panel=OF_OUTPUT)
    ] = None,
    force: Force = False,
    features_dir: FeaturesRoot = Path("features"),
    results_dir: ResultsRoot = Path("results"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run one method over sampled tasks, with Soft-KMEANS on the same tasks beside it.

    Example: [bold]fsbench solve --unbalanced --alpha 2[/bold]
    """
    settings = protocols(protocol, ways, shots, queries, unbalanced, alpha)
    options = given(
        variant=variant, t_km=t_km, t_vb=t_vb, s_max=s_max, tau=precision(tau), sigma=sigma, beta=beta,
        prior_alpha=prior_alpha, mixing=mixing, stage=stage, steps=steps, **parameters(others),
    )  # fmt: skip

    from fsbench.devices import choose_device
    from fsbench.evaluate.run import Machine
    from fsbench.evaluate.solve import Request
    from fsbench.evaluate.solve import solve as solve_file
    from fsbench.report.progress import Reporter

    request = Request(method, options, split, tasks, seed, tune, results_dir, force)
    reporter, machine = Reporter(quiet), Machine(choose_device(device), batch)
    rows = []
    for file in find_features(features, features_dir, reporter):
        rows += solve_file(request, file, settings, machine, reporter)
    show(rows, out, as_json, reporter)


def precision(text: str | None) -> float | str | None:
    """τ as a number, or the word `learned`."""
    if text is None or text == "learned":
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number or `learned`, got {text!r}", param_hint="--tau") from None


def show(rows: list[Any], out: Path | None, as_json: bool, reporter: Any) -> None:
    """Print the table or the JSON list, then signatures and warnings."""
    import json

    from fsbench.files import write_text
    from fsbench.report.tables import solved_table, stdout_console

    text = json.dumps([solved.row() for solved in rows], indent=1)
    if out:
        write_text(out, text + "\n")
    if as_json:
        print(text)
    else:
        console = stdout_console()
        console.print(solved_table(rows))
        for solved in rows:
            console.print(solved.record.signature, style="dim", markup=False, soft_wrap=True)
    for solved in rows:
        if warning := solved.warning():
            reporter.warn(warning)
