"""From a data set to a weights file.

After every epoch the state of a training is stored in a checkpoint, from which it resumes. On a CPU it ends as without
an interruption, bit for bit. On GPUs sums are added in an order that varies from run to run, with an interruption or
without, so that weights differ by rounding errors.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from torch import Tensor, nn

import fsbench
from fsbench.backbones.checkpoints import read_checkpoint
from fsbench.backbones.families import FAMILIES
from fsbench.backbones.load import encode_backbone, halve, load_backbone
from fsbench.backbones.networks import Backbone, BackboneInfo, Extractor
from fsbench.data.dataset import ImageDataset, ImageSplit
from fsbench.data.pixels import decode, normalised
from fsbench.data.transforms import EvalTransform, transform_for
from fsbench.devices import float32_products, keep_freed_memory
from fsbench.errors import FsbenchError
from fsbench.evaluation.engine import TaskList, solve
from fsbench.features.extract import refuse_tf32
from fsbench.features.image_hashes import INDEX, hashed
from fsbench.features.store import Split, digest, library_versions, make_split
from fsbench.io.files import only_writer, whole_file
from fsbench.io.torch_files import read_torch
from fsbench.methods.base import Context
from fsbench.methods.images.networks import ImageNetwork
from fsbench.methods.simpleshot import SimpleShot
from fsbench.results.metrics import ACCURACY
from fsbench.results.statistics import Interval, interval
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import feasible_sizes
from fsbench.train.episodes import OBJECTIVES, EpisodeKeys
from fsbench.train.images import Keys, make_views
from fsbench.train.loop import Objective, Trainer
from fsbench.train.settings import CLASSES, Episodes, Execution, TrainSettings

SUFFIX = ".safetensors"
CHECKPOINT_FORMAT = "fsbench-training-3"
SHOTS, TASKS = (1, 5), 500  # of an evaluation on the val classes
METHOD_TASKS = 100  # of a method on images, which takes longer
_VAL_SEED = 0  # the tasks are the same in every training, whatever its own seed
_AT_ONCE = 256  # images


@dataclass(frozen=True)
class Evaluation:
    """Few-shot accuracy on the val classes in percent, by number of shots, after so many finished epochs."""

    epoch: int
    accuracy: dict[int, Interval]

    def __str__(self) -> str:
        values = self.accuracy.items()
        return ", ".join(f"{shots}-shot {value.mean:.2f} ± {value.half_width:.2f} %" for shots, value in values)


def best_of(history: Sequence[Evaluation]) -> Evaluation:
    """The evaluation with the highest accuracy at the fewest shots; of equals the latest."""
    return max(history, key=lambda look: (look.accuracy[min(look.accuracy)].mean, look.epoch))


@dataclass(frozen=True)
class Progress:
    """How far a training has come: finished epochs, wall time without interruptions, accuracy on the val classes."""

    epochs: int = 0
    seconds: float = 0.0
    history: tuple[Evaluation, ...] = ()


@dataclass(frozen=True)
class Trained:
    """A finished training; the progress is empty if the file existed already."""

    path: Path
    settings: TrainSettings
    progress: Progress = Progress()

    def describe(self) -> list[str]:
        """The file, and the accuracy of the network in it on the val classes."""
        lines, episodes = [str(self.path)], self.settings.episodes
        if self.progress.epochs:
            lines.append(f"trained in {timedelta(seconds=round(self.progress.seconds))}")
        if look := _look_at(self.settings, self.progress):
            judge = "nearest class mean" if episodes is None else episodes.recipe
            kept = "the best on the val classes" if episodes else "the last one"
            lines += [f"val classes, 5-way, {judge}: {look}", f"The file holds epoch {look.epoch}, {kept}."]
        return lines


def _look_at(settings: TrainSettings, progress: Progress) -> Evaluation | None:
    """The evaluation of the network that the weights file holds: the best of a training on tasks, else the last."""
    if not progress.history:
        return None
    return best_of(progress.history) if settings.episodes else progress.history[-1]


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
            has = f"{dataset.name} has {len(base.class_names) if base else 'none'}"
            hint = f"Expected them in {dataset.root}; see `fsbench doctor`."
            raise FsbenchError(f"Training needs at least two base classes, and {has}.", hint)
        backbone = load_backbone(settings.backbone, random_seed=settings.seed, width=settings.width)
        side = dataset.common_side() if dataset.info is None else None
        transform = transform_for(FAMILIES[backbone.info.family].transform, dataset.name, side, settings.image_size)
        return cls(dataset, base, settings, backbone, transform)

    def describe(self) -> dict[str, Any]:
        """Everything that determines the weights, as plain data."""
        facts = {
            **self.settings.facts(),
            "image_size": self.transform.crop,
            "dataset": self.dataset.name,
            "transform": dataclasses.asdict(self.transform),
        }
        for name in ("base", "val") if self.settings.episodes else ("base",):  # val chooses among networks
            if split := self.dataset.splits.get(name):
                names = [(split.class_names[label], split.images[row]) for row, label in enumerate(split.labels)]
                facts[f"{name} images"] = len(split)
                facts[f"names of {name} images"] = digest(names)[:16]
                facts[f"content of {name} images"] = digest(split.hashes)[:16]
        plain: dict[str, Any] = json.loads(json.dumps(facts))
        return plain

    def metadata(self, progress: Progress) -> dict[str, Any]:
        """What the header of the weights file says about the training."""
        versions = {"fsbench": fsbench.__version__, **library_versions()}
        classes = {"split_digest": self.dataset.split_digest, "classes": self.base.class_names}
        facts = {**self.describe(), **classes, "versions": versions}
        if self.settings.episodes:
            facts["inner"] = self.settings.episodes.inner
        if look := _look_at(self.settings, progress):
            facts["val_accuracy"] = str(look)
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
    refuse_tf32(settings.precision, execution.device)
    ranks, index = execution.ranks, execution.cache and execution.cache / INDEX
    plan = Plan.make(hashed(dataset, index, execution.reporter, ranks), settings)
    if not force and ranks.agree(lambda: _is_finished(out, plan.describe())):
        execution.reporter.say(f"{out} exists already, trained in the same way.")
        return Trained(out, settings)
    with ExitStack() as held:
        ranks.agree(lambda: held.enter_context(only_writer(out)))
        checkpoint = out.with_name(f".{out.name}.training")
        held.enter_context(float32_products(settings.precision == "tf32"))
        progress, extras = _train(plan, execution, checkpoint)
        if ranks.leads:
            content = encode_backbone(plan.backbone, plan.metadata(progress), extras)
            with whole_file(out) as temporary:
                temporary.write_bytes(content)
            checkpoint.unlink(missing_ok=True)
    return Trained(out, settings, progress)


def default_output(root: Path, dataset: str, backbone: str, recipe: str = "") -> Path:
    """Where weights are looked for: by `extract` for a backbone, by MAML and VERSA for a backbone and a recipe."""
    own_name = f"-{recipe.replace(':', '-')}" if recipe not in {"", CLASSES} else ""
    return root / dataset / f"{backbone}{own_name}{SUFFIX}"


def _is_finished(out: Path, training: Mapping[str, Any]) -> bool:
    """Whether the file holds the weights of this training; a file of another one is refused, with what differs."""
    if not out.exists():
        return False
    try:
        header = json.loads(read_checkpoint(out).metadata["fsbench"])
        different = _changes({name: header.get(name) for name in training}, training)
    except (FsbenchError, ValueError, KeyError, AttributeError):
        different = ["it does not say how"]
    if different:
        message = "\n  ".join([f"{out} exists already and was made in another way:", *different])
        raise FsbenchError(message, "Write elsewhere with --out FILE, or replace it with --force.")
    return True


def _changes(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What differs between two trainings, in words."""
    names = [name for name in {**stored, **wanted} if stored.get(name) != wanted.get(name)]
    return [f"{name}: {stored.get(name)} there, {wanted.get(name)} now" for name in names]


