"""`fsbench train`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fsbench.cli.options import Train
from fsbench.data.catalog import EMBEDDED
from fsbench.data.pixels import pixel_cache
from fsbench.data.scan import OwnData, choose_datasets
from fsbench.devices import choose_device
from fsbench.errors import FsbenchError, unknown_name
from fsbench.ranks import join_ranks
from fsbench.report.writers import stdout_console
from fsbench.reporter import Reporter
from fsbench.train.run import default_output, train_backbone
from fsbench.train.settings import CLASSES, RECIPES, Episodes, Execution, TrainSettings

# What is usual in a training on tasks.
ON_TASKS: dict[str, Any] = {"backbone": "conv4", "epochs": 30, "batch": 4, "lr": 1e-3}


def train(options: Train) -> None:
    """Train a backbone on the base classes of one data set, and print where its weights are."""
    recipe = options.recipe
    if recipe not in RECIPES:
        raise unknown_name("recipe", recipe, RECIPES)
    on_tasks = recipe != CLASSES
    if on_tasks and (options.rotation or options.mixup or options.precision != "fp32"):
        hint = f"Leave out these or --recipe {recipe}."
        raise FsbenchError("--rotation, --mixup and --precision belong to a training on classes.", hint)
    given = {name: getattr(options, name, None) for name in TrainSettings.__annotations__}
    chosen: dict[str, Any] = ON_TASKS if on_tasks else {}
    chosen = chosen | {name: value for name, value in given.items() if value is not None}
    inner: dict[str, Any] = {"steps": options.inner_steps, "rate": options.inner_rate}
    episodes = Episodes(
        recipe, options.shots, second_order=not options.first_order, eval_every=options.eval_every, **inner
    )
    with join_ranks() as ranks:
        settings = TrainSettings(**chosen, ranks=ranks.count, episodes=episodes if on_tasks else None)
        reporter, device = Reporter(options.quiet, not ranks.leads), choose_device(options.device)
        own = OwnData.given(options)
        dataset, *others = ranks.first_alone(lambda: choose_datasets(options.dataset, own, options.data_dir, reporter))
        if others:
            names = ", ".join(one.name for one in (dataset, *others))
            raise FsbenchError(f"Training takes one data set at a time, found {names}.", "Choose one with --dataset.")
        if options.flip is None and dataset.name == EMBEDDED:  # characters are not mirror images of each other
            settings = replace(settings, flip=False)
        path = options.out or default_output(options.weights_dir, dataset.name, settings.backbone, recipe)
        execution = Execution(
            device, reporter, eval_every=options.eval_every, ranks=ranks, cache=pixel_cache(options.data_dir)
        )
        trained = train_backbone(dataset, settings, execution, path, force=options.force)
        if ranks.leads:
            stdout_console().print("\n".join(trained.describe()), soft_wrap=True)
