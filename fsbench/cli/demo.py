"""`fsbench demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsbench.cli.options import DataRoot, FeaturesRoot, Quiet, ResultsRoot, WeightsRoot


def demo(
    tasks: Annotated[int, typer.Option(min=2, help="Tasks per setting.")] = 2_000,
    data_dir: DataRoot = Path("data"),
    weights_dir: WeightsRoot = Path("weights"),
    features_dir: FeaturesRoot = Path("features"),
    results_dir: ResultsRoot = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Go the whole way on the embedded data set: render, extract, scatter, solve, compare, one picture.

    Example: [bold]fsbench demo[/bold]
    """
    from fsbench.evaluate.demo import demonstrate
    from fsbench.report.progress import Reporter
    from fsbench.report.tables import stdout_console

    demonstrate(tasks, data_dir, weights_dir, features_dir, results_dir, Reporter(quiet), stdout_console())
