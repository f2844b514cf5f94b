"""The state of a training after a step, from which it resumes.

On a CPU it ends as without an interruption, bit for bit. On GPUs sums are added in an order that varies from run to
run, with an interruption or without, so that weights differ by rounding errors.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fsbench.errors import FsbenchError
from fsbench.io.files import whole_file
from fsbench.io.torch_files import read_torch
from fsbench.results.statistics import Interval
from fsbench.train.validate import Evaluation

if TYPE_CHECKING:
    from pathlib import Path

    State = dict[str, torch.Tensor]  # of an objective

FORMAT = "fsbench-training-2"
_NUMBERS = ("epochs", "steps", "seconds", "cpu_seconds")


@dataclass(frozen=True)
class Progress:
    """How far a training has come.

    Attributes:
        steps: Finished steps of the epoch after the finished epochs.
        seconds: Wall time spent, interruptions excluded.
        cpu_seconds: CPU time of this process, its threads included.
    """

    epochs: int = 0
    steps: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    history: tuple[Evaluation, ...] = ()


@dataclass(frozen=True)
class CheckpointFile:
    """The checkpoint of one training; the fingerprint identifies everything that determines the weights."""

    path: Path
    fingerprint: str

    @classmethod
    def beside(cls, out: Path, fingerprint: str) -> CheckpointFile:
        """The checkpoint beside the weights file that the training ends with; different settings, different file."""
        return cls(out.with_name(f".{out.name}.{fingerprint[:12]}.training"), fingerprint)

    def write(
        self,
        objective: torch.nn.Module,
        optimiser: torch.optim.Optimizer,
        progress: Progress,
        best: State | None = None,
    ) -> None:
        """Replace the checkpoint by that of a later step; `best` is the state that was best on the val classes."""
        history = [
            [look.epoch, {shots: [value.mean, value.half_width] for shots, value in look.accuracy.items()}]
            for look in progress.history
        ]
        content = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            **{name: getattr(progress, name) for name in _NUMBERS},
            "history": history,
            "objective": objective.state_dict(),
            "optimiser": optimiser.state_dict(),
            **({} if best is None else {"best": best}),
        }
        with whole_file(self.path) as temporary, temporary.open("wb") as stream:
            torch.save(content, stream)

    def restore(self, objective: torch.nn.Module, optimiser: torch.optim.Optimizer) -> tuple[Progress, State | None]:
        """Put a training back to where it was; without a checkpoint it starts from the beginning.

        Gives the state that was best on the val classes too, if the training keeps it.
        """
        if not self.path.exists():
            return Progress(), None
        try:
            content: Any = read_torch(self.path)
            with zipfile.ZipFile(self.path) as archive:
                sound = archive.testzip() is None  # torch itself does not look at the checksums
            if not sound or (content["format"], content["fingerprint"]) != (FORMAT, self.fingerprint):
                raise ValueError
            objective.load_state_dict(content["objective"])
            optimiser.load_state_dict(content["optimiser"])
            history = tuple(
                Evaluation(epoch, {shots: Interval(*value) for shots, value in accuracy.items()})
                for epoch, accuracy in content["history"]
            )
            return Progress(**{name: content[name] for name in _NUMBERS}, history=history), content.get("best")
        except Exception as error:  # torch and zipfile raise many kinds of errors for damage
            raise FsbenchError(
                f"The checkpoint {self.path} is damaged or belongs to another training.",
                "Remove it to start this training from the beginning.",
            ) from error
