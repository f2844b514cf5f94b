"""`fsbench compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsbench.cli.options import (
    BaseFile,
    Device,
    FeaturesArgument,
    FeaturesRoot,
    Quiet,
    ResultsRoot,
    find_base,
    find_features,
    numbers,
)

if TYPE_CHECKING:
    from fsbench.evaluate.comparison import Column


def compare(
    features: FeaturesArgument = None,
    methods: Annotated[
        str, typer.Option(help="Names separated by commas, NAME:VARIANT, file.py:CLASS, or all.")
    ] = "soft-kmeans,bavardage,bavardage:released",
    shots: Annotated[str, typer.Option(help="Labelled images per class, separated by commas.")] = "1,5",
    settings: Annotated[str, typer.Option(help="unbalanced, balanced, or both.")] = "unbalanced,balanced",
    alpha: Annotated[float, typer.Option(help="Dirichlet α of unbalanced queries.")] = 2.0,
    ways: Annotated[int, typer.Option(help="Classes per task.")] = 5,
    queries: Annotated[int, typer.Option(help="Unlabelled images per task.")] = 75,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks per setting.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of the task lists.")] = 0,
    split: Annotated[str, typer.Option(help="novel, val or base.")] = "novel",
    protocol: Annotated[str, typer.Option(help="disjoint, released or veilleux.")] = "disjoint",
    baseline: Annotated[
        str | None,
        typer.Option(help="What others are compared to.  [default: soft-kmeans; without base classes simpleshot:L2N]"),
    ] = None,
    base: BaseFile = None,
    published: Annotated[bool, typer.Option("--published/--no-published", help="Show published numbers.")] = True,
    over_data: Annotated[bool, typer.Option("--over-data", help="Add intervals over the data.")] = False,
    timing: Annotated[bool, typer.Option("--timing", help="Add tasks per second and peak memory.")] = False,
    output: Annotated[str, typer.Option("--format", help="rich, markdown, latex, csv or json.")] = "rich",
    out: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
    device: Device = "auto",
    batch: Annotated[int | None, typer.Option(min=1, help="Tasks per block.  [default: chosen]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Run again what has a record.")] = False,
    features_dir: FeaturesRoot = Path("features"),
    results_dir: ResultsRoot = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Put methods side by side: the same tasks, paired statistics, published numbers.

    Example: [bold]fsbench compare --methods all --format latex --out table.tex[/bold]
    """
    from fsbench.devices import choose_device
    from fsbench.errors import unknown_name
    from fsbench.evaluate.compare import Question, choose_methods
    from fsbench.evaluate.compare import compare as compare_files
    from fsbench.evaluate.run import Machine
    from fsbench.report.progress import Reporter
    from fsbench.report.render import FORMATS, show
    from fsbench.tasks.protocol import TaskProtocol

    if output not in FORMATS:
        raise unknown_name("format", output, FORMATS)
    rules = TaskProtocol(protocol, ways, 1, queries, alpha)  # type: ignore[arg-type]
    reporter, other = Reporter(quiet), find_base(base)
    settings_asked = columns(settings, alpha, numbers(shots, "--shots"))
    files = find_features(features, features_dir, reporter)
    contestants, reference = choose_methods(methods, baseline, files, other, reporter)
    question = Question(
        contestants, settings_asked, reference, rules, split, tasks, seed, results_dir, force, published, over_data,
        other,
    )  # fmt: skip
    table = compare_files(question, files, Machine(choose_device(device), batch), reporter)
    show(table, output, out, timing)
    if out:
        reporter.say(f"Wrote {out}.")


def columns(settings: str, alpha: float, shots: list[int]) -> list[Column]:
    """The settings of the table, from the words of the command line."""
    from fsbench.evaluate.comparison import Column

    found = []
    for word in settings.split(","):
        if word.strip() not in {"unbalanced", "balanced"}:
            raise typer.BadParameter(f"expected unbalanced, balanced or both, got {word!r}", param_hint="--settings")
        balanced = word.strip() == "balanced"
        found += [Column(balanced, None if balanced else alpha, shot) for shot in shots]
    return found
