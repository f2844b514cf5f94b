"""`fsbench solve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fsbench.cli import complete
from fsbench.cli.options import (
    OF_METHOD,
    OF_OUTPUT,
    Alpha,
    ArticleClamp,
    ArticlePrecision,
    AsJson,
    BaseFile,
    Batch,
    Clamp,
    Device,
    FeaturesArgument,
    FeaturesRoot,
    Force,
    Precision,
    ProtocolName,
    Queries,
    Quiet,
    ResultsRoot,
    Seed,
    SetOption,
    Shots,
    SplitName,
    Steps,
    Tasks,
    Temperature,
    Unbalanced,
    Variant,
    Ways,
    find_base,
    find_features,
)
from fsbench.cli.parse import given, parameters, precision, protocols, refuse_common, together


def solve(
    features: FeaturesArgument = None,
    method: Annotated[
        str,
        typer.Option(
            help="bavardage, bavardage:released, soft-kmeans, … or file.py:CLASS.",
            rich_help_panel=OF_METHOD,
            autocompletion=complete.methods,
        ),
    ] = "bavardage",
    variant: Variant = None,
    unbalanced: Unbalanced = True,
    alpha: Alpha = None,
    shots: Shots = "1,5",
    ways: Ways = 5,
    queries: Queries = 75,
    tasks: Tasks = 10_000,
    seed: Seed = 0,
    split: SplitName = "novel",
    protocol: ProtocolName = "disjoint",
    base: BaseFile = None,
    device: Device = "auto",
    batch: Batch = None,
    t_km: Temperature = None,
    t_vb: ArticlePrecision = None,
    s_max: ArticleClamp = None,
    tau: Precision = None,
    sigma: Clamp = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Use parameters chosen on the val classes.", rich_help_panel=OF_METHOD)
    ] = False,
    beta: Annotated[float | None, typer.Option(help="β_o. (default: 10)", rich_help_panel=OF_METHOD)] = None,
    prior_alpha: Annotated[
        float | None, typer.Option(help="α_o. (default: that of --alpha)", rich_help_panel=OF_METHOD)
    ] = None,
    mixing: Annotated[
        str | None,
        typer.Option(
            help="learned or uniform. (default: by setting)",
            rich_help_panel=OF_METHOD,
            autocompletion=complete.words("learned", "uniform"),
        ),
    ] = None,
    stage: Annotated[
        str | None,
        typer.Option(
            help="plda, or vb for the ablation.", rich_help_panel=OF_METHOD, autocompletion=complete.words("plda", "vb")
        ),
    ] = None,
    steps: Steps = None,
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
    """Run one method over sampled tasks, with Soft-KMEANS beside it.

    Every run is recorded task by task in results/, and not repeated. BAVARDAGE takes the article's parameters for the
    article's data sets, and scale-free ones for all others: τ = T_vb/n̄ and σ = s_max·√n̄, with n̄ images per base class.

    Example: [bold]fsbench solve --unbalanced --alpha 2[/bold]
    """
    settings = protocols(protocol, ways, shots, queries, unbalanced, alpha)
    named = given(
        variant=variant, t_km=t_km, t_vb=t_vb, s_max=s_max, tau=precision(tau), sigma=sigma, beta=beta,
        prior_alpha=prior_alpha, mixing=mixing, stage=stage, steps=steps,
    )  # fmt: skip
    options = together(named, parameters(others))

    from fsbench.devices import choose_device
    from fsbench.evaluation.run import Machine
    from fsbench.evaluation.solve import Request
    from fsbench.evaluation.solve import solve as solve_file
    from fsbench.io.files import require_place
    from fsbench.methods.registry import split_variant
    from fsbench.ranks import join_ranks
    from fsbench.reporter import Reporter

    name, word = split_variant(method)
    refuse_common(word, f"--method {method}", options, "--variant or --set")
    request = Request(name, {**word, **options}, split, tasks, seed, tune, results_dir, force, find_base(base))
    with join_ranks() as ranks:
        if out:
            ranks.agree(lambda: require_place(out))
        reporter, machine = Reporter(quiet, not ranks.leads), Machine(choose_device(device), batch, ranks)
        rows = []
        for file in find_features(features, features_dir, reporter, ranks):
            rows += solve_file(request, file, settings, machine, reporter)
        if ranks.leads:
            show(rows, out, as_json, reporter)


def show(rows: list[Any], out: Path | None, as_json: bool, reporter: Any) -> None:
    """Print the table or the JSON list, then signatures and warnings."""
    import json

    from fsbench.io.files import write_text
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
