"""`fsbench demo`."""

from __future__ import annotations

from fsbench.cli.options import Demo
from fsbench.cli.session import open_runner
from fsbench.evaluation.compare import compare
from fsbench.evaluation.options import Comparing
from fsbench.evaluation.spec import Spec
from fsbench.features.extract import embedded_features
from fsbench.report.comparison import comparison_tables
from fsbench.report.plots.comparison import draw_dots
from fsbench.report.plots.style import save
from fsbench.report.writers import show, stdout_console

METHODS = ("ncm", "soft-kmeans", "bavardage", "bavardage:released")
NEXT = """Next, on real data: put images into data/. Small networks (rn12) for cifarfs, fc100, mini and
cub come with fsbench; for another data set, put a checkpoint into weights/. Then run
  fsbench doctor                                check what is found and what is missing
  fsbench extract --backbone rn12               images → features
  fsbench compare --methods all --tasks 1000    every method on the same tasks
With photos of your own, a few of each class labelled in folders:
  fsbench label photos --support labelled --pretrained"""


def demo(options: Demo) -> None:
    """Go from drawn images to a table and a figure."""
    spec = Spec.of(Comparing(tasks=options.tasks), METHODS, {})
    with open_runner(options) as runner:
        folders = options.data_dir, options.weights_dir, options.features_dir
        file = embedded_features(*folders, runner.reporter, runner.ranks)
        console = stdout_console()
        if runner.ranks.leads:
            console.print(str(file), soft_wrap=True)
        table = compare(spec, [file], runner)
        if runner.ranks.leads:
            figure = options.results_dir / "demo.png"
            show(*comparison_tables(table))
            save(draw_dots(table), figure)
            console.print(f"\nFigure: {figure}. Records of every task: {options.results_dir}/.\n")
            console.print(NEXT)
