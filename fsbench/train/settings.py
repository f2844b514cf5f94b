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
    import torch

    from fsbench.data.dataset import ImageDataset
    from fsbench.reporter import Reporter

MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
WARM_UP = 0.05  # share of all steps
LEAST_SHARE = 2  # images of one rank per step: batch normalisation needs two


@dataclass(frozen=True)
class TrainSettings:
    """Everything beside the images that determines the weights.

    Attributes:
        backbone: rn12, rn18 or wrn.
        width: Base width of rn12 and rn18, widening factor of wrn; None is the standard one.
        epochs: Passes over the base images.
        batch: Images per step, over all ranks.
        lr: Peak of the learning rate.
        seed: Of the first weights and of every draw.
        rotation: Whether the network also learns to tell by how many quarter turns an image was rotated.
        mixup: Whether a second pass learns from images mixed between two stages.
        flip: Whether images are mirrored at random.
        ranks: Processes that share a batch.
    """

    backbone: str = "rn12"
    width: float | None = None
    epochs: int = 100
    batch: int = 64
    lr: float = 0.1
    seed: int = 0
    rotation: bool = True
    mixup: bool = True
    flip: bool = True
    ranks: int = 1

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
                f"A batch of {self.batch} images cannot be divided among {self.ranks} processes.",
                f"Use a --batch that is a multiple of {self.ranks}.",
            )
        least = LEAST_SHARE * self.ranks
        if self.batch < least:
            raise FsbenchError(
                f"A batch of {self.batch} images is too small for {self.ranks} process(es).",
                f"Batch normalisation needs {LEAST_SHARE} images in each: use --batch {least} or more.",
            )

    def command(self, dataset: ImageDataset) -> str:
        """The command line that repeats the training."""
        words = ["fsbench", "train", "--backbone", self.backbone, "--dataset", dataset.name]
        if dataset.info is None:
            words += ["--data", str(dataset.root)]
        if self.width is not None:
            words += ["--width", f"{self.width:g}"]
        words += ["--epochs", str(self.epochs), "--batch", str(self.batch), "--lr", f"{self.lr:g}"]
        words += ["--seed", str(self.seed)]
        words += [f"--{'' if getattr(self, name) else 'no-'}{name}" for name in ("rotation", "mixup", "flip")]
        return shlex.join(words)


@dataclass(frozen=True)
class Execution:
    """How a training is carried out; none of it changes the weights beyond rounding.

    Attributes:
        device: Where this process computes.
        reporter: Shows progress.
        workers: Processes that prepare images; None chooses.
        eval_every: Epochs between two looks at the val classes.
        ranks: The processes that share it.
    """

    device: torch.device
    reporter: Reporter
    workers: int | None = None
    eval_every: int = 10
    ranks: Ranks = ALONE
