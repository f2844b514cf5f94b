"""What determines a training, and what does not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsbench.backbones.families import BACKBONES
from fsbench.errors import FsbenchError, unknown_name
from fsbench.ranks import ALONE, Ranks

if TYPE_CHECKING:
    import torch

    from fsbench.reporter import Reporter

VERSION = 2  # of a training; rises whenever the same settings would give other weights
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
WARM_UP = 0.05  # share of all steps
LABEL_SMOOTHING = 0.1
LARGEST_SLOPE = 10.0  # bound of every number of the gradient in a training on tasks, as Finn et al. clip it
LEAST_SHARE = 2  # images of one rank per step: batch normalisation needs two
CLASSES = "classes"  # the recipe that does not train on tasks
RECIPES = (CLASSES, "maml", "maml:transductive", "versa")
UPDATES = 100  # per epoch of a training on tasks


@dataclass(frozen=True)
class Episodes:
    """How a network is trained on balanced tasks of the base classes."""

    recipe: str
    shots: tuple[int, ...] = (1, 5)  # support images per class, taking turns from update to update
    ways: int = 5
    queries: int = 75
    steps: int = 5  # of gradient descent within a task (MAML), each with `rate`
    rate: float = 0.1
    second_order: bool = True  # whether the outer gradient passes through the inner ones
    eval_every: int = 10  # epochs; the best of the evaluated networks is kept, so here it does determine the weights

    @property
    def transductive(self) -> bool:
        """Whether batch normalisation of the queries counts the queries."""
        return self.recipe.endswith(":transductive")

    @property
    def inner(self) -> dict[str, object]:
        """How a task is learned, for the header of the weights file."""
        return {"steps": self.steps, "rate": self.rate}


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
    precision: str = "fp32"  # of products and convolutions: `fp32`, `tf32`, or `bf16` with weights in fp32
    ranks: int = 1  # processes that share a batch
    episodes: Episodes | None = None  # for a training on tasks

    def __post_init__(self) -> None:
        if self.backbone not in BACKBONES:
            raise unknown_name("backbone", self.backbone, BACKBONES)
        least = 1 if self.episodes else LEAST_SHARE  # of one rank
        if self.batch % self.ranks or self.batch < least * self.ranks:
            message = f"A batch of {self.batch} {self.unit} cannot be divided among {self.ranks} process(es)."
            raise FsbenchError(
                message, f"Use a --batch that is a multiple of {self.ranks}, from {least * self.ranks} on."
            )

    def facts(self) -> dict[str, Any]:
        """The settings as plain data, with the constants of a training; the usual precision is left out."""
        settings = {name: value for name, value in asdict(self).items() if (name, value) != ("precision", "fp32")}
        episodes = settings.pop("episodes")
        on_classes = {"momentum": MOMENTUM, "weight_decay": WEIGHT_DECAY, "label_smoothing": LABEL_SMOOTHING}
        others = {**episodes, "largest_slope": LARGEST_SLOPE} if episodes else on_classes
        return {**settings, **others, "version": VERSION, "warm_up": WARM_UP}

    @property
    def unit(self) -> str:
        """What a batch counts."""
        return "tasks" if self.episodes else "images"


@dataclass(frozen=True)
class Execution:
    """How a training is carried out; none of it changes the weights beyond rounding."""

    device: torch.device
    reporter: Reporter
    eval_every: int = 10  # epochs between two evaluations on the val classes; a training on tasks has its own
    ranks: Ranks = ALONE
    cache: Path | None = None  # folder for decoded images; None keeps them in memory
