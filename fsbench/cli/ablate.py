"""`fsbench ablate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsbench.cli import complete
from fsbench.cli.compare import columns
from fsbench.cli.options import (
    OF_TASKS,
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
    Shots,
    SplitName,
    TableFile,
    TableFormat,
    Tasks,
    Ways,
    find_features,
    format_of,
)
from fsbench.cli.parse import level_of, numbers


def ablate(
    features: FeaturesArgument = None,
    settings: Annotated[
        str,
        typer.Option(help="unbalanced, balanced, or both.", rich_help_panel=OF_TASKS, autocompletion=complete.settings),
    ] = "unbalanced",
    alpha: Alpha = None,
    shots: Shots = "1,5",
    ways: Ways = 5,
    queries: Queries = 75,
    tasks: Tasks = 10_000,
    seed: Seed = 0,
    split: SplitName = "novel",
    protocol: ProtocolName = "disjoint",
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
    from fsbench.devices import choose_device
    from fsbench.evaluation.compare import Question
    from fsbench.evaluation.compare import compare as compare_files
    from fsbench.evaluation.run import Machine
    from fsbench.evaluation.spec import ABLATION
    from fsbench.io.files import require_place
    from fsbench.ranks import join_ranks
    from fsbench.report.render import Table
    from fsbench.reporter import Reporter
    from fsbench.tasks.protocol import TaskProtocol

    form = format_of(output, out)
    rules = TaskProtocol(protocol, ways, 1, queries, level_of(True, alpha))  # type: ignore[arg-type]
    question = Question(
        ABLATION, columns(settings, alpha, numbers(shots, "--shots")), ABLATION[0].label, rules, split, tasks,
        seed, results_dir, force,
    )  # fmt: skip
    with join_ranks() as ranks:
        if out:
            ranks.agree(lambda: require_place(out))
        reporter, machine = Reporter(quiet, not ranks.leads), Machine(choose_device(device), batch, ranks)
        files = find_features(features, features_dir, reporter, ranks)
        table = Table(compare_files(question, files, machine, reporter))
        if ranks.leads:
            table.show(form, out)
            if out:
                reporter.say(f"Wrote {out}.")
