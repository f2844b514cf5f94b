"""`fsbench demo`."""

from __future__ import annotations

from pathlib import Path

from fsbench.cli import options as use
from fsbench.cli.session import open_runner
from fsbench.errors import UsageError
from fsbench.evaluation.compare import compare
from fsbench.evaluation.spec import Spec
from fsbench.features.extract import embedded_features
from fsbench.report.plots.comparison import draw_dots
from fsbench.report.plots.style import save
from fsbench.report.render import render_rich
from fsbench.report.tables import stdout_console

METHODS = "ncm,soft-kmeans,bavardage,bavardage:released"
NEXT = """Next, on real data: put images into data/. Small networks (rn12) for cifarfs, fc100, mini and
cub come with fsbench; for another data set, put a checkpoint into weights/. Then run
  fsbench doctor                                check what is found and what is missing
  fsbench extract --backbone rn12               images → features
  fsbench compare --methods all --tasks 1000    every method on the same tasks"""


def demo(
    tasks: use.Tasks = 2_000,
    data_dir: use.DataRoot = Path("data"),
    weights_dir: use.WeightsRoot = Path("weights"),
    features_dir: use.FeaturesRoot = Path("features"),
    results_dir: use.ResultsRoot = Path("results"),
    quiet: use.Quiet = False,
) -> None:
    """Run the full pipeline on the built-in data set, in a minute.

    Render, extract, scatter, solve, compare, one figure. Works offline and needs no data.

    Example: [bold]fsbench demo[/bold]
    """
    if tasks < 2:
        raise UsageError("tasks", f"expected at least 2, got {tasks}", "A figure shows intervals.")
    spec = Spec.from_words(methods=METHODS, tasks=tasks)
    with open_runner("auto", None, results_dir, quiet=quiet) as runner:
        file = embedded_features(data_dir, weights_dir, features_dir, runner.reporter, runner.ranks)
        console = stdout_console()
        if runner.ranks.leads:
            console.print("\n".join(file.describe()), soft_wrap=True)
        table = compare(spec, [file], runner)
        if runner.ranks.leads:
            console.print(render_rich(table), crop=False)
            save(draw_dots(table), results_dir / "demo.png")
            console.print(f"\nFigure: {results_dir / 'demo.png'}. Records of every task: {results_dir}/.\n")
            console.print(NEXT)
