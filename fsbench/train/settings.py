"""What determines a training, and what does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fsbench.backbones.families import BACKBONES
from fsbench.errors import FsbenchError, unknown_name
from fsbench.ranks import ALONE, Ranks

if TYPE_CHECKING:
    import torch

    from fsbench.reporter import Reporter

MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
WARM_UP = 0.05  # share of all steps
LABEL_SMOOTHING = 0.1
LEAST_SHARE = 2  # images of one rank per step: batch normalisation needs two
CLASSES = "classes"  # the recipe that does not train on tasks
RECIPES = (CLASSES, "protonet", "maml", "maml:transductive", "versa")
UPDATES = 100  # per epoch of a training on tasks
HEADS = ("zero", "learned")


def _require(holds: bool, message: str, hint: str = "") -> None:
    if not holds:
        raise FsbenchError(message, hint)


@dataclass(frozen=True)
class Episodes:
    """How a network is trained on balanced tasks of the base classes."""

    recipe: str
    shots: tuple[int, ...] = (1, 5)  # support images per class, taking turns from update to update
    ways: int = 5
    queries: int = 75
    steps: int = 5  # of gradient descent within a task (MAML), each with `rate`
    rate: float = 0.1
    adapts: str = "all"  # the parameters that these steps change
    second_order: bool = True  # whether the outer gradient passes through the inner ones
    head: str = "zero"  # of MAML: zero for every task, or learned, which fixes the number of classes of a task
    eval_every: int = 10  # epochs; the best of the evaluated networks is kept, so here it does determine the weights

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES[1:]:
            raise unknown_name("recipe", self.recipe, RECIPES)
        if self.head not in HEADS:
            raise unknown_name("head", self.head, HEADS)
        least = min(*self.shots, self.steps, 1) if self.shots else 0
        _require(least == 1, "A task has at least one shot and one inner step.", "Use larger --shots, --inner-steps.")
        message = f"The inner rate must be a positive number, found {self.rate}."
        _require(0 < self.rate < math.inf, message, "Change --inner-rate.")

    @property
    def transductive(self) -> bool:
        """Whether batch normalisation of the queries counts the queries."""
        return self.recipe.endswith(":transductive")

    @property
    def inner(self) -> dict[str, object]:
        """How a task is learned, for the header of the weights file."""
        return {"steps": self.steps, "rate": self.rate, "adapts": self.adapts}


@dataclass(frozen=True)
class TrainSettings:
    """Everything except the images that determines the weights."""

    backbone: str = "rn12"
    width: float | None = None  # base width, of wrn the widening factor; None is the published one
    epochs: int = 20
    batch: int = 64  # images per step, or tasks, over all ranks
    lr: float = 0.1  # peak learning rate
    seed: int = 0
    rotation: bool = False  # a rotation-prediction loss
    mixup: bool = False  # a second pass with manifold mixup
    flip: bool = True
    image_size: int | None = None  # side of the images in pixels; None is that of the published transform
    ranks: int = 1  # processes that share a batch
    episodes: Episodes | None = None  # for a training on tasks

    def __post_init__(self) -> None:
        if self.backbone not in BACKBONES:
            raise unknown_name("backbone", self.backbone, BACKBONES)
        _require(self.epochs >= 1, f"Expected at least one epoch, found {self.epochs}.", "Use a larger --epochs.")
        message = f"The learning rate must be positive and finite, found {self.lr}."
        _require(0 < self.lr < math.inf, message, "Change --lr.")
        _require(0 <= self.seed < 2**63, f"A random seed is a whole number from 0 to 2^63 - 1, found {self.seed}.")
        message = f"A batch of {self.batch} {self.unit} cannot be divided among {self.ranks} processes."
        _require(self.batch % self.ranks == 0, message, f"Use a --batch that is a multiple of {self.ranks}.")
        message = f"A batch of {self.batch} images is too small for {self.ranks} process(es)."
        least = 1 if self.episodes else LEAST_SHARE * self.ranks
        hint = f"Batch normalisation needs {LEAST_SHARE} images in each: use --batch {least} or more."
        _require(self.batch >= least, message, hint)

    @property
    def unit(self) -> str:
        """What a batch counts."""
        return "tasks" if self.episodes else "images"


@dataclass(frozen=True)
class Execution:
    """How a training is carried out; none of it changes the weights beyond rounding."""

    device: torch.device
    reporter: Reporter
    workers: int | None = None  # processes that read images; None is automatic
    eval_every: int = 10  # epochs between two evaluations on the val classes; a training on tasks has its own
    ranks: Ranks = ALONE
    cache: Path | None = None  # folder for decoded images; None keeps them in memory
