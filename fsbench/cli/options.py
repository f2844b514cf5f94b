"""Names that the shell completes. Nothing heavy is imported for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsbench.cli import complete
from fsbench.errors import FsbenchError
from fsbench.ranks import ALONE

if TYPE_CHECKING:
    from fsbench.features.store import FeatureFile
    from fsbench.ranks import Ranks
    from fsbench.reporter import Reporter


DEFAULT_FEATURES = Path("features")
OF_TASKS, OF_METHOD, OF_RUN, OF_OUTPUT = "Tasks", "Method", "Run", "Output"

FeaturesArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FEATURES", help="Feature files; every one under the features folder if none is given."),
]
RecordsArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="RECORDS", help="Records or folders of them; all of the results folder if none is given."),
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
BaseFile = Annotated[
    Path | None,
    typer.Option(
        "--base", help="Take the base classes of this feature file, of the same backbone.", rich_help_panel=OF_TASKS
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no remarks.", rich_help_panel=OF_RUN)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.", rich_help_panel=OF_OUTPUT)]
Device = Annotated[
    str,
    typer.Option(
        help="auto, cpu, cuda, cuda:1, mps.",
        rich_help_panel=OF_RUN,
        autocompletion=complete.words("auto", "cpu", "cuda", "mps"),
    ),
]
Batch = Annotated[int | None, typer.Option(min=1, help="Tasks per block. (default: chosen)", rich_help_panel=OF_RUN)]
Force = Annotated[bool, typer.Option("--force", help="Run again what has a record.", rich_help_panel=OF_RUN)]
Unbalanced = Annotated[
    bool, typer.Option("--unbalanced/--balanced", help="Class proportions of the queries.", rich_help_panel=OF_TASKS)
]
Alpha = Annotated[
    float | None, typer.Option(help="Dirichlet α of unbalanced queries. (default: 2)", rich_help_panel=OF_TASKS)
]
Shots = Annotated[str, typer.Option(help="Labelled images per class, separated by commas.", rich_help_panel=OF_TASKS)]
Ways = Annotated[int, typer.Option(help="Classes per task.", rich_help_panel=OF_TASKS)]
Queries = Annotated[int, typer.Option(help="Unlabelled images per task.", rich_help_panel=OF_TASKS)]
Tasks = Annotated[int, typer.Option(min=1, help="Tasks per setting.", rich_help_panel=OF_TASKS)]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the task lists.", rich_help_panel=OF_TASKS)]
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
        help="Of BAVARDAGE: article or released.",
        rich_help_panel=OF_METHOD,
        autocompletion=complete.words("article", "released"),
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
PictureFile = Annotated[Path, typer.Option("--out", help="PNG, PDF or SVG file.", rich_help_panel=OF_OUTPUT)]
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
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other parameter of the method.", rich_help_panel=OF_METHOD),
]


def find_features(given: list[Path] | None, root: Path, reporter: Reporter, ranks: Ranks = ALONE) -> list[FeatureFile]:
    """The feature files to work on: those given, else all under the root, else those of the embedded data set."""
    from fsbench.features.store import FeatureFile

    paths = given or ranks.agree(
        lambda: sorted(path for path in root.glob("*.h5") if not path.name.endswith(".scatter.h5"))
    )
    if paths:
        once: dict[Path, Path] = {}
        for path in paths:
            if once.setdefault(path.resolve(), path) is not path:
                reporter.say(f"{path} is given twice, and taken once.")
        return [FeatureFile.open(path) for path in once.values()]
    if root != DEFAULT_FEATURES and not root.is_dir():
        raise FsbenchError(
            f"There is no folder {root}, which --features-dir or FSBENCH_FEATURES names.",
            "Check the path. An empty folder there gets the features of the embedded data set.",
        )

    from fsbench.features.extract import embedded_features

    reporter.say(f"No feature file given, and none in {root}/: making that of the embedded data set.")
    data, weights = (Path(os.environ.get(f"FSBENCH_{name.upper()}", name)) for name in ("data", "weights"))
    return [embedded_features(data, weights, root, reporter, ranks)]


def find_base(given: Path | None) -> FeatureFile | None:
    """The feature file of `--base`, if one is given."""
    from fsbench.features.store import FeatureFile

    return FeatureFile.open(given) if given else None


ENDINGS = {".md": "markdown", ".markdown": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json"}


def format_of(asked: str | None, out: Path | None) -> str:
    """The format asked for, else that of the file's ending, else text; the two must not contradict each other."""
    from fsbench.errors import unknown_name
    from fsbench.report.render import FORMATS

    if asked is not None and asked not in FORMATS:
        raise unknown_name("format", asked, FORMATS)
    by_ending = ENDINGS.get(out.suffix.lower()) if out else None
    if asked and by_ending and asked != by_ending:
        raise typer.BadParameter(f"{asked} does not suit --out {out}, which ends as {by_ending}", param_hint="--format")
    return asked or by_ending or "rich"
