"""What `fsbench demo` does: every stage once, on the embedded data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fsbench.evaluate.compare import Question, compare, parse_methods
from fsbench.evaluate.run import Machine
from fsbench.features.embedded import embedded_features
from fsbench.report.comparison import Column
from fsbench.report.plots import accuracy_bars
from fsbench.report.render import render_rich
from fsbench.tasks.protocol import TaskProtocol

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from fsbench.report.progress import Reporter

METHODS = "ncm,soft-kmeans,bavardage,bavardage:released"
COLUMNS = (Column(False, 2.0, 1), Column(False, 2.0, 5), Column(True, None, 1), Column(True, None, 5))
NEXT = """Next, on real data: put images under data/ and a checkpoint under weights/, then
  fsbench doctor                          what is found, and what is missing
  fsbench extract --backbone wrn          images → features
  fsbench compare --methods all           every method on the same tasks"""


def demonstrate(
    tasks: int, data: Path, weights: Path, features: Path, results: Path, reporter: Reporter, console: Console
) -> None:
    """Render, extract, scatter, solve, compare; end with the table, a picture, and what to try next."""
    file = embedded_features(data, weights, features, reporter)
    console.print("\n".join(file.describe()))
    question = Question(parse_methods(METHODS), COLUMNS, "soft-kmeans", TaskProtocol(), tasks=tasks, results=results)
    table = compare(question, [file], Machine(torch.device("cpu")), reporter)
    console.print(render_rich(table))
    picture = results / "demo.png"
    accuracy_bars(table, picture)
    console.print(f"\nPicture: {picture}. Records of every task: {results}/.\n")
    console.print(NEXT)
