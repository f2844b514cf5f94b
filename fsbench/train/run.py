"""From a data set to a weights file."""

from __future__ import annotations

import copy
import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

import fsbench
from fsbench.backbones.base import Backbone, Extractor
from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.backbones.families import family_of
from fsbench.backbones.load import encode_backbone, halve, load_backbone
from fsbench.data.dataset import ImageDataset, ImageSplit
from fsbench.data.pixels import open_pixels
from fsbench.data.transforms import EvalTransform, transform_for
from fsbench.devices import keep_freed_memory
from fsbench.errors import FsbenchError
from fsbench.features.contents import INDEX, HashedSplit, hashed
from fsbench.features.store import digest, library_versions
from fsbench.io.files import only_writer, whole_file
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import check_feasible, pool_sizes
from fsbench.train.checkpoint import CheckpointFile, Progress, changes
from fsbench.train.episodes import LARGEST_SLOPE, OBJECTIVES, EpisodeKeys, EpisodeTrainer
from fsbench.train.images import Batch, Keys, load_batches, make_views
from fsbench.train.loop import ClassTrainer, Trainer, choose_workers
from fsbench.train.settings import CLASSES, LABEL_SMOOTHING, MOMENTUM, WARM_UP, WEIGHT_DECAY, Execution, TrainSettings
from fsbench.train.validate import SHOTS, Evaluation, Validation, best_of

if TYPE_CHECKING:
    from fsbench.reporter import Reporter

SUFFIX = ".safetensors"
TRAINING_VERSION = 2  # rises whenever the same settings would give other weights


@dataclass(frozen=True)
class Trained:
    """A finished training."""

    path: Path
    history: tuple[Evaluation, ...] = ()  # accuracy on the val classes; empty if the file existed already
    seconds: float = 0.0  # wall time, interruptions excluded
    judged_by: str = "nearest class mean"
    keeps_best: bool = False  # whether the file holds the best of the evaluated networks, and not the last one

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
        settings = dataclasses.asdict(self.settings)
        episodes = settings.pop("episodes")
        optimiser = {"momentum": MOMENTUM, "weight_decay": WEIGHT_DECAY, "label_smoothing": LABEL_SMOOTHING}
        facts = {
            **settings,
            **({**episodes, "largest_slope": LARGEST_SLOPE} if episodes else optimiser),
            "image_size": self.transform.crop,
            "version": TRAINING_VERSION,
            "warm_up": WARM_UP,
            "dataset": self.dataset.name,
            "transform": self.transform.describe(),
        }
        for name in ("base", "val") if episodes else ("base",):  # val chooses among networks
            if isinstance(split := self.dataset.splits.get(name), HashedSplit):
                names = [(split.class_names[label], split.images[row]) for row, label in enumerate(split.labels)]
                facts[f"{name} images"] = len(split)
                facts[f"names of {name} images"] = digest(names)[:16]
                facts[f"content of {name} images"] = digest(split.hashes)[:16]
        plain: dict[str, Any] = json.loads(json.dumps(facts))
        return plain

    def metadata(self, progress: Progress) -> dict[str, Any]:
        """What the header of the weights file says about the training."""
        episodes, versions = self.settings.episodes, {"fsbench": fsbench.__version__, **library_versions()}
        facts = {**self.describe(), "split_digest": self.dataset.split_digest, "versions": versions}
        if episodes:
            facts["inner"] = episodes.inner
        if progress.history:
            facts["val_accuracy"] = str(best_of(progress.history) if episodes else progress.history[-1])
        return facts


