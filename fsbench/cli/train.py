"""`fsbench train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fsbench.backbones.families import BACKBONES
from fsbench.cli import complete
from fsbench.cli.options import DataRoot, Device, Quiet, WeightsRoot
from fsbench.errors import FsbenchError


def train(
    backbone: Annotated[
        str,
        typer.Option(help=f"One of {complete.NAMED_BACKBONES}.", autocompletion=complete.words(*BACKBONES)),
    ] = "rn12",
    dataset: Annotated[
        str | None, typer.Option(help="The data set. (default: the one found)", autocompletion=complete.datasets)
    ] = None,
    data: Annotated[Path | None, typer.Option(help="A folder of your own images.")] = None,
    split_file: Annotated[Path | None, typer.Option(help="With --data: json or csv that divides the classes.")] = None,
    split_fractions: Annotated[
        str | None, typer.Option(help="With --data: shares of base, val and novel classes, such as 0.64,0.16,0.2.")
    ] = None,
    width: Annotated[
        float | None, typer.Option(help="Base width (rn12, rn18), widening factor (wrn). (default: 64, 64, 10)")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the base images.")] = 100,
    batch: Annotated[int, typer.Option(min=2, help="Images per step, over all processes.")] = 64,
    lr: Annotated[float, typer.Option(help="Peak of the learning rate.")] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="Of the first weights and all draws.")] = 0,
    rotation: Annotated[bool, typer.Option("--rotation/--no-rotation", help="Also learn to tell rotations.")] = True,
    mixup: Annotated[bool, typer.Option("--mixup/--no-mixup", help="Also learn from images mixed midway.")] = True,
    flip: Annotated[
        bool | None, typer.Option("--flip/--no-flip", help="Mirror images at random. (default: not for glyphs)")
    ] = None,
    eval_every: Annotated[int, typer.Option(min=1, help="Epochs between two looks at the val classes.")] = 10,
    device: Device = "auto",
    workers: Annotated[int | None, typer.Option(min=0, help="Processes that read images. (default: chosen)")] = None,
    out: Annotated[Path | None, typer.Option(help="The weights file. (default: where extract looks)")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a weights file that is there.")] = False,
    data_dir: DataRoot = Path("data"),
    weights_dir: WeightsRoot = Path("weights"),
    quiet: Quiet = False,
) -> None:
    """Train a backbone on the base classes, as S2M2 and EASY do.

    The weights land where `fsbench extract` looks for them. Killed at any moment, the same command goes on after the
    last finished epoch. Several processes share the work under torchrun.

    Example: [bold]fsbench train --backbone rn12 --dataset cifarfs[/bold]
    """
    from dataclasses import replace

    from fsbench.data.catalog import EMBEDDED
    from fsbench.data.choose import OwnData, choose_datasets
    from fsbench.devices import choose_device
    from fsbench.ranks import join_ranks
    from fsbench.report.tables import stdout_console
    from fsbench.reporter import Reporter
    from fsbench.train.output import default_output
    from fsbench.train.run import train_backbone
    from fsbench.train.settings import Execution, TrainSettings

    with join_ranks() as ranks:
        settings = TrainSettings(
            backbone, width, epochs, batch, lr, seed, rotation, mixup, flip is not False, ranks.count
        )  # fmt: skip
        reporter, where = Reporter(quiet, not ranks.leads), choose_device(device)
        own = OwnData.given(data, split_file, split_fractions)
        chosen = the_only(ranks.first_alone(lambda: choose_datasets(dataset, own, data_dir, reporter)))
        if flip is None and chosen.name == EMBEDDED:  # characters are not mirror images of each other
            settings = replace(settings, flip=False)
        path = out or default_output(weights_dir, chosen.name, backbone)
        execution = Execution(where, reporter, workers, eval_every, ranks)
        trained = train_backbone(chosen, settings, execution, path, force=force)
        if ranks.leads:
            stdout_console().print("\n".join(trained.describe()), soft_wrap=True)


def the_only(datasets: list[Any]) -> Any:
    """The one data set to train on."""
    if len(datasets) > 1:
        names = ", ".join(dataset.name for dataset in datasets)
        raise FsbenchError(f"One data set is trained on at a time, found {names}.", "Choose one with --dataset.")
    return datasets[0]