def _train(plan: Plan, execution: Execution, checkpoint: Path) -> tuple[Progress, Mapping[str, Tensor]]:
    """Train for the epochs that are left; gives what the weights file holds beside the backbone too."""
    settings, ranks, reporter, device = plan.settings, execution.ranks, execution.reporter, execution.device
    keep_freed_memory()
    views = make_views(plan.base, plan.transform, settings, reporter, execution.cache)
    validation = validation_of(plan.dataset, plan.transform, execution)
    trainer = _trainer(plan, execution)
    objective: Any = trainer.objective
    progress, best = _restore(checkpoint, trainer, plan)
    if progress.epochs:
        reporter.say(f"Resuming: {progress.epochs} of {settings.epochs} epochs are done.")
    batches = (views.batch(key, device) for key in replace(trainer.keys, first=progress.epochs))
    eval_every = settings.episodes.eval_every if settings.episodes else execution.eval_every
    for epoch in range(progress.epochs + 1, settings.epochs + 1):
        start, steps, batch = time.perf_counter(), trainer.keys.steps, trainer.keys.batch
        with reporter.bar(f"epoch {epoch} of {settings.epochs}", steps * batch) as advance:
            for step in range(steps):
                trainer.step(next(batches), epoch - 1, step)
                advance(batch)
        trainer.require_finite(epoch)
        speed = steps * batch / (time.perf_counter() - start)
        if epoch == settings.epochs and settings.episodes is None:
            halve(objective.backbone)
        history = progress.history
        if validation is not None and ranks.leads and (epoch == settings.epochs or epoch % eval_every == 0):
            history = (*history, validation.of(objective, plan.backbone.info, settings.episodes, epoch))
            if settings.episodes and best_of(history) is history[-1]:
                best = copy.deepcopy(objective.state_dict())
        loss = trainer.mean_loss()
        progress = Progress(epoch, progress.seconds + time.perf_counter() - start, history)
        if ranks.leads:
            _store(checkpoint, trainer, plan, progress, best)
        reporter.say(_line(progress, settings, loss, speed))
    if not settings.episodes:
        return progress, {}
    if best is not None:
        objective.load_state_dict(best)
    halve(objective)
    return progress, objective.extras()


