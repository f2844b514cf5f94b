"""`fsbench compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsbench.cli import complete
from fsbench.cli.options import (
    OF_OUTPUT,
    OF_TASKS,
    Alpha,
    BaseFile,
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
    find_base,
    find_features,
    format_of,
)
from fsbench.cli.parse import level_of, numbers, refuse_doubles, refuse_same_methods

if TYPE_CHECKING:
    from fsbench.results.comparison import Column


def compare(
    features: FeaturesArgument = None,
    methods: Annotated[
        str,
        typer.Option(
            help="Names separated by commas, NAME:VARIANT, file.py:CLASS, or all.", autocompletion=complete.methods
        ),
    ] = "soft-kmeans,bavardage,bavardage:released",
    shots: Shots = "1,5",
    settings: Annotated[
        str,
        typer.Option(help="unbalanced, balanced, or both.", rich_help_panel=OF_TASKS, autocompletion=complete.settings),
    ] = "unbalanced,balanced",
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
            help="What others are compared to. (default: soft-kmeans; without base classes simpleshot:L2N)",
            autocompletion=complete.methods,
        ),
    ] = None,
    base: BaseFile = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Use parameters chosen on the val classes, where a method has some.")
    ] = False,
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
    """Put methods side by side: same tasks, paired statistics.

    Accuracy with its interval, the paired difference to a baseline (Holm-corrected over the table), and the published
    numbers that match data set, backbone and setting. The best of a column and all that is not significantly worse
    are marked. Runs that are recorded in results/ are not repeated.

    Example: [bold]fsbench compare --methods all --out table.tex[/bold]
    """
    from fsbench.devices import choose_device
    from fsbench.evaluation.compare import Question, choose_methods
    from fsbench.evaluation.compare import compare as compare_files
    from fsbench.evaluation.run import Machine
    from fsbench.evaluation.spec import parse_methods
    from fsbench.io.files import require_place
    from fsbench.ranks import join_ranks
    from fsbench.report.render import Table
    from fsbench.reporter import Reporter
    from fsbench.tasks.protocol import TaskProtocol

    form = format_of(output, out)
    refuse_same_methods(parse_methods(methods), baseline)
    rules = TaskProtocol(protocol, ways, 1, queries, level_of(True, alpha))  # type: ignore[arg-type]
    settings_asked, other = columns(settings, alpha, numbers(shots, "--shots")), find_base(base)
    with join_ranks() as ranks:
        if out:
            ranks.agree(lambda: require_place(out))
        reporter, machine = Reporter(quiet, not ranks.leads), Machine(choose_device(device), batch, ranks)
        files = find_features(features, features_dir, reporter, ranks)
        contestants, reference = choose_methods(methods, baseline, files, other, reporter)
        question = Question(
            contestants, settings_asked, reference, rules, split, tasks, seed, results_dir, force, published,
            over_data, tune, other,
        )  # fmt: skip
        table = Table(compare_files(question, files, machine, reporter))
        if ranks.leads:
            table.show(form, out, timing=timing)
            if out:
                reporter.say(f"Wrote {out}.")


def columns(settings: str, alpha: float | None, shots: list[int]) -> list[Column]:
    """The settings of the table, from the words of the command line."""
    from fsbench.results.comparison import Column

    words = [word.strip() for word in settings.split(",")]
    for word in words:
        if word not in {"unbalanced", "balanced"}:
            raise typer.BadParameter(f"expected unbalanced, balanced or both, got {word!r}", param_hint="--settings")
    refuse_doubles(words, "--settings")
    level = level_of("unbalanced" in words, alpha)
    return [Column(word == "balanced", None if word == "balanced" else level, shot) for word in words for shot in shots]
