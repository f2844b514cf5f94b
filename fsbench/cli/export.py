"""`fsbench export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsbench.cli import complete
from fsbench.cli.options import Quiet
from fsbench.exchange.exporting import export_file
from fsbench.features.store import FeatureFile
from fsbench.report.tables import stdout_console
from fsbench.reporter import Reporter


def export(
    features: Annotated[Path, typer.Argument(help="The feature file.")],
    to: Annotated[
        str,
        typer.Option(
            help="npz: one archive. ptmap: a folder of pickles, one per split.",
            autocompletion=complete.words("npz", "ptmap"),
        ),
    ] = "npz",
    out: Annotated[Path | None, typer.Option(help="File or folder. (default: beside the feature file)")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write a feature file in a layout that other programs read.

    `fsbench import` reads it back to the same rows.

    Example: [bold]fsbench export features/cub-rn18.h5 --to ptmap --out pickles[/bold]
    """
    for path in export_file(FeatureFile.open(features), to, out, Reporter(quiet), force=force):
        stdout_console().print(str(path), soft_wrap=True)
