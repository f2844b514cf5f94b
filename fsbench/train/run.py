"""From a data set to a weights file."""

from __future__ import annotations

import dataclasses
import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import fsbench
from fsbench.backbones.base import Backbone
from fsbench.backbones.families import family_of
from fsbench.backbones.load import load_backbone, save_backbone
from fsbench.data.recipes import transform_for
from fsbench.errors import FsbenchError
from fsbench.features.shards import fingerprint
from fsbench.io.locks import only_writer
from fsbench.machine import library_versions
from fsbench.train.checkpoint import CheckpointFile, Progress
from fsbench.train.loop import Keys, Trainer, choose_workers, load_batches
from fsbench.train.output import check_output, is_finished
from fsbench.train.settings import MOMENTUM, WARM_UP, WEIGHT_DECAY
from fsbench.train.validate import Evaluation, Validation, best_of
from fsbench.train.views import make_views

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.backbones.base import Extractor
    from fsbench.data.dataset import ImageDataset, ImageSplit
    from fsbench.data.transforms import EvalTransform
    from fsbench.reporter import Reporter
    from fsbench.train.settings import Execution, TrainSettings


RECIPE = 1  # rises whenever the same settings would give other weights


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Attributes:
        path: The weights file.
        history: What was found on the val classes, the last epoch last; empty if nothing was done this time.
        seconds: Time spent, interruptions left out.
    """

    path: Path
    history: tuple[Evaluation, ...] = ()
    seconds: float = 0.0

    def describe(self) -> list[str]:
        """The file, and how good the network is on the val classes, in sentences."""
        lines = [str(self.path)]
        if self.seconds:
            lines.append(f"trained in {timedelta(seconds=round(self.seconds))}")
        if self.history:
            last, best = self.history[-1], best_of(self.history)
            lines.append(f"val classes, 5-way, nearest class mean: {last}")
            lines.append(f"best of {len(self.history)} looks: {best}, after epoch {best.epoch}")
            lines.append("Saved is the last epoch, where the learning rate has come down to zero.")
        return lines


@dataclass(frozen=True)
class Plan:
    """What is trained on what.

    Attributes:
        dataset: The data set.
        base: Its base images.
        settings: What else determines the weights.
        backbone: The fresh network.
        transform: The evaluation transform, whose size and normalisation training shares.
    """

    dataset: ImageDataset
    base: ImageSplit
    settings: TrainSettings
    backbone: Extractor
    transform: EvalTransform

    @classmethod
    def make(cls, dataset: ImageDataset, settings: TrainSettings) -> Plan:
        """A fresh network and the transform that belongs to it."""
        base = dataset.splits.get("base")
        if base is None or len(base.class_names) < 2:
            raise FsbenchError(
                f"Training needs at least two base classes, and {dataset.name} has "
                f"{len(base.class_names) if base else 'none'}.",
                f"Expected them in {dataset.root}; see `fsbench doctor`.",
            )
        backbone = load_backbone(settings.backbone, random_seed=settings.seed, width=settings.width)
        size = dataset.common_size() if dataset.info is None else None
        recipe = family_of(backbone.info.family).recipe
        transform = transform_for(recipe, dataset.name, min(size) if size else None)
        return cls(dataset, base, settings, backbone, transform)

    def describe(self) -> dict[str, Any]:
        """Everything that determines the weights, as plain data."""
        names = "\n".join(
            f"{self.base.class_names[label]}\t{self.base.image_name(row)}" for row, label in enumerate(self.base.labels)
        )
        return {
            **dataclasses.asdict(self.settings),
            "width": {name: str(value) for name, value in self.backbone.info.architecture.items()},
            "recipe": RECIPE,
            "dataset": self.dataset.name,
            "images": fingerprint({"names": names}),
            "family": self.backbone.info.family,
            "transform": self.transform.describe(),
            "optimiser": {"momentum": MOMENTUM, "weight_decay": WEIGHT_DECAY, "warm_up": WARM_UP},
        }

    def metadata(self, progress: Progress) -> dict[str, str]:
        """What the header of the weights file says about the training."""
        facts = {
            "dataset": self.dataset.name,
            "split_digest": self.dataset.split_digest,
            "image_size": str(self.transform.crop),
            "seed": str(self.settings.seed),
            "epochs": str(self.settings.epochs),
            "width": "standard" if self.settings.width is None else f"{self.settings.width:g}",
            "command": self.settings.command(self.dataset),
            "training": json.dumps(self.describe(), sort_keys=True),
            "fingerprint": fingerprint(self.describe()),
            "versions": json.dumps({"fsbench": fsbench.__version__, **library_versions()}, sort_keys=True),
        }
        if progress.history:
            facts["val_accuracy"] = str(progress.history[-1])
        return facts


def train_backbone(
    dataset: ImageDataset, settings: TrainSettings, execution: Execution, out: Path, *, force: bool = False
) -> Trained:
    """Train a fresh backbone on the base classes and save it, or find that it is there already.

    Killed at any moment, the same call goes on after the last finished epoch and ends with the same weights.

    Args:
        dataset: With base classes; val classes are looked at if there are enough of them.
        settings: What determines the weights.
        execution: What does not.
        out: The weights file to write.
        force: Replace a finished file.
    """
    plan = Plan.make(dataset, settings)
    checkpoint = CheckpointFile.beside(out, fingerprint(plan.describe()))
    if not force and execution.ranks.agree(lambda: is_finished(out, checkpoint.fingerprint)):
        execution.reporter.say(f"{out} is there already, trained in the same way.")
        return Trained(out)
    check_output(out, settings.backbone, force=force)
    with ExitStack() as held:
        execution.ranks.agree(lambda: held.enter_context(only_writer(out)))
        progress = _train(plan, execution, checkpoint)
        if execution.ranks.leads:
            save_backbone(plan.backbone, out, plan.metadata(progress))
            checkpoint.discard()
    return Trained(out, progress.history, progress.seconds)


def _train(plan: Plan, execution: Execution, checkpoint: CheckpointFile) -> Progress:
    """Take all epochs that are left."""
    settings, ranks, reporter, device = plan.settings, execution.ranks, execution.reporter, execution.device
    views, in_memory = make_views(plan.base, plan.transform, plan.dataset.name, settings, reporter)
    workers = choose_workers(execution.workers, device, in_memory)
    validation = _validation(plan, workers, reporter)
    network = plan.backbone.network
    assert isinstance(network, Backbone)
    trainer = Trainer(network, len(plan.base.class_names), settings, device, ranks)
    progress = checkpoint.restore(trainer.objective, trainer.optimiser)
    if progress.epochs:
        reporter.say(f"Going on: {progress.epochs} of {settings.epochs} epochs are done.")
    keys = Keys(settings, len(plan.base), ranks.number, progress.epochs)
    batches = load_batches(views, keys, workers, device)
    for epoch in range(progress.epochs, settings.epochs):
        start = time.perf_counter()
        with reporter.bar(f"epoch {epoch + 1} of {settings.epochs}", keys.steps * keys.batch) as advance:
            loss = trainer.epoch(epoch, batches, keys.steps, advance)
        speed = keys.steps * keys.batch / (time.perf_counter() - start)
        history = progress.history
        due = (epoch + 1) % execution.eval_every == 0 or epoch + 1 == settings.epochs
        if due and validation is not None and ranks.leads:
            history = (*history, validation(network, device, epoch + 1))
        progress = Progress(epoch + 1, progress.seconds + time.perf_counter() - start, history)
        if ranks.leads:
            checkpoint.write(trainer.objective, trainer.optimiser, progress)
        reporter.say(_line(progress, settings.epochs, loss, speed))
    return progress


def _validation(plan: Plan, workers: int, reporter: Reporter) -> Validation | None:
    split = plan.dataset.splits.get("val")
    if split is None:
        reporter.warn(f"{plan.dataset.name} has no val classes: nothing will tell how good the features are.")
        return None
    validation = Validation(split, plan.transform, workers)
    if refusal := validation.refusal():
        reporter.warn(f"The val classes of {plan.dataset.name} are not looked at: {refusal.message}")
        return None
    return validation


def _line(progress: Progress, epochs: int, loss: float, speed: float) -> str:
    left = progress.seconds / progress.epochs * (epochs - progress.epochs)
    line = f"epoch {progress.epochs} of {epochs}: loss {loss:.3f}, {speed:,.0f} images/s"
    line += f", {timedelta(seconds=round(left))} left" if progress.epochs < epochs else ""
    looked = progress.history and progress.history[-1].epoch == progress.epochs
    return f"{line}; val {progress.history[-1]}" if looked else line
