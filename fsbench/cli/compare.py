"""`fsbench compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsbench.cli import complete
from fsbench.cli.options import (
    OF_OUTPUT,
    Alpha,
    BaseFile,
    Batch,
    Device,
    FeaturesArgument,
    FeaturesRoot,
    Force,
    Preset,
    ProtocolName,
    Queries,
    Quiet,
    ResultsRoot,
    Seed,
    Settings,
    Shots,
    SplitName,
    TableFile,
    TableFormat,
    Tasks,
    Tune,
    Ways,
)
from fsbench.cli.session import find_base, find_features, format_of, open_runner, show_table
from fsbench.evaluation.compare import compare as compare_files
from fsbench.evaluation.spec import Spec


def compare(
    features: FeaturesArgument = None,
    methods: Annotated[
        str,
        typer.Option(
            help="Names separated by commas, NAME:VARIANT, file.py:CLASS, or all.", autocompletion=complete.methods
        ),
    ] = "soft-kmeans,bavardage,bavardage:released",
    shots: Shots = "1,5",
    settings: Settings = "unbalanced,balanced",
    alpha: Alpha = None,
    ways: Ways = 5,
    queries: Queries = 75,
    tasks: Tasks = 10_000,
    seed: Seed = 0,
    split: SplitName = "novel",
    protocol: ProtocolName = "disjoint",
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Method that others are compared to. (default: soft-kmeans; without base classes simpleshot:L2N)",
            autocompletion=complete.methods,
        ),
    ] = None,
    base: BaseFile = None,
    tune: Tune = False,
    preset: Preset = "",
    published: Annotated[
        bool, typer.Option("--published/--no-published", help="Show published numbers.", rich_help_panel=OF_OUTPUT)
    ] = True,
    over_data: Annotated[
        bool, typer.Option("--over-data", help="Add intervals over the data.", rich_help_panel=OF_OUTPUT)
    ] = False,
    timing: Annotated[
        bool, typer.Option("--timing", help="Add tasks per second and peak memory.", rich_help_panel=OF_OUTPUT)
    ] = False,
    output: TableFormat = None,
    out: TableFile = None,
    device: Device = "auto",
    batch: Batch = None,
    force: Force = False,
    features_dir: FeaturesRoot = Path("features"),
    results_dir: ResultsRoot = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Compare methods on the same tasks, with paired statistics.

    Shows accuracy with its interval, the paired difference to a baseline, and the published numbers that match data
    set, backbone and setting. The best of a column and all that is not significantly worse are marked. Results are
    recorded in results/ and reused.

    Example: [bold]fsbench compare --methods all --out table.tex[/bold]
    """
    form = format_of(output, out)
    spec = Spec.from_words(
        methods=methods, baseline=baseline, shots=shots, settings=settings, alpha=alpha, ways=ways, queries=queries,
        protocol=protocol, split=split, tasks=tasks, seed=seed, tune=tune, preset=preset, published=published,
        over_data=over_data,
    )  # fmt: skip
    other = find_base(base)
    with open_runner(device, batch, results_dir, out=out, force=force, quiet=quiet) as runner:
        files = find_features(features, features_dir, runner.reporter, runner.ranks)
        show_table(compare_files(spec, files, runner, other), form, out, runner, timing=timing)