def _trainer(plan: Plan, execution: Execution) -> Trainer:
    settings, ranks, network = plan.settings, execution.ranks, plan.backbone.network
    assert isinstance(network, Backbone)
    if settings.episodes:
        on_tasks = OBJECTIVES[settings.episodes.recipe](network, settings.episodes, settings.seed)
        keys = EpisodeKeys(settings, settings.episodes, plan.base.offsets, ranks.number)
        return Trainer(on_tasks, keys, execution.device, ranks)
    on_classes = Objective(network, len(plan.base.class_names), settings.rotation, settings.seed)
    return Trainer(on_classes, Keys(settings, len(plan.base), ranks.number), execution.device, ranks)


def _store(path: Path, trainer: Trainer, plan: Plan, progress: Progress, best: dict[str, Tensor] | None) -> None:
    """Replace the checkpoint by that of a later epoch; `best` is the state that was best on the val classes."""
    states = {"objective": trainer.objective.state_dict(), "optimiser": trainer.optimiser.state_dict(), "best": best}
    facts = {"format": CHECKPOINT_FORMAT, "training": plan.describe(), "progress": dataclasses.asdict(progress)}
    with whole_file(path) as temporary, temporary.open("wb") as stream:
        torch.save({**facts, **states}, stream)


def _restore(path: Path, trainer: Trainer, plan: Plan) -> tuple[Progress, dict[str, Tensor] | None]:
    """Put a training back to where it was, and give its best state too; without a checkpoint it starts afresh."""
    if not path.exists():
        return Progress(), None
    try:
        content: Any = read_torch(path)
        if content["format"] != CHECKPOINT_FORMAT:
            raise ValueError
        different = _changes(content["training"], plan.describe())
        if not different:
            trainer.objective.load_state_dict(content["objective"])
            trainer.optimiser.load_state_dict(content["optimiser"])
            return TypeAdapter(Progress).validate_python(content["progress"]), content["best"]
    except Exception as error:  # torch raises many kinds of errors for damage
        hint = "Remove it to start this training from the beginning."
        raise FsbenchError(f"The checkpoint {path} is damaged.", hint) from error
    message = "\n  ".join([f"{path} is the checkpoint of another training:", *different])
    raise FsbenchError(message, "Resume that one, or remove the checkpoint to start from the beginning.")


