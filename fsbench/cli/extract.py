"""`fsbench extract`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsbench.backbones.load import refuse_unknown
from fsbench.cli import complete
from fsbench.cli import options as use
from fsbench.data.choose import OwnData, choose_datasets
from fsbench.devices import choose_device
from fsbench.features.extract import Settings, Weights, extract_all
from fsbench.ranks import join_ranks
from fsbench.report.tables import stdout_console
from fsbench.reporter import Reporter


def extract(
    backbone: Annotated[
        str,
        typer.Option(
            help=f"{complete.NAMED_BACKBONES}, or timm/NAME.", autocompletion=complete.words(*complete.BACKBONES)
        ),
    ] = "rn12",
    dataset: Annotated[
        str | None,
        typer.Option(help="Data sets, separated by commas. (default: all found)", autocompletion=complete.datasets),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="A folder of your own images.")] = None,
    split_file: Annotated[Path | None, typer.Option(help="With --data: json or csv that divides the classes.")] = None,
    split_fractions: Annotated[
        str | None, typer.Option(help="With --data: shares of base, val and novel classes, such as 0.64,0.16,0.2.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Checkpoint. (default: weights/DATASET/BACKBONE.*)")] = None,
    random_weights: Annotated[
        int | None, typer.Option(min=0, help="No checkpoint: fresh weights of this seed.")
    ] = None,
    transform: Annotated[str | None, typer.Option(help="Replace the backbone's own transform, e.g. ptmap.")] = None,
    crops: Annotated[int, typer.Option(min=1, help="Average the features of that many random crops (RN12*: 30).")] = 1,
    precision: Annotated[
        str, typer.Option(help="fp32, bf16 or fp16.", autocompletion=complete.words("fp32", "bf16", "fp16"))
    ] = "fp32",
    device: use.Device = "auto",
    batch: Annotated[int | None, typer.Option(min=1, help="Images per forward pass. (default: chosen)")] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Processes that read images. (default: chosen)")] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out unreadable images, and record it.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="A .h5 file, or a folder. (default: features/DATASET-BACKBONE.h5)")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Extract again what is there.")] = False,
    data_dir: use.DataRoot = Path("data"),
    weights_dir: use.WeightsRoot = Path("weights"),
    features_dir: use.FeaturesRoot = Path("features"),
    quiet: use.Quiet = False,
) -> None:
    """Run a backbone over image folders: one feature file per data set.

    Without options: every data set under data/, else the embedded one, into features/DATASET-BACKBONE.h5. Weights are
    those at weights/DATASET/BACKBONE.*, and the transform follows them. Killed at any moment, the same command goes on
    where it was; what is there already is not made again. Several processes share the images under torchrun.

    Example: [bold]fsbench extract --backbone wrn[/bold]
    """
    refuse_unknown(backbone)
    if out and out.suffix not in {"", ".h5"} and not out.is_dir():
        raise typer.BadParameter(f"{out} is neither a .h5 file nor an existing folder", param_hint="--out")
    own = OwnData.given(data, split_file, split_fractions)
    settings = Settings(crops, 0, precision, transform, batch, workers, skip_broken)
    chosen = Weights(backbone, weights, random_weights, weights_dir)
    with join_ranks() as ranks:
        reporter, where = Reporter(quiet, not ranks.leads), choose_device(device)
        datasets = ranks.first_alone(lambda: choose_datasets(dataset, own, data_dir, reporter))
        files = extract_all(
            datasets, chosen, settings, where, out or features_dir, reporter, force=force, ranks=ranks
        )  # fmt: skip
        for file in files if ranks.leads else ():
            stdout_console().print("\n".join(file.describe()), soft_wrap=True)
