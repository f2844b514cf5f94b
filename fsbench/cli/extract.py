"""`fsbench extract`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsbench.backbones.load import refuse_unknown
from fsbench.cli import complete
from fsbench.cli import options as use
from fsbench.data.choose import OwnData, choose_datasets
from fsbench.data.pixels import pixel_cache
from fsbench.devices import choose_device
from fsbench.errors import UsageError
from fsbench.features.extract import Settings, Weights, extract_all
from fsbench.ranks import join_ranks
from fsbench.report.tables import stdout_console
from fsbench.reporter import Reporter
from fsbench.tasks.sampling import feasible_settings


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
    data: use.OwnFolder = None,
    split_file: use.SplitFile = None,
    split_fractions: use.SplitFractions = None,
    split_seed: use.SplitSeed = None,
    min_images: use.MinImages = None,
    weights: Annotated[Path | None, typer.Option(help="Checkpoint. (default: weights/DATASET/BACKBONE.*)")] = None,
    random_weights: Annotated[
        int | None, typer.Option(min=0, help="Use random weights of this seed (0 if none is given).")
    ] = None,
    pretrained: Annotated[
        bool, typer.Option("--pretrained", help="Use timm's published weights; timm downloads them if need be.")
    ] = False,
    transform: Annotated[str | None, typer.Option(help="Replace the backbone's own transform, e.g. ptmap.")] = None,
    crops: Annotated[int, typer.Option(min=1, help="Average the features of that many random crops (RN12*: 30).")] = 1,
    precision: Annotated[
        str,
        typer.Option(
            help="fp32, tf32, bf16 or fp16; the last two are slow on CPUs without instructions for them.",
            autocompletion=complete.words("fp32", "tf32", "bf16", "fp16"),
        ),
    ] = "fp32",
    device: use.Device = "auto",
    batch: Annotated[int | None, typer.Option(min=1, help="Images per forward pass. (default: automatic)")] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Processes that read images. (default: automatic)")] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out unreadable images, and record it.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="A .h5 file or a folder. (default: in features/)")] = None,
    tag: Annotated[str, typer.Option(help="Word at the end of the file's name, to keep two networks apart.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace other features, recompute the same ones.")] = False,
    data_dir: use.DataRoot = Path("data"),
    weights_dir: use.WeightsRoot = Path("weights"),
    features_dir: use.FeaturesRoot = Path("features"),
    quiet: use.Quiet = False,
) -> None:
    """Run a backbone over image folders: one feature file per data set.

    Without options: every data set in data/, else the built-in one, into features/DATASET-BACKBONE.h5, with the weights
    at weights/DATASET/BACKBONE.* and the transform that belongs to them. Run the same command again to resume an
    interrupted extraction. A file with other features is never replaced without --force. Features of images that were
    extracted before in the same way are reused, so that new splits and new classes cost little. Several processes share
    the images under torchrun.

    Example: [bold]fsbench extract --backbone wrn[/bold]
    """
    refuse_unknown(backbone)
    if out and out.suffix not in {"", ".h5"} and not out.is_dir():
        raise UsageError("out", f"{out} is neither a .h5 file nor an existing folder")
    own = OwnData.given(data, split_file, split_fractions, min_images, split_seed)
    settings = Settings(
        crops, 0, precision, transform, batch, workers, skip_broken, tag, features_dir, pixel_cache(data_dir)
    )
    chosen = Weights(backbone, weights, random_weights, weights_dir, pretrained)
    with join_ranks() as ranks:
        reporter, where = Reporter(quiet, not ranks.leads), choose_device(device)
        datasets = ranks.first_alone(lambda: choose_datasets(dataset, own, data_dir, reporter))
        for split in [found.splits["novel"] for found in datasets if own and "novel" in found.splits]:
            reporter.say(f"{datasets[0].name}: {feasible_settings(split)}")
        place = out or features_dir
        files = extract_all(datasets, chosen, settings, where, place, reporter, force=force, ranks=ranks)
        for file in files if ranks.leads else ():
            stdout_console().print("\n".join(file.describe()), soft_wrap=True)