def train_backbone(
    dataset: ImageDataset, settings: TrainSettings, execution: Execution, out: Path, *, force: bool = False
) -> Trained:
    """Train a fresh backbone on the base classes and save it, unless that is done already.

    Killed at any moment, the same call resumes after the last finished epoch, and on a CPU it ends with the same
    weights. The val classes are used for evaluation if there are enough of them.
    """
    if out.suffix != SUFFIX or out.is_dir():
        raise FsbenchError(f"Weights are written to a file that ends in {SUFFIX}, got {out}.", "Change --out.")
    ranks, index = execution.ranks, execution.cache and execution.cache / INDEX
    plan = Plan.make(hashed(dataset, index, execution.reporter, ranks), settings)
    checkpoint = CheckpointFile(out.with_name(f".{out.name}.training"), plan.describe())
    if not force and ranks.agree(lambda: _is_finished(out, checkpoint.training)):
        execution.reporter.say(f"{out} exists already, trained in the same way.")
        return Trained(out)
    with ExitStack() as held:
        ranks.agree(lambda: held.enter_context(only_writer(out)))
        progress, extras = _train(plan, execution, checkpoint)
        if ranks.leads:
            content = encode_backbone(plan.backbone, plan.metadata(progress), extras)
            with whole_file(out) as temporary:
                temporary.write_bytes(content)
            checkpoint.path.unlink(missing_ok=True)
    recipe = settings.episodes.recipe if settings.episodes else ""
    judge = recipe if recipe not in {"", "protonet"} else Trained.judged_by
    return Trained(out, progress.history, progress.seconds, judge, settings.episodes is not None)


def default_output(root: Path, dataset: str, backbone: str, recipe: str = "") -> Path:
    """Where weights are looked for: by `extract` for a backbone, by MAML and VERSA for a backbone and a recipe."""
    own_name = f"-{recipe.replace(':', '-')}" if recipe not in {"", CLASSES, "protonet"} else ""
    return root / dataset / f"{backbone}{own_name}{SUFFIX}"


def _is_finished(out: Path, training: Mapping[str, Any]) -> bool:
    """Whether the file holds the weights of this training; a file of another one is refused, with what differs."""
    if not out.exists():
        return False
    try:
        header = json.loads(read_checkpoint(out).metadata["fsbench"])
        different = changes({name: header.get(name) for name in training}, training)
    except (FsbenchError, ValueError, KeyError, AttributeError):
        different = ["it does not say how"]
    if different:
        raise FsbenchError(
            "\n  ".join([f"{out} exists already and was made in another way:", *different]),
            "Write elsewhere with --out FILE, or replace it with --force.",
        )
    return True


def _train(plan: Plan, execution: Execution, checkpoint: CheckpointFile) -> tuple[Progress, Mapping[str, Tensor]]:
    """Train for the epochs that are left; gives what the weights file holds beside the backbone too."""
    settings, ranks, reporter, device = plan.settings, execution.ranks, execution.reporter, execution.device
    network = plan.backbone.network
    assert isinstance(network, Backbone)
    keep_freed_memory()
    views = make_views(plan.base, plan.transform, settings, reporter, execution.cache)
    workers = choose_workers(execution.workers, device, views.decoded is not None)
    validation = _validation(plan, execution)
    trainer: Trainer
    keys: Keys | EpisodeKeys
    if settings.episodes:
        keys = EpisodeKeys(settings, settings.episodes, plan.base.offsets, ranks.number)
        trainer = EpisodeTrainer(network, keys, device, ranks)
    else:
        keys = Keys(settings, len(plan.base), ranks.number)
        trainer = ClassTrainer(network, len(plan.base.class_names), settings, device, ranks)
    progress, best = checkpoint.restore(trainer.objective, trainer.optimiser)
    if progress.epochs:
        reporter.say(f"Resuming: {progress.epochs} of {settings.epochs} epochs are done.")
    batches = load_batches(views, replace(keys, first=progress.epochs), workers, device)
    eval_every = settings.episodes.eval_every if settings.episodes else execution.eval_every
    with _explaining_interrupts(checkpoint.path, execution):
        for epoch in range(progress.epochs + 1, settings.epochs + 1):
            start = time.perf_counter()
            _take_steps(trainer, batches, keys, epoch, reporter)
            speed = keys.steps * keys.batch / (time.perf_counter() - start)
            if epoch == settings.epochs and settings.episodes is None:
                halve(network)
            history = progress.history
            if validation is not None and ranks.leads and (epoch == settings.epochs or epoch % eval_every == 0):
                history = (*history, _evaluate(validation, trainer, plan, epoch))
                if settings.episodes and best_of(history) is history[-1]:
                    best = copy.deepcopy(trainer.objective.state_dict())
            loss = trainer.mean_loss()
            progress = Progress(epoch, progress.seconds + time.perf_counter() - start, history)
            if ranks.leads:
                checkpoint.write(trainer.objective, trainer.optimiser, progress, best)
            reporter.say(_line(progress, settings, loss, speed))
    if not settings.episodes:
        return progress, {}
    objective: Any = trainer.objective
    if best is not None:
        objective.load_state_dict(best)
    halve(objective)
    return progress, objective.extras()


