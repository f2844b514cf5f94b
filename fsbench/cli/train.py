"""`fsbench train`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fsbench.backbones.families import BACKBONES
from fsbench.cli import complete
from fsbench.cli import options as use
from fsbench.data.catalog import EMBEDDED
from fsbench.data.choose import OwnData, choose_datasets
from fsbench.devices import choose_device
from fsbench.errors import FsbenchError
from fsbench.ranks import join_ranks
from fsbench.report.tables import stdout_console
from fsbench.reporter import Reporter
from fsbench.train.run import default_output, train_backbone
from fsbench.train.settings import Execution, TrainSettings


def train(
    backbone: Annotated[
        str, typer.Option(help=f"One of {complete.NAMED_BACKBONES}.", autocompletion=complete.words(*BACKBONES))
    ] = "rn12",
    dataset: Annotated[
        str | None, typer.Option(help="The data set. (default: the one found)", autocompletion=complete.datasets)
    ] = None,
    data: use.OwnFolder = None,
    split_file: use.SplitFile = None,
    split_fractions: use.SplitFractions = None,
    split_seed: use.SplitSeed = None,
    min_images: use.MinImages = None,
    width: Annotated[
        float | None, typer.Option(help="Base width (rn12, rn18, conv4), widening factor (wrn). (default: 64; wrn 10)")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(min=16, help="Side of the images in pixels. (default: as published for the data set)")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the base images.")] = 20,
    batch: Annotated[int, typer.Option(min=2, help="Images per step, over all processes.")] = 64,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    rotation: Annotated[bool, typer.Option(help="Add a rotation loss.")] = False,
    mixup: Annotated[bool, typer.Option(help="Add a pass with manifold mixup.")] = False,
    flip: Annotated[bool | None, typer.Option(help="Mirror images at random. (default: not for glyphs)")] = None,
    small_first: Annotated[bool, typer.Option(help="Train on smaller images in the first half.")] = False,
    eval_every: Annotated[int, typer.Option(min=1, help="Evaluate on the val classes every N epochs.")] = 10,
    save_every: Annotated[float, typer.Option(min=0, help="Minutes between checkpoints within an epoch.")] = 5,
    device: use.Device = "auto",
    workers: Annotated[int | None, typer.Option(min=0, help="Processes that read images. (default: automatic)")] = None,
    out: Annotated[Path | None, typer.Option(help="The weights file. (default: where extract looks)")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing weights file.")] = False,
    data_dir: use.DataRoot = Path("data"),
    weights_dir: use.WeightsRoot = Path("weights"),
    quiet: use.Quiet = False,
) -> None:
    """Train a backbone on the base classes.

    Writes the weights, in half precision, where `fsbench extract` looks for them, and a card (.json) next to them.
    After an interruption, run the same command again to resume; on a CPU it ends with the same weights. Several
    processes share the work under torchrun.

    Example: [bold]fsbench train --backbone rn12 --dataset cifarfs[/bold]
    """
    with join_ranks() as ranks:
        settings = TrainSettings(
            backbone=backbone, width=width, epochs=epochs, batch=batch, lr=lr, seed=seed, rotation=rotation,
            mixup=mixup, flip=flip is not False, small_first=small_first, image_size=image_size, ranks=ranks.count,
        )  # fmt: skip
        reporter, where = Reporter(quiet, not ranks.leads), choose_device(device)
        own = OwnData.given(data, split_file, split_fractions, min_images, split_seed)
        chosen, *others = ranks.first_alone(lambda: choose_datasets(dataset, own, data_dir, reporter))
        if others:
            names = ", ".join(found.name for found in (chosen, *others))
            raise FsbenchError(f"Training takes one data set at a time, found {names}.", "Choose one with --dataset.")
        if flip is None and chosen.name == EMBEDDED:  # characters are not mirror images of each other
            settings = replace(settings, flip=False)
        path = out or default_output(weights_dir, chosen.name, backbone)
        execution = Execution(where, reporter, workers, eval_every, save_every, ranks)
        trained = train_backbone(chosen, settings, execution, path, force=force)
        if ranks.leads:
            stdout_console().print("\n".join(trained.describe()), soft_wrap=True)
