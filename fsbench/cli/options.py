"""Options that several commands share. Nothing heavy is imported, so that `doctor` works where torch does not."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsbench.cli import complete
from fsbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

of_tasks, of_method, of_run, of_output, for_experts = (  # options in a panel of the help
    partial(typer.Option, rich_help_panel=panel) for panel in ("Tasks", "Method", "Run", "Output", "Advanced")
)


def whole_number(text: str | int) -> int:
    """A count such as 10000, 10_000 or 1e4."""
    try:
        number = float(str(text).replace("_", "").replace(",", ""))
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise typer.BadParameter(f"expected a whole number such as 10000 or 1e4, got {text!r}")
    return int(number)


_UNITS = {"s": 1, "m": 60, "h": 3600}


def duration(text: str) -> float:
    """Seconds, from 90s, 10m or 1h30m."""
    if not re.fullmatch(r"(\d+(\.\d+)?[smh])+", text):
        raise typer.BadParameter(f"expected a time such as 90s, 10m or 1h30m, got {text!r}")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([smh])", text))
    if not seconds:
        raise typer.BadParameter(f"expected a time above zero, got {text!r}")
    return seconds


def number_or(word: str, option: str) -> Callable[[str], float | str]:
    """The parser of an option that takes a number or a word."""

    def parse(text: str) -> float | str:
        try:
            return text if text == word else float(text)
        except ValueError:
            raise UsageError(option, f"expected a number or `{word}`, got {text!r}") from None

    return parse


FeaturesArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FEATURES", help="Feature files. (default: all files in the features folder)"),
]
RecordsArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="RECORDS", help="Records, or folders of them. (default: the results folder)"),
]
With = Annotated[
    list[Path] | None,
    of_output("--with", metavar="DIR", help="Add records of other people from this folder, where tasks are the same."),
]
FeaturesRoot = Annotated[
    Path, of_run("--features-dir", metavar="DIR", envvar="FSBENCH_FEATURES", help="Folder of feature files.")
]
DataRoot = Annotated[Path, of_run("--data-dir", metavar="DIR", envvar="FSBENCH_DATA", help="Folder of data sets.")]
WeightsRoot = Annotated[
    Path, of_run("--weights-dir", metavar="DIR", envvar="FSBENCH_WEIGHTS", help="Folder of checkpoints.")
]
ResultsRoot = Annotated[
    Path, of_run("--results-dir", metavar="DIR", envvar="FSBENCH_RESULTS", help="Folder of records.")
]
OwnFolder = Annotated[Path | None, typer.Option("--data", help="Folder of your own images, one folder per class.")]
SplitFile = Annotated[Path | None, typer.Option(help="With --data: json or csv file with the split of each class.")]
SplitFractions = Annotated[
    str | None, typer.Option(help="With --data: shares of base, val and novel classes, such as 0.64,0.16,0.2.")
]
SplitSeed = Annotated[int | None, typer.Option(min=0, help="Random seed of the split. (default: 0)")]
MinImages = Annotated[
    int | None, typer.Option(min=1, help="With --data: leave out classes with fewer images than this.")
]
BaseFile = Annotated[
    Path | None,
    for_experts("--base", metavar="FILE", help="Feature file of the same backbone whose base classes to use."),
]
Quiet = Annotated[bool, of_run("--quiet", "-q", help="Suppress progress and notes.")]
AsJson = Annotated[bool, of_output("--json", help="Print JSON instead of text.")]
Device = Annotated[
    str, of_run(help="auto, cpu, cuda, cuda:1, mps.", autocompletion=complete.words("auto", "cpu", "cuda", "mps"))
]
Batch = Annotated[int | None, for_experts(min=1, help="Tasks per block. (default: automatic)")]
Force = Annotated[bool, of_run("--force", help="Recompute existing results.")]
SkipInfeasible = Annotated[
    bool, for_experts("--skip-infeasible", help="Leave out settings for which a file has too few images.")
]
Unbalanced = Annotated[bool, of_tasks("--unbalanced/--balanced", help="Class proportions of the queries.")]
Settings = Annotated[
    str, of_tasks(metavar="NAMES", help="unbalanced, balanced, or both.", autocompletion=complete.settings)
]
Alpha = Annotated[float | None, of_tasks(help="Dirichlet α of unbalanced queries. (default: 2)")]
Shots = Annotated[str, of_tasks(metavar="N,N", help="Labelled images per class, separated by commas.")]
Ways = Annotated[int | None, of_tasks(help="Classes per task. (default: 5; keff: all of the split)")]
Present = Annotated[int | None, for_experts(min=1, help="With keff: classes among the queries. (default: 5)")]
Queries = Annotated[int, of_tasks(help="Unlabelled images per task.")]
Tasks = Annotated[int, of_tasks(parser=whole_number, metavar="N", help="Tasks per setting.")]
Seed = Annotated[int, of_tasks(min=0, help="Random seed of the task lists.")]
SplitName = Annotated[
    str, of_tasks(metavar="novel|val|base", help="Classes that tasks are drawn from.", autocompletion=complete.splits)
]
ProtocolName = Annotated[
    str,
    of_tasks(
        help="How tasks are drawn: disjoint, released, veilleux, keff, keff-released. See fsbench methods --protocols.",
        autocompletion=complete.protocols,
    ),
]
Variant = Annotated[
    str | None,
    of_method(
        help="Variant of BAVARDAGE: article, released or transport.",
        autocompletion=complete.words("article", "released", "transport"),
    ),
]
Preset = Annotated[
    str,
    of_method(
        help="`article`: the article's parameters for its own data sets. (default: scale-free ones)",
        autocompletion=complete.words("article"),
    ),
]
Blind = Annotated[
    bool, of_method("--blind", help="Tell no method whether tasks are balanced: the same defaults in every setting.")
]
Tune = Annotated[bool, of_method("--tune", help="Use parameters tuned on the val classes, where a method has some.")]
Temperature = Annotated[float | None, for_experts(help="Temperature T_km of Soft-KMEANS and BAVARDAGE.")]
ArticlePrecision = Annotated[float | None, for_experts(help="Precision T_vb of BAVARDAGE, in the article's units.")]
ArticleClamp = Annotated[float | None, for_experts(help="Largest scaling s_max, in the article's units.")]
Precision = Annotated[
    Any,  # a number or a word, which typer cannot say
    for_experts(
        parser=number_or("learned", "tau"),
        metavar="X|learned",
        help="Scale-free precision τ of BAVARDAGE. (default: 0.3)",
    ),
]
Clamp = Annotated[float | None, for_experts(help="Scale-free largest scaling σ of BAVARDAGE. (default: 20)")]
PriorAlpha = Annotated[
    Any,
    for_experts(
        parser=number_or("sampler", "prior-alpha"),
        metavar="X|sampler",
        help="Dirichlet prior α_o of BAVARDAGE; `sampler`: that of --alpha. (default: 2)",
        autocompletion=complete.words("sampler"),
    ),
]
Steps = Annotated[int | None, for_experts(help="Iterations of the method. (default: its own)")]
SetOption = Annotated[
    list[str] | None, of_method("--set", metavar="NAME=VALUE", help="Any parameter; fsbench methods NAME lists them.")
]
FigureFile = Annotated[Path, of_output("--out", metavar="FILE", help="PNG, PDF or SVG file.")]
TableFormat = Annotated[
    str | None,
    of_output(
        "--format",
        help="rich, markdown, latex, csv or json. (default: by the ending of --out, else rich)",
        autocompletion=complete.formats,
    ),
]
TableFile = Annotated[
    Path | None, of_output("--out", metavar="FILE", help="Write the table to this file: .md, .tex, .csv, .json, .txt.")
]
SavePredictions = Annotated[
    bool,
    of_output(
        "--save-predictions",
        help="Write class probabilities next to each record, 12 MB per 10,000 tasks of 5 classes and 75 queries.",
    ),
]
Sort = Annotated[bool, of_output("--sort", help="Order methods by their mean accuracy, the best first.")]