def _line(progress: Progress, settings: TrainSettings, loss: float, speed: float) -> str:
    left = progress.seconds / progress.epochs * (settings.epochs - progress.epochs)
    line = f"epoch {progress.epochs} of {settings.epochs}: loss {loss:.3f}, "
    line += f"{speed:,.{0 if speed >= 10 else 1}f} {settings.unit}/s"
    line += f", {timedelta(seconds=round(left))} left" if left else ""
    evaluated = progress.history and progress.history[-1].epoch == progress.epochs
    return f"{line}; val {progress.history[-1]}" if evaluated else line


@dataclass(frozen=True)
class Validation:
    """Evaluates networks on balanced 5-way tasks of the val classes, whose `pixels` are (M, S, S, 3)."""

    split: ImageSplit
    pixels: NDArray[np.uint8]
    transform: EvalTransform
    device: torch.device

    def of(self, objective: Any, info: BackboneInfo, episodes: Episodes | None, epoch: int) -> Evaluation:
        """The accuracy after an epoch: of the method on images that a training is for, else of the features."""
        if episodes is None:
            return self.of_backbone(objective.backbone, epoch)
        network = Extractor(objective.backbone, info).eval()
        trained = ImageNetwork(network, self.transform, objective.extras(), {"inner": episodes.inner})
        variant = "transductive" if episodes.transductive else "inductive"
        method = objective.method.configure(Context(balanced=True, network=trained), variant=variant)
        rows: Any = self.pixels.reshape(len(self.pixels), -1)
        table = Split(rows, self.split.offsets, self.split.class_names)
        evaluation = self._evaluate(method, table, episodes.shots, METHOD_TASKS, epoch)
        objective.train()
        return evaluation

    def of_backbone(self, network: nn.Module, epoch: int) -> Evaluation:
        """The accuracy of the nearest class mean on unit-norm features."""
        features = self._features(network)
        if not bool(features.isfinite().all()):
            message = f"The training diverged in epoch {epoch}: features of the val classes are not finite numbers."
            raise FsbenchError(message, "Lower --lr.")
        table = make_split(features.numpy(), self.split.labels, self.split.class_names)
        return self._evaluate(SimpleShot("L2N"), table, SHOTS, TASKS, epoch)

    def _evaluate(self, method: Any, table: Split, shots: Sequence[int], tasks: int, epoch: int) -> Evaluation:
        accuracy = {}
        for number in shots:
            drawn = TaskList(TaskProtocol(shots=number, alpha=None), _VAL_SEED, np.arange(tasks))
            (outcome,) = solve([method], table, None, drawn, device=self.device)
            accuracy[number] = interval(ACCURACY.per_task(outcome.answers))
        return Evaluation(epoch, accuracy)

    @torch.inference_mode()
    def _features(self, network: nn.Module) -> torch.Tensor:
        network.eval()
        batches = (batch.to(self.device) for batch in torch.from_numpy(self.pixels).split(_AT_ONCE))
        images = (normalised(batch, self.transform) for batch in batches)
        features = torch.cat([network(x.contiguous(memory_format=torch.channels_last)) for x in images]).cpu()
        network.train()
        return features


def validation_of(dataset: ImageDataset, transform: EvalTransform, execution: Execution) -> Validation | None:
    """What evaluates networks on the val classes; None, with a warning, if these cannot be used."""
    split, reporter = dataset.splits.get("val"), execution.reporter
    if split is None:
        reporter.warn(f"{dataset.name} has no val classes: the network will not be evaluated.")
        return None
    try:
        for shots in SHOTS:
            feasible_sizes(TaskProtocol(shots=shots, alpha=None), split.offsets)
    except FsbenchError as refusal:
        reporter.warn(f"The val classes of {dataset.name} are not evaluated: {refusal.message}")
        return None
    pixels = decode(split, transform, execution.cache, reporter).pixels
    return Validation(split, pixels, transform, execution.device)
