"""From a data set to a weights file."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import fsbench
from fsbench.backbones.base import Backbone
from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.backbones.families import family_of
from fsbench.backbones.find_weights import SUFFIXES
from fsbench.backbones.load import encode_backbone, halve, load_backbone
from fsbench.data.dataset import counted
from fsbench.data.pixels import open_pixels
from fsbench.data.published_transforms import transform_for
from fsbench.devices import keep_freed_memory
from fsbench.errors import FsbenchError
from fsbench.features.shards import fingerprint
from fsbench.io.files import only_writer, whole_file
from fsbench.machine import library_versions
from fsbench.train.checkpoint import CheckpointFile, Progress
from fsbench.train.episodes import (
    LARGEST_SLOPE,
    OBJECTIVES,
    EpisodeKeys,
    EpisodeTrainer,
    EpisodeValidation,
    inner_facts,
)
from fsbench.train.images import Keys, load_batches, make_views
from fsbench.train.loop import ClassTrainer, choose_workers
from fsbench.train.settings import CLASSES, LABEL_SMOOTHING, MOMENTUM, WARM_UP, WEIGHT_DECAY
from fsbench.train.validate import Evaluation, Validation, best_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

    from fsbench.backbones.base import Extractor
    from fsbench.data.dataset import ImageDataset, ImageSplit
    from fsbench.data.transforms import EvalTransform
    from fsbench.train.images import Batch
    from fsbench.train.loop import Trainer
    from fsbench.train.settings import Execution, TrainSettings

SUFFIX = ".safetensors"
TRAINING_VERSION = 2  # rises whenever the same settings would give other weights


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Attributes:
        history: Accuracy on the val classes, the last epoch last; empty if the file was there already.
        seconds: Wall time spent, interruptions excluded.
        judged_by: The method of these accuracies.
        keeps_best: Whether the file holds the best of the evaluated networks, and not the last one.
    """

    path: Path
    history: tuple[Evaluation, ...] = ()
    seconds: float = 0.0
    judged_by: str = "nearest class mean"
    keeps_best: bool = False

    def describe(self) -> list[str]:
        """The file, and the accuracy of the network on the val classes."""
        lines = [str(self.path)]
        if self.seconds:
            lines.append(f"trained in {timedelta(seconds=round(self.seconds))}")
        if self.history:
            lines.append(f"val classes, 5-way, {self.judged_by}: {self.history[-1]}")
        if len(self.history) > 1:
            best = best_of(self.history)
            lines.append(f"best of {len(self.history)} evaluations: {best}, after epoch {best.epoch}")
        if self.keeps_best:
            lines.append("The file holds the best network on the val classes.")
        elif self.history:
            lines.append("The file holds the last epoch, where the learning rate is close to zero.")
        return lines


