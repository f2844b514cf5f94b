"""`fsbench demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsbench.cli.options import DataRoot, FeaturesRoot, Quiet, ResultsRoot, WeightsRoot

METHODS = "ncm,soft-kmeans,bavardage,bavardage:released"
NEXT = """Next, on real data: put images under data/ and a checkpoint under weights/, then
  fsbench doctor                          what is found, and what is missing
  fsbench extract --backbone wrn          images → features
  fsbench compare --methods all           every method on the same tasks"""


def demo(
    tasks: Annotated[int, typer.Option(min=2, help="Tasks per setting.")] = 2_000,
    data_dir: DataRoot = Path("data"),
    weights_dir: WeightsRoot = Path("weights"),
    features_dir: FeaturesRoot = Path("features"),
    results_dir: ResultsRoot = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Go the whole way on the embedded data set, in about a minute.

    Render, extract, scatter, solve, compare, one picture. It needs no network and no data.

    Example: [bold]fsbench demo[/bold]
    """
    from fsbench.devices import choose_device
    from fsbench.evaluation.compare import Question, compare
    from fsbench.evaluation.run import Machine
    from fsbench.evaluation.spec import parse_methods
    from fsbench.features.extract import embedded_features
    from fsbench.ranks import join_ranks
    from fsbench.report.plots.comparison import draw_bars
    from fsbench.report.plots.style import save
    from fsbench.report.render import render_rich
    from fsbench.report.tables import stdout_console
    from fsbench.reporter import Reporter
    from fsbench.results.comparison import Column
    from fsbench.tasks.protocol import TaskProtocol

    columns = [Column(balanced, None if balanced else 2.0, shots) for balanced in (False, True) for shots in (1, 5)]
    question = Question(
        parse_methods(METHODS), columns, "soft-kmeans", TaskProtocol(), tasks=tasks, results=results_dir
    )
    with join_ranks() as ranks:
        reporter, console = Reporter(quiet, not ranks.leads), stdout_console()
        file = embedded_features(data_dir, weights_dir, features_dir, reporter, ranks)
        if ranks.leads:
            console.print("\n".join(file.describe()), soft_wrap=True)
        table = compare(question, [file], Machine(choose_device("auto"), ranks=ranks), reporter)
        if ranks.leads:
            console.print(render_rich(table))
            save(draw_bars(table), results_dir / "demo.png")
            console.print(f"\nPicture: {results_dir / 'demo.png'}. Records of every task: {results_dir}/.\n")
            console.print(NEXT)
