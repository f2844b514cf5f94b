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
from fsbench.data.pixels import pixel_cache
from fsbench.devices import choose_device
from fsbench.errors import FsbenchError, unknown_name
from fsbench.evaluation.spec import parse_numbers
from fsbench.methods.maml import ADAPTED
from fsbench.ranks import join_ranks
from fsbench.report.tables import stdout_console
from fsbench.reporter import Reporter
from fsbench.train.run import default_output, train_backbone
from fsbench.train.settings import CLASSES, HEADS, RECIPES, Episodes, Execution, TrainSettings


def train(
    backbone: Annotated[
        str | None,
        typer.Option(
            help=f"One of {complete.NAMED_BACKBONES}. (default: rn12; on tasks conv4)",
            autocompletion=complete.words(*BACKBONES),
        ),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            help=f"{CLASSES} trains on the base classes; {', '.join(RECIPES[1:])} on tasks drawn from them.",
            autocompletion=complete.words(*RECIPES),
        ),
    ] = CLASSES,
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
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Passes over the base images, or times 100 updates on tasks. (default: 20, 30)"),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Images, or tasks, per step, over all processes. (default: 64, 4)")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate. (default: 0.1, on tasks 0.001)")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    rotation: Annotated[bool, typer.Option(help="Add a rotation loss.")] = False,
    mixup: Annotated[bool, typer.Option(help="Add a pass with manifold mixup.")] = False,
    flip: Annotated[bool | None, typer.Option(help="Mirror images at random. (default: not for glyphs)")] = None,
    small_first: Annotated[bool, typer.Option(help="Train on smaller images in the first half.")] = False,
    shots: Annotated[str, use.of_tasks(help="Support images per class, taking turns from update to update.")] = "1,5",
    inner_steps: Annotated[int, use.of_tasks(min=1, help="MAML: steps within a task.")] = 5,
    inner_rate: Annotated[float, use.of_tasks(help="MAML: rate of these steps.")] = 0.1,
    adapts: Annotated[
        str,
        use.of_tasks(help=f"MAML: what they change: {', '.join(ADAPTED)}.", autocompletion=complete.words(*ADAPTED)),
    ] = "all",
    first_order: Annotated[bool, use.of_tasks("--first-order", help="MAML: no gradients through them.")] = False,
    head: Annotated[
        str,
        use.of_tasks(help=f"MAML: start of the head: {', '.join(HEADS)}.", autocompletion=complete.words(*HEADS)),
    ] = "zero",
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

    The recipes maml and versa train the networks of the methods of that name, protonet one for extract.

    Example: [bold]fsbench train --backbone rn12 --dataset cifarfs[/bold]
    """
    if recipe not in RECIPES:
        raise unknown_name("recipe", recipe, RECIPES)
    if adapts not in ADAPTED:
        raise unknown_name("choice of parameters that adapt", adapts, ADAPTED)
    on_tasks = recipe != CLASSES
    if on_tasks and (rotation or mixup or small_first):
        raise FsbenchError(
            "--rotation, --mixup and --small-first belong to a training on classes.",
            f"Leave out these or --recipe {recipe}.",
        )
    episodes = Episodes(
        recipe, tuple(parse_numbers(shots, "shots")), steps=inner_steps, rate=inner_rate, adapts=adapts,
        second_order=not first_order, head=head, eval_every=eval_every,
    ) if on_tasks else None  # fmt: skip
    backbone = backbone or ("conv4" if on_tasks else "rn12")
    with join_ranks() as ranks:
        settings = TrainSettings(
            backbone=backbone, width=width, epochs=epochs or (30 if on_tasks else 20),
            batch=batch or (4 if on_tasks else 64), lr=(1e-3 if on_tasks else 0.1) if lr is None else lr, seed=seed,
            rotation=rotation, mixup=mixup, flip=flip is not False, small_first=small_first, image_size=image_size,
            ranks=ranks.count, episodes=episodes,
        )  # fmt: skip
        reporter, where = Reporter(quiet, not ranks.leads), choose_device(device)
        own = OwnData.given(data, split_file, split_fractions, min_images, split_seed)
        chosen, *others = ranks.first_alone(lambda: choose_datasets(dataset, own, data_dir, reporter))
        if others:
            names = ", ".join(found.name for found in (chosen, *others))
            raise FsbenchError(f"Training takes one data set at a time, found {names}.", "Choose one with --dataset.")
        if flip is None and chosen.name == EMBEDDED:  # characters are not mirror images of each other
            settings = replace(settings, flip=False)
        path = out or default_output(weights_dir, chosen.name, backbone, recipe)
        execution = Execution(where, reporter, workers, eval_every, save_every, ranks, pixel_cache(data_dir))
        trained = train_backbone(chosen, settings, execution, path, force=force)
        if ranks.leads:
            stdout_console().print("\n".join(trained.describe()), soft_wrap=True)