@dataclass(frozen=True)
class Plan:
    """A fresh network, what it is trained on, and the evaluation transform, whose normalisation training shares."""

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
        recipe = family_of(backbone.info.family).transform
        transform = transform_for(recipe, dataset.name, min(size) if size else None, settings.image_size)
        return cls(dataset, base, settings, backbone, transform)

    def describe(self) -> dict[str, Any]:
        """Everything that determines the weights, as plain data."""
        names = "\n".join(
            f"{self.base.class_names[label]}\t{self.base.image_name(row)}" for row, label in enumerate(self.base.labels)
        )
        settings = dataclasses.asdict(self.settings)
        optimiser: dict[str, Any] = {"momentum": MOMENTUM, "weight_decay": WEIGHT_DECAY, "warm_up": WARM_UP}
        if self.settings.episodes is None:
            del settings["episodes"]  # which trainings did not have at first
        else:
            optimiser = {"name": "Adam", "largest_slope": LARGEST_SLOPE, "warm_up": WARM_UP}
        return {
            **settings,
            "width": {name: str(value) for name, value in self.backbone.info.architecture.items()},
            "recipe": TRAINING_VERSION,
            "dataset": self.dataset.name,
            "images": fingerprint({"names": names}),
            "family": self.backbone.info.family,
            "transform": self.transform.describe(),
            "optimiser": optimiser,
            "label_smoothing": LABEL_SMOOTHING,
        }

    def metadata(self, progress: Progress) -> dict[str, Any]:
        """What the header of the weights file says about the training."""
        facts: dict[str, Any] = {
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
        if self.settings.episodes:
            facts |= {"recipe": self.settings.episodes.recipe, "inner": inner_facts(self.settings.episodes)}
        if progress.history:
            found = best_of(progress.history) if self.settings.episodes else progress.history[-1]
            facts["val_accuracy"] = str(found)
        return facts


def train_backbone(
    dataset: ImageDataset, settings: TrainSettings, execution: Execution, out: Path, *, force: bool = False
) -> Trained:
    """Train a fresh backbone on the base classes and save it with its card, unless that is done already.

    Killed at any moment, the same call resumes from the last checkpoint, and on a CPU it ends with the same weights.
    The val classes are used for evaluation if there are enough of them.
    """
    plan = Plan.make(dataset, settings)
    checkpoint = CheckpointFile.beside(out, fingerprint(plan.describe()))
    if not force and execution.ranks.agree(lambda: is_finished(out, checkpoint.fingerprint)):
        execution.reporter.say(f"{out} exists already, trained in the same way.")
        return Trained(out)
    check_output(out, settings.backbone, force=force)
    with ExitStack() as held:
        execution.ranks.agree(lambda: held.enter_context(only_writer(out)))
        progress, extras = _train(plan, execution, checkpoint)
        if execution.ranks.leads:
            _save(plan, progress, out, extras)
            checkpoint.path.unlink(missing_ok=True)
    recipe = settings.episodes.recipe if settings.episodes else ""
    judge = recipe if recipe not in {"", "protonet"} else Trained.judged_by
    return Trained(out, progress.history, progress.seconds, judge, settings.episodes is not None)


def default_output(root: Path, dataset: str, backbone: str, recipe: str = "") -> Path:
    """Where weights are looked for: by `extract` for a backbone, by MAML and VERSA for a backbone and a recipe."""
    own_name = f"-{recipe.replace(':', '-')}" if recipe not in {"", CLASSES, "protonet"} else ""
    return root / dataset / f"{backbone}{own_name}{SUFFIX}"


def is_finished(out: Path, mark: str) -> bool:
    """Whether the file holds the weights of the training with this fingerprint."""
    try:
        facts = json.loads(read_checkpoint(out).metadata.get("fsbench", "{}")) if out.is_file() else {}
    except (FsbenchError, ValueError):
        return False
    return isinstance(facts, dict) and facts.get("fingerprint") == mark


def check_output(out: Path, backbone: str, *, force: bool) -> None:
    """Refuse, before hours are spent, a file that could not be written or found again."""
    if out.suffix != SUFFIX or out.is_dir():
        raise FsbenchError(f"Weights are written to a file that ends in {SUFFIX}, got {out}.", "Change --out.")
    if out.exists() and not force:
        raise FsbenchError(
            f"{out} exists already and was made in another way.",
            "Write elsewhere with --out FILE, or replace it with --force.",
        )
    if out.stem == backbone and out.parent.is_dir():
        for other in sorted(out.parent.glob(f"{backbone}.*")):
            if other != out and SUFFIXES.fullmatch(other.name.removeprefix(backbone)):
                raise FsbenchError(
                    f"{other} exists already: `fsbench extract` would find two files for {backbone}.",
                    "Write elsewhere with --out FILE, or move that file away.",
                )


def _save(plan: Plan, progress: Progress, out: Path, extras: Mapping[str, Tensor]) -> None:
    """Write the card, then the weights: whoever finds the weights finds their card too."""
    facts = plan.metadata(progress)
    content = encode_backbone(plan.backbone, facts, extras)
    shown = ("recipe", "dataset", "split_digest", "image_size", "width", "seed", "epochs", "command", "val_accuracy")
    card = {
        "file": out.name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "backbone": plan.settings.backbone,
        **{name: facts[name] for name in shown if name in facts},
        "parameters": sum(parameter.numel() for parameter in plan.backbone.parameters()),
        "base_images": len(plan.base),
        "versions": json.loads(facts["versions"]),
        "seconds": {"wall": round(progress.seconds), "cpu": round(progress.cpu_seconds)},
    }
    with whole_file(out.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    with whole_file(out) as temporary:
        temporary.write_bytes(content)


def _train(plan: Plan, execution: Execution, checkpoint: CheckpointFile) -> tuple[Progress, Mapping[str, Tensor]]:
    """Take all steps that are left; gives what the weights file holds beside the backbone too."""
    settings, ranks, reporter, device = plan.settings, execution.ranks, execution.reporter, execution.device
    network = plan.backbone.network
    assert isinstance(network, Backbone)
    keep_freed_memory()
    views, in_memory = make_views(plan.base, plan.transform, settings, reporter, execution.cache)
    workers = choose_workers(execution.workers, device, in_memory)
    judge = _judge(plan, workers, execution)
    trainer: Trainer
    keys: Keys | EpisodeKeys
    if settings.episodes:
        keys = EpisodeKeys(settings, settings.episodes, plan.base.offsets, plan.transform.crop, ranks.number)
        trainer = EpisodeTrainer(network, keys, device, ranks)
    else:
        keys = Keys(settings, len(plan.base), plan.transform.crop, ranks.number)
        trainer = ClassTrainer(network, len(plan.base.class_names), settings, device, ranks)
    run = _Run(trainer, checkpoint, execution)
    first = run.progress.epochs, run.progress.steps
    keys = replace(keys, first=first)
    if first > (0, 0):
        within = f" and {first[1]} of {keys.steps} steps of the next one" if first[1] else ""
        reporter.say(f"Resuming: {first[0]} of {settings.epochs} epochs{within} are done.")
    batches = load_batches(views, keys, workers, device)
    eval_every = settings.episodes.eval_every if settings.episodes else execution.eval_every
    with run.explaining_interrupts():
        for epoch in range(first[0], settings.epochs):
            start, done = time.perf_counter(), run.progress.steps
            run.finish_epoch(batches, keys)
            speed = (keys.steps - done) * keys.batch / (time.perf_counter() - start)
            last = epoch + 1 == settings.epochs
            if last and settings.episodes is None:
                halve(network)
            history = run.progress.history
            if judge is not None and ranks.leads and (last or (epoch + 1) % eval_every == 0):
                history = (*history, judge(trainer.objective, epoch + 1))
                if settings.episodes and best_of(history) is history[-1]:
                    run.best = copy.deepcopy(trainer.objective.state_dict())
            loss = trainer.mean_loss()
            run.save(epochs=epoch + 1, steps=0, history=history)
            reporter.say(_line(run.progress, settings, loss, speed))
    if not isinstance(trainer, EpisodeTrainer):
        return run.progress, {}
    if run.best is not None:
        trainer.objective.load_state_dict(run.best)
    halve(trainer.objective)
    return run.progress, trainer.objective.extras()


class _Run:
    """The steps of a training and the checkpoints between them."""

    def __init__(self, trainer: Trainer, checkpoint: CheckpointFile, execution: Execution) -> None:
        self.trainer, self.checkpoint, self.execution = trainer, checkpoint, execution
        self.progress, self.best = checkpoint.restore(trainer.objective, trainer.optimiser)
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._step = self.progress.steps

    def finish_epoch(self, batches: Iterator[Batch | FsbenchError], keys: Keys | EpisodeKeys) -> None:
        """Take the remaining steps of the present epoch, saving now and then."""
        epoch, epochs = self.progress.epochs, self.trainer.settings.epochs
        with self.execution.reporter.bar(f"epoch {epoch + 1} of {epochs}", keys.steps * keys.batch) as advance:
            advance(self.progress.steps * keys.batch)
            for step in range(self.progress.steps, keys.steps):
                batch = next(batches)
                if isinstance(batch, FsbenchError):
                    raise batch
                self.trainer.step(batch, epoch, step, keys.steps)
                self._step = step + 1
                advance(keys.batch)
                if time.perf_counter() - self._wall >= 60 * self.execution.save_every and self._step < keys.steps:
                    self.trainer.require_finite(epoch)
                    self.save(steps=self._step)
        self.trainer.require_finite(epoch)

    def save(self, **changes: Any) -> None:
        """Write a checkpoint of the progress with these changes."""
        wall, cpu = time.perf_counter(), time.process_time()
        seconds = self.progress.seconds + wall - self._wall
        cpu_seconds = self.progress.cpu_seconds + cpu - self._cpu
        self.progress = replace(self.progress, **changes, seconds=seconds, cpu_seconds=cpu_seconds)
        self._wall, self._cpu, self._step = wall, cpu, self.progress.steps
        if self.execution.ranks.leads:
            self.checkpoint.write(self.trainer.objective, self.trainer.optimiser, self.progress, self.best)

    @contextmanager
    def explaining_interrupts(self) -> Iterator[None]:
        """Say what an interrupted training keeps and what it loses."""
        try:
            yield
        except Exception:
            raise
        except BaseException:  # Ctrl-C or a signal
            kept, lost = self.progress, self._step - self.progress.steps
            parts = [(kept.epochs, "epoch"), (kept.steps, "step")]
            where = " and ".join(counted(number, word, f"{word}s") for number, word in parts if number)
            later = counted(lost, "step", "steps")
            self.execution.reporter.warn(
                f"Kept: {where}, in {self.checkpoint.path}. Lost: {later} after the last checkpoint."
                if self.checkpoint.path.exists()
                else f"Stopped after {later}, before the first checkpoint, so nothing is kept yet."
            )
            raise


def _judge(plan: Plan, workers: int, execution: Execution) -> Callable[[Any, int], Evaluation] | None:
    """What evaluates an objective on the val classes after an epoch; None, with a warning, if they cannot be used."""
    split, reporter, episodes = plan.dataset.splits.get("val"), execution.reporter, plan.settings.episodes
    if split is None:
        reporter.warn(f"{plan.dataset.name} has no val classes: the network will not be evaluated.")
        return None
    validation = Validation(split, plan.transform, workers)
    if refusal := validation.refusal():
        reporter.warn(f"The val classes of {plan.dataset.name} are not evaluated: {refusal.message}")
        return None
    if episodes is None or OBJECTIVES[episodes.recipe].method is None:
        return lambda objective, epoch: validation(objective.backbone, execution.device, epoch)
    pixels = open_pixels(split, plan.transform, execution.cache, reporter)
    facts = {"inner": inner_facts(episodes)}
    with_method = EpisodeValidation(split, pixels, plan.transform, plan.backbone.info, facts, episodes)
    return lambda objective, epoch: with_method(objective, execution.device, epoch)


def _line(progress: Progress, settings: TrainSettings, loss: float, speed: float) -> str:
    epochs = settings.epochs
    left = progress.seconds / progress.epochs * (epochs - progress.epochs)
    line = (
        f"epoch {progress.epochs} of {epochs}: loss {loss:.3f}, {speed:,.{0 if speed >= 10 else 1}f} {settings.unit}/s"
    )
    line += f", {timedelta(seconds=round(left))} left" if progress.epochs < epochs else ""
    evaluated = progress.history and progress.history[-1].epoch == progress.epochs
    return f"{line}; val {progress.history[-1]}" if evaluated else line
