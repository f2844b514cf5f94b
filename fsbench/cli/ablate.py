"""`fsbench ablate`."""

from __future__ import annotations

from pathlib import Path

from fsbench.cli.options import (
    Alpha,
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
    Ways,
)
from fsbench.cli.session import find_features, format_of, open_runner, show_table
from fsbench.evaluation.compare import compare
from fsbench.evaluation.spec import ABLATION, Spec, parse_protocols


def ablate(
    features: FeaturesArgument = None,
    settings: Settings = "unbalanced",
    alpha: Alpha = None,
    shots: Shots = "1,5",
    ways: Ways = 5,
    queries: Queries = 75,
    tasks: Tasks = 10_000,
    seed: Seed = 0,
    split: SplitName = "novel",
    protocol: ProtocolName = "disjoint",
    preset: Preset = "",
    output: TableFormat = None,
    out: TableFile = None,
    device: Device = "auto",
    batch: Batch = None,
    force: Force = False,
    features_dir: FeaturesRoot = Path("features"),
    results_dir: ResultsRoot = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Show what each element of BAVARDAGE adds: the article's Table 2.

    Soft-KMEANS, + VB, + PLDA, for both variants, all on the same tasks.

    Example: [bold]fsbench ablate --tasks 1000[/bold]
    """
    form = format_of(output, out)
    protocols = parse_protocols(
        settings=settings, alpha=alpha, shots=shots, ways=ways, queries=queries, protocol=protocol
    )
    spec = Spec(
        methods=ABLATION, baseline=ABLATION[0].label, protocols=protocols, split=split, tasks=tasks, seed=seed,
        preset=preset,
    )  # fmt: skip
    with open_runner(device, batch, results_dir, out=out, force=force, quiet=quiet) as runner:
        files = find_features(features, features_dir, runner.reporter, runner.ranks)
        show_table(compare(spec, files, runner), form, out, runner)
