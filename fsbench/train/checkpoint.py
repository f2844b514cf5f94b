"""The state of a training after a step, from which it resumes to the same end as without an interruption."""

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

FORMAT = "fsbench-training-2"
_NUMBERS = ("epochs", "steps", "seconds", "cpu_seconds")


@dataclass(frozen=True)
class Progress:
    """How far a training has come.

    Attributes:
        epochs: Finished epochs.
        steps: Finished steps of the epoch after them.
        seconds: Wall time spent, interruptions excluded.
        cpu_seconds: CPU time of this process, its threads included.
        history: Accuracy on the val classes.
    """

    epochs: int = 0
    steps: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    history: tuple[Evaluation, ...] = ()


@dataclass(frozen=True)
class CheckpointFile:
    """The checkpoint of one training, beside the weights file it will end with; different settings, different file.

    Attributes:
        path: The checkpoint.
        fingerprint: Identifies everything that determines the weights.
    """

    path: Path
    fingerprint: str

    @classmethod
    def beside(cls, out: Path, fingerprint: str) -> CheckpointFile:
        """The checkpoint that belongs to an output file."""
        return cls(out.with_name(f".{out.name}.{fingerprint[:12]}.training"), fingerprint)

    def write(self, objective: torch.nn.Module, optimiser: torch.optim.Optimizer, progress: Progress) -> None:
        """Replace the checkpoint by that of a later step."""
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
        }
        with whole_file(self.path) as temporary, temporary.open("wb") as stream:
            torch.save(content, stream)

    def restore(self, objective: torch.nn.Module, optimiser: torch.optim.Optimizer) -> Progress:
        """Put a training back to where it was; without a checkpoint it starts from the beginning."""
        if not self.path.exists():
            return Progress()
        content = self._read()
        try:
            objective.load_state_dict(content["objective"])
            optimiser.load_state_dict(content["optimiser"])
            history = tuple(
                Evaluation(epoch, {shots: Interval(*value) for shots, value in accuracy.items()})
                for epoch, accuracy in content["history"]
            )
            return Progress(**{name: content[name] for name in _NUMBERS}, history=history)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise self._damaged() from error

    def discard(self) -> None:
        """Remove it: the training is finished."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        try:
            content = read_torch(self.path)
            with zipfile.ZipFile(self.path) as archive:
                sound = archive.testzip() is None  # torch itself does not look at the checksums
        except Exception as error:  # torch and zipfile have many words for damage
            raise self._damaged() from error
        marks = (FORMAT, self.fingerprint)
        if not sound or not isinstance(content, dict) or (content.get("format"), content.get("fingerprint")) != marks:
            raise self._damaged()
        return content

    def _damaged(self) -> FsbenchError:
        return FsbenchError(
            f"The checkpoint {self.path} is damaged or belongs to another training.",
            "Remove it to start this training from the beginning.",
        )
