"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
BaseFile = Annotated[
    Path | None,
    typer.Option("--base", help="Take the base classes of this feature file, of the same backbone."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no remarks.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]


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


def find_base(given: Path | None) -> FeatureFile | None:
    """The feature file of `--base`, if one is given."""
    from fsbench.features.store import FeatureFile

    return FeatureFile.open(given) if given else None


def numbers(text: str, option: str) -> list[int]:
    """Parse `1,5` into whole numbers."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"expected whole numbers separated by commas, got {text!r}", param_hint=option
        ) from None
    return list(dict.fromkeys(values))
