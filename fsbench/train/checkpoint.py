"""The state of a training after an epoch, from which it resumes.

On a CPU it ends as without an interruption, bit for bit. On GPUs sums are added in an order that varies from run to
run, with an interruption or without, so that weights differ by rounding errors.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from fsbench.errors import FsbenchError
from fsbench.io.files import whole_file
from fsbench.io.torch_files import read_torch
from fsbench.results.statistics import Interval
from fsbench.train.validate import Evaluation

State = dict[str, torch.Tensor]

FORMAT = "fsbench-training-3"


@dataclass(frozen=True)
class Progress:
    """How far a training has come: finished epochs, wall time without interruptions, accuracy on the val classes."""

    epochs: int = 0
    seconds: float = 0.0
    history: tuple[Evaluation, ...] = ()


def changes(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What differs between two trainings, in words."""
    names = [name for name in {**stored, **wanted} if stored.get(name) != wanted.get(name)]
    return [f"{name}: {stored.get(name)} there, {wanted.get(name)} now" for name in names]


@dataclass(frozen=True)
class CheckpointFile:
    """The checkpoint of one training; `training` is everything that determines the weights, as plain data."""

    path: Path
    training: Mapping[str, Any]

    def write(self, objective: nn.Module, optimiser: Optimizer, progress: Progress, best: State | None = None) -> None:
        """Replace the checkpoint by that of a later epoch; `best` is the state that was best on the val classes."""
        states = {"objective": objective.state_dict(), "optimiser": optimiser.state_dict(), "best": best}
        content = {"format": FORMAT, "training": dict(self.training), "progress": asdict(progress), **states}
        with whole_file(self.path) as temporary, temporary.open("wb") as stream:
            torch.save(content, stream)

    def restore(self, objective: nn.Module, optimiser: Optimizer) -> tuple[Progress, State | None]:
        """Put a training back to where it was, and give its best state too; without a checkpoint it starts afresh."""
        if not self.path.exists():
            return Progress(), None
        try:
            content: Any = read_torch(self.path)
            with zipfile.ZipFile(self.path) as archive:
                sound = archive.testzip() is None  # torch itself does not look at the checksums
            if not sound or content["format"] != FORMAT:
                raise ValueError
            different = changes(content["training"], self.training)
            if not different:
                objective.load_state_dict(content["objective"])
                optimiser.load_state_dict(content["optimiser"])
            looks = [
                Evaluation(look["epoch"], {shots: Interval(**value) for shots, value in look["accuracy"].items()})
                for look in content["progress"]["history"]
            ]
            progress = Progress(**{**content["progress"], "history": tuple(looks)})
        except Exception as error:  # torch and zipfile raise many kinds of errors for damage
            hint = "Remove it to start this training from the beginning."
            raise FsbenchError(f"The checkpoint {self.path} is damaged.", hint) from error
        if different:
            raise FsbenchError(
                "\n  ".join([f"{self.path} is the checkpoint of another training:", *different]),
                "Resume that one, or remove the checkpoint to start from the beginning.",
            )
        return progress, content["best"]
