"""What determines a training, and what does not."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.backbones.families import BACKBONES
from fsbench.errors import FsbenchError, unknown_name
from fsbench.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from fsbench.data.dataset import ImageDataset
    from fsbench.reporter import Reporter

MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
WARM_UP = 0.05  # share of all steps
LABEL_SMOOTHING = 0.1
LEAST_SHARE = 2  # images of one rank per step: batch normalisation needs two
SMALL_EPOCHS = 0.5  # share of the epochs that see smaller images
SMALL_SIDE = 0.75  # their side, as a share of the full one
LEAST_SIDE = 24  # below which images are not reduced
CLASSES = "classes"  # the recipe that does not train on tasks
RECIPES = (CLASSES, "protonet", "maml", "maml:transductive", "versa")
UPDATES = 100  # per epoch of a training on tasks
HEADS = ("zero", "learned")


@dataclass(frozen=True)
class Episodes:
    """How a network is trained on tasks of the base classes, balanced as everywhere in the field.

    Attributes:
        shots: Support images per class, one number after the other from update to update.
        steps: Of gradient descent within a task (MAML), each with `rate`; `adapts` says which parameters it changes.
        second_order: Whether the outer gradient passes through the inner ones.
        head: Of MAML: `zero` for every task, or `learned`, which fixes the number of classes of a task.
        eval_every: Epochs between two evaluations on the val classes. The best of these networks is kept, so here it
            does determine the weights.
    """

    recipe: str
    shots: tuple[int, ...] = (1, 5)
    ways: int = 5
    queries: int = 75
    steps: int = 5
    rate: float = 0.1
    adapts: str = "all"
    second_order: bool = True
    head: str = "zero"
    eval_every: int = 10

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES[1:]:
            raise unknown_name("recipe", self.recipe, RECIPES)
        if self.head not in HEADS:
            raise unknown_name("head", self.head, HEADS)
        if not self.shots or min(self.shots) < 1 or self.steps < 1:
            raise FsbenchError("A task has at least one shot and one inner step.", "Use larger --shots, --inner-steps.")
        if not 0 < self.rate < math.inf:
            raise FsbenchError(f"The inner rate must be a positive number, found {self.rate}.", "Change --inner-rate.")


@dataclass(frozen=True)
class TrainSettings:
    """Everything except the images that determines the weights.

    Attributes:
        backbone: rn12, rn18 or wrn.
        width: Base width of rn12 and rn18, widening factor of wrn; None is the published one.
        batch: Images per step, over all ranks.
        lr: Peak learning rate.
        seed: Random seed of the initial weights and of every draw.
        rotation: Whether there is a rotation-prediction loss.
        mixup: Whether there is a second pass with manifold mixup.
        small_first: Whether the first half of the epochs sees smaller images, which cost less.
        image_size: Side of the images in pixels; None is that of the backbone's published transform.
        ranks: Processes that share a batch.
        episodes: How tasks are drawn and learned, for a training on tasks; `batch` is then in tasks.
    """

    backbone: str = "rn12"
    width: float | None = None
    epochs: int = 20
    batch: int = 64
    lr: float = 0.1
    seed: int = 0
    rotation: bool = False
    mixup: bool = False
    flip: bool = True
    small_first: bool = False
    image_size: int | None = None
    ranks: int = 1
    episodes: Episodes | None = None

    def __post_init__(self) -> None:
        if self.backbone not in BACKBONES:
            raise unknown_name("backbone", self.backbone, BACKBONES)
        if self.epochs < 1:
            raise FsbenchError(f"Expected at least one epoch, found {self.epochs}.", "Use a larger --epochs.")
        if not 0 < self.lr < math.inf:
            raise FsbenchError(f"The learning rate must be positive and finite, found {self.lr}.", "Change --lr.")
        if not 0 <= self.seed < 2**63:
            raise FsbenchError(f"A random seed is a whole number from 0 to 2^63 - 1, found {self.seed}.")
        if self.batch % self.ranks:
            raise FsbenchError(
                f"A batch of {self.batch} {self.unit} cannot be divided among {self.ranks} processes.",
                f"Use a --batch that is a multiple of {self.ranks}.",
            )
        least = LEAST_SHARE * self.ranks
        if self.batch < least and self.episodes is None:
            raise FsbenchError(
                f"A batch of {self.batch} images is too small for {self.ranks} process(es).",
                f"Batch normalisation needs {LEAST_SHARE} images in each: use --batch {least} or more.",
            )

    @property
    def unit(self) -> str:
        """What a batch counts."""
        return "tasks" if self.episodes else "images"

    def side_in(self, epoch: int, side: int) -> int:
        """The side of the images in an epoch, where `side` is that of the evaluation."""
        if self.small_first and epoch < round(SMALL_EPOCHS * self.epochs):
            return min(side, max(LEAST_SIDE, round(SMALL_SIDE * side)))
        return side

    def command(self, dataset: ImageDataset) -> str:
        """The command line that repeats the training."""
        words = ["fsbench", "train", "--backbone", self.backbone, "--dataset", dataset.name]
        if dataset.info is None:
            words += ["--data", str(dataset.root)]
        for name in ("width", "image_size", "epochs", "batch", "lr", "seed"):
            if (value := getattr(self, name)) is not None:
                words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
        if self.episodes:
            words += ["--recipe", self.episodes.recipe, "--shots", ",".join(map(str, self.episodes.shots))]
            words += ["--flip" if self.flip else "--no-flip", "--eval-every", str(self.episodes.eval_every)]
            if self.episodes.recipe.startswith("maml"):
                words += ["--inner-steps", str(self.episodes.steps), "--inner-rate", f"{self.episodes.rate:g}"]
                words += ["--adapts", self.episodes.adapts, "--head", self.episodes.head]
                words += [] if self.episodes.second_order else ["--first-order"]
            return shlex.join(words)
        switches = ("rotation", "mixup", "flip", "small_first")
        words += [f"--{'' if getattr(self, name) else 'no-'}{name.replace('_', '-')}" for name in switches]
        return shlex.join(words)


@dataclass(frozen=True)
class Execution:
    """How a training is carried out; none of it changes the weights beyond rounding.

    Attributes:
        workers: Processes that read images; None chooses.
        eval_every: Epochs between two evaluations on the val classes; a training on tasks has its own.
        save_every: Minutes between two checkpoints within an epoch; there is one after every epoch too.
        cache: Folder for decoded images; None keeps them in memory.
    """

    device: torch.device
    reporter: Reporter
    workers: int | None = None
    eval_every: int = 10
    save_every: float = 5.0
    ranks: Ranks = ALONE
    cache: Path | None = None
