"""`fsbench import` and `fsbench export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fsbench.cli import complete
from fsbench.cli import options as use
from fsbench.exchange.exporting import export_file
from fsbench.exchange.importing import Naming, import_files, known_dataset
from fsbench.features.store import FeatureFile
from fsbench.report.tables import stdout_console
from fsbench.reporter import Reporter


def import_(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Files of features; SPLIT=FILE names the split.")],
    dataset: Annotated[
        str,
        typer.Option(help="Name of the data set, such as mini, or one of your own.", autocompletion=complete.datasets),
    ],
    backbone: Annotated[
        str,
        typer.Option(
            help=f"Name of the backbone: {complete.NAMED_BACKBONES}, or any other.",
            autocompletion=complete.words(*complete.BACKBONES),
        ),
    ],
    crops: Annotated[
        int, typer.Option(min=1, help="Crops per image that features are averaged over (EASY's AS: 30).")
    ] = 1,
    out: Annotated[Path | None, typer.Option(help="The feature file. (default: features/DATASET-BACKBONE.h5)")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    features_dir: use.FeaturesRoot = Path("features"),
    as_json: use.AsJson = False,
    quiet: use.Quiet = False,
) -> None:
    """Make a feature file from features of another program.

    Pickles of S2M2, PT-MAP, BAVARDAGE, SimpleShot and TIM, EASY's tensors, S2M2's HDF5, npz, npy, csv, parquet, torch
    and safetensors files are recognised by their content. Nothing in them is executed. Reports missing,
    conflicting and inferred fields.

    Example: [bold]fsbench import base=base_cub.plk novel=cub.plk --dataset cub --backbone rn18[/bold]
    """
    naming = Naming(known_dataset(dataset), backbone, crops)
    file = import_files(files, out or features_dir / naming.file_name(), naming, Reporter(quiet), force=force)
    if as_json:
        splits = {name: {"rows": one.rows, "classes": len(one.class_names)} for name, one in file.splits.items()}
        about = {"dataset": naming.dataset, "backbone": backbone, "dimension": file.dimension, "splits": splits}
        typer.echo(json.dumps({"file": str(file.path), **about}, indent=1))
    else:
        stdout_console().print("\n".join(file.describe()), soft_wrap=True)


def export(
    features: Annotated[Path, typer.Argument(metavar="FEATURES", help="The feature file.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="npz|ptmap",
            help="npz: one archive. ptmap: a folder of pickles, one per split.",
            autocompletion=complete.words("npz", "ptmap"),
        ),
    ] = "npz",
    out: Annotated[Path | None, typer.Option(help="File or folder. (default: next to the feature file)")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    as_json: use.AsJson = False,
    quiet: use.Quiet = False,
) -> None:
    """Write a feature file in a format that other programs read.

    `fsbench import` reads it back to the same rows.

    Example: [bold]fsbench export features/cub-rn18.h5 --to ptmap --out pickles[/bold]
    """
    written = [*map(str, export_file(FeatureFile.open(features), to, out, Reporter(quiet), force=force))]
    if as_json:
        typer.echo(json.dumps({"files": written}, indent=1))
    else:
        stdout_console().print("\n".join(written), soft_wrap=True)