def _take_steps(
    trainer: Trainer, batches: Iterator[Batch | FsbenchError], keys: Keys | EpisodeKeys, epoch: int, reporter: Reporter
) -> None:
    """Take all steps of an epoch; epochs count from 1."""
    label = f"epoch {epoch} of {trainer.settings.epochs}"
    with reporter.bar(label, keys.steps * keys.batch) as advance:
        for step in range(keys.steps):
            batch = next(batches)
            if isinstance(batch, FsbenchError):
                raise batch
            trainer.step(batch, epoch - 1, step, keys.steps)
            advance(keys.batch)
    trainer.require_finite(epoch)


@contextmanager
def _explaining_interrupts(path: Path, execution: Execution) -> Iterator[None]:
    """Say what an interrupted training keeps and what it loses."""
    try:
        yield
    except Exception:
        raise
    except BaseException:  # Ctrl-C or a signal
        kept = f"Kept: the finished epochs, in {path}. Lost: the steps after them."
        execution.reporter.warn(kept if path.exists() else "The first epoch was not finished, so nothing is kept yet.")
        raise


def _validation(plan: Plan, execution: Execution) -> Validation | None:
    """What evaluates networks on the val classes; None, with a warning, if these cannot be used."""
    split, reporter = plan.dataset.splits.get("val"), execution.reporter
    if split is None:
        reporter.warn(f"{plan.dataset.name} has no val classes: the network will not be evaluated.")
        return None
    try:
        for shots in SHOTS:
            protocol = TaskProtocol(shots=shots, alpha=None)
            check_feasible(protocol, pool_sizes(protocol, split.offsets))
    except FsbenchError as refusal:
        reporter.warn(f"The val classes of {plan.dataset.name} are not evaluated: {refusal.message}")
        return None
    pixels = open_pixels(split, plan.transform, execution.cache, reporter)
    return Validation(split, pixels, plan.transform, execution.device)


def _evaluate(validation: Validation, trainer: Trainer, plan: Plan, epoch: int) -> Evaluation:
    episodes, objective = plan.settings.episodes, trainer.objective
    if episodes is None or OBJECTIVES[episodes.recipe].method is None:
        return validation.of_backbone(plan.backbone.network, epoch)
    return validation.of_method(objective, plan.backbone.info, episodes, epoch)


def _line(progress: Progress, settings: TrainSettings, loss: float, speed: float) -> str:
    left = progress.seconds / progress.epochs * (settings.epochs - progress.epochs)
    line = f"epoch {progress.epochs} of {settings.epochs}: loss {loss:.3f}, "
    line += f"{speed:,.{0 if speed >= 10 else 1}f} {settings.unit}/s"
    line += f", {timedelta(seconds=round(left))} left" if left else ""
    evaluated = progress.history and progress.history[-1].epoch == progress.epochs
    return f"{line}; val {progress.history[-1]}" if evaluated else line
