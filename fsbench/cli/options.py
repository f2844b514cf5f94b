"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fsbench.features.store import FeatureFile
    from fsbench.report.progress import Reporter

FeaturesArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FEATURES]...", help="Feature files; every one under the features folder if none is given."
    ),
]
FeaturesRoot = Annotated[
    Path, typer.Option("--features-dir", envvar="FSBENCH_FEATURES", help="Folder of feature files.")
]
DataRoot = Annotated[Path, typer.Option("--data-dir", envvar="FSBENCH_DATA", help="Folder of data sets.")]
WeightsRoot = Annotated[Path, typer.Option("--weights-dir", envvar="FSBENCH_WEIGHTS", help="Folder of checkpoints.")]
ResultsRoot = Annotated[Path, typer.Option("--results-dir", envvar="FSBENCH_RESULTS", help="Folder of records.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no remarks.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]
PictureFile = Annotated[Path, typer.Option("--out", help="PNG, PDF or SVG file.")]

# Which tasks.
Unbalanced = Annotated[bool, typer.Option("--unbalanced/--balanced", help="Class proportions of the queries.")]
Alpha = Annotated[float | None, typer.Option(help="Dirichlet α of unbalanced queries.  [default: 2]")]
Ways = Annotated[int, typer.Option(help="Classes per task.")]
Queries = Annotated[int, typer.Option(help="Unlabelled images per task.")]
Seed = Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of the task list.")]
SplitName = Annotated[str, typer.Option(help="novel, val or base.")]
ProtocolName = Annotated[str, typer.Option(help="disjoint, released or veilleux.")]

# Parameters of BAVARDAGE, and of any method.
Variant = Annotated[str | None, typer.Option(help="Of BAVARDAGE: article or released.")]
Temperature = Annotated[float | None, typer.Option(help="Temperature of Soft-KMEANS.")]
ArticlePrecision = Annotated[float | None, typer.Option(help="Precision, in the article's units.")]
ArticleClamp = Annotated[float | None, typer.Option(help="Largest scaling, in the article's units.")]
Precision = Annotated[str | None, typer.Option(help="Scale-free precision, or `learned`.")]
Clamp = Annotated[float | None, typer.Option(help="Scale-free largest scaling.")]
Steps = Annotated[int | None, typer.Option(help="Iterations of the method.  [default: its own]")]
Others = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other parameter of the method.")
]


def find_features(given: list[Path] | None, root: Path, reporter: Reporter) -> list[FeatureFile]:
    """The feature files to work on: those given, else all under the root, else those of the embedded data set."""
    from fsbench.features.store import FeatureFile

    paths = given or sorted(path for path in root.glob("*.h5") if not path.name.endswith(".scatter.h5"))
    if paths:
        return [FeatureFile.open(path) for path in paths]

    from fsbench.features.embedded import embedded_features

    reporter.say(f"No feature file given, and none in {root}/: making that of the embedded data set.")
    data, weights = (Path(os.environ.get(f"FSBENCH_{name.upper()}", name)) for name in ("data", "weights"))
    return [embedded_features(data, weights, root, reporter)]


def numbers(text: str, option: str) -> list[int]:
    """Parse `1,5` into whole numbers."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"expected whole numbers separated by commas, got {text!r}", param_hint=option
        ) from None
    return list(dict.fromkeys(values))


def level_of(unbalanced: bool, alpha: float | None) -> float | None:
    """The Dirichlet α of the queries; None for balanced ones, which have none."""
    if alpha is not None and not unbalanced:
        raise typer.BadParameter("α has no meaning for balanced tasks", param_hint="--alpha")
    return (2.0 if alpha is None else alpha) if unbalanced else None


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def parsed(others: list[str]) -> dict[str, Any]:
    """`rate=0.1` as a parameter; values are numbers, true, false or words."""
    found: dict[str, Any] = {}
    for text in others:
        name, sign, value = text.partition("=")
        if not sign:
            raise typer.BadParameter(f"expected NAME=VALUE, got {text!r}", param_hint="--set")
        found[name.replace("-", "_")] = _value(value)
    return found


def _value(text: str) -> Any:
    if text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def precision(text: str | None) -> float | str | None:
    """τ as a number, or the word `learned`."""
    if text is None or text == "learned":
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number or `learned`, got {text!r}", param_hint="--tau") from None
