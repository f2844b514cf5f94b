"""Options that several commands share. Nothing heavy is imported, so that `doctor` works where torch does not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsbench.cli import complete

OF_TASKS, OF_METHOD, OF_RUN, OF_OUTPUT = "Tasks", "Method", "Run", "Output"

FeaturesArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FEATURES", help="Feature files. (default: all files in the features folder)"),
]
RecordsArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="RECORDS", help="Records, or folders of them. (default: the results folder)"),
]
FeaturesRoot = Annotated[
    Path,
    typer.Option("--features-dir", envvar="FSBENCH_FEATURES", rich_help_panel=OF_RUN, help="Folder of feature files."),
]
DataRoot = Annotated[
    Path, typer.Option("--data-dir", envvar="FSBENCH_DATA", rich_help_panel=OF_RUN, help="Folder of data sets.")
]
WeightsRoot = Annotated[
    Path, typer.Option("--weights-dir", envvar="FSBENCH_WEIGHTS", rich_help_panel=OF_RUN, help="Folder of checkpoints.")
]
ResultsRoot = Annotated[
    Path, typer.Option("--results-dir", envvar="FSBENCH_RESULTS", rich_help_panel=OF_RUN, help="Folder of records.")
]
OwnFolder = Annotated[Path | None, typer.Option("--data", help="Folder of your own images, one folder per class.")]
SplitFile = Annotated[Path | None, typer.Option(help="With --data: json or csv file with the split of each class.")]
SplitFractions = Annotated[
    str | None, typer.Option(help="With --data: shares of base, val and novel classes, such as 0.64,0.16,0.2.")
]
MinImages = Annotated[
    int | None, typer.Option(min=1, help="With --data: leave out classes with fewer images than this.")
]
BaseFile = Annotated[
    Path | None,
    typer.Option(
        "--base", help="Feature file of the same backbone whose base classes to use.", rich_help_panel=OF_TASKS
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Suppress progress and notes.", rich_help_panel=OF_RUN)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.", rich_help_panel=OF_OUTPUT)]
Device = Annotated[
    str,
    typer.Option(
        help="auto, cpu, cuda, cuda:1, mps.",
        rich_help_panel=OF_RUN,
        autocompletion=complete.words("auto", "cpu", "cuda", "mps"),
    ),
]
Batch = Annotated[int | None, typer.Option(min=1, help="Tasks per block. (default: automatic)", rich_help_panel=OF_RUN)]
Force = Annotated[bool, typer.Option("--force", help="Recompute existing results.", rich_help_panel=OF_RUN)]
Unbalanced = Annotated[
    bool, typer.Option("--unbalanced/--balanced", help="Class proportions of the queries.", rich_help_panel=OF_TASKS)
]
Settings = Annotated[
    str,
    typer.Option(help="unbalanced, balanced, or both.", rich_help_panel=OF_TASKS, autocompletion=complete.settings),
]
Alpha = Annotated[
    float | None, typer.Option(help="Dirichlet α of unbalanced queries. (default: 2)", rich_help_panel=OF_TASKS)
]
Shots = Annotated[str, typer.Option(help="Labelled images per class, separated by commas.", rich_help_panel=OF_TASKS)]
Ways = Annotated[int, typer.Option(help="Classes per task.", rich_help_panel=OF_TASKS)]
Queries = Annotated[int, typer.Option(help="Unlabelled images per task.", rich_help_panel=OF_TASKS)]
Tasks = Annotated[int, typer.Option(min=1, help="Tasks per setting.", rich_help_panel=OF_TASKS)]
Seed = Annotated[int, typer.Option(min=0, help="Random seed of the task lists.", rich_help_panel=OF_TASKS)]
SplitName = Annotated[
    str, typer.Option(help="novel, val or base.", rich_help_panel=OF_TASKS, autocompletion=complete.splits)
]
ProtocolName = Annotated[
    str,
    typer.Option(help="disjoint, released or veilleux.", rich_help_panel=OF_TASKS, autocompletion=complete.protocols),
]
Variant = Annotated[
    str | None,
    typer.Option(
        help="Variant of BAVARDAGE: article or released.",
        rich_help_panel=OF_METHOD,
        autocompletion=complete.words("article", "released"),
    ),
]
Preset = Annotated[
    str,
    typer.Option(
        help="`article`: the article's parameters for its own data sets. (default: scale-free ones)",
        rich_help_panel=OF_METHOD,
        autocompletion=complete.words("article"),
    ),
]
Tune = Annotated[
    bool,
    typer.Option(
        "--tune", help="Use parameters tuned on the val classes, where a method has some.", rich_help_panel=OF_METHOD
    ),
]
Temperature = Annotated[float | None, typer.Option(help="Temperature of Soft-KMEANS.", rich_help_panel=OF_METHOD)]
ArticlePrecision = Annotated[
    float | None, typer.Option(help="Precision, in the article's units.", rich_help_panel=OF_METHOD)
]
ArticleClamp = Annotated[
    float | None, typer.Option(help="Largest scaling, in the article's units.", rich_help_panel=OF_METHOD)
]
Precision = Annotated[str | None, typer.Option(help="Scale-free precision, or `learned`.", rich_help_panel=OF_METHOD)]
Clamp = Annotated[float | None, typer.Option(help="Scale-free largest scaling.", rich_help_panel=OF_METHOD)]
Steps = Annotated[
    int | None, typer.Option(help="Iterations of the method. (default: its own)", rich_help_panel=OF_METHOD)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other parameter of the method.", rich_help_panel=OF_METHOD),
]
FigureFile = Annotated[Path, typer.Option("--out", help="PNG, PDF or SVG file.", rich_help_panel=OF_OUTPUT)]
TableFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="rich, markdown, latex, csv or json. (default: by the ending of --out, else rich)",
        rich_help_panel=OF_OUTPUT,
        autocompletion=complete.formats,
    ),
]
TableFile = Annotated[
    Path | None, typer.Option("--out", help="Write the table to this file.", rich_help_panel=OF_OUTPUT)
]
