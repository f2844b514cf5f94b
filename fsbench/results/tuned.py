"""What a search for parameters found as plain data, and the file beside the features that remembers it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from fsbench.errors import FsbenchError
from fsbench.io.sealed import read_sealed, write_sealed
from fsbench.methods.presets import symbol
from fsbench.results.curves import Value  # noqa: TC001 - pydantic resolves it

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

How = Literal["grid", "optuna", "gradient"]


@dataclass(frozen=True)
class Trial:
    """One cell of the grid, or one guess of the optimiser: accuracy in percent on the validation tasks."""

    params: dict[str, Value]
    accuracy: float
    ci95: float | None


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Attributes:
        method: Name of the method, with its variant.
        setting: The protocol, in words.
        how: `grid`, `optuna`, or `gradient`, whose two trials are before and after learning.
        tasks: Validation tasks per trial.
        trials: In the order they were made.
    """

    method: str
    setting: str
    how: How
    tasks: int
    trials: list[Trial]

    @property
    def best(self) -> Trial:
        """The trial with the highest accuracy; the first of equals."""
        return max(self.trials, key=lambda trial: trial.accuracy)

    @property
    def params(self) -> dict[str, Value]:
        """The parameters to use."""
        return self.best.params

    def origin(self) -> str:
        """Where parameters come from, for records and signatures; names those at an end of the searched range."""
        edge = f":edge:{','.join(names)}" if (names := self.at_the_edge()) else ""
        return f"tuned:val:{self.how}:{len(self.trials)}x{self.tasks}{edge}"

    def at_the_edge(self) -> list[str]:
        """Parameters whose best value is the first or last of three or more; zero is an end with nothing beyond."""
        equals = [trial for trial in self.trials if trial.accuracy == self.best.accuracy]
        names = []
        for name in self.params:
            values = {trial.params[name] for trial in self.trials}
            if len(values) < 3 or any(isinstance(value, str) for value in values):
                continue
            ends = {min(values), max(values)} - {0}
            if all(trial.params[name] in ends for trial in equals):
                names.append(name)
        return names

    def describe(self) -> str:
        """One line for people."""
        values = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in self.params.items()}
        found = ", ".join(f"{symbol(name)} {value}" for name, value in values.items())
        each = "cells" if self.how == "grid" else "trials"
        trials = f"{self.how}, {len(self.trials)} {each} × {self.tasks} tasks"
        return f"{self.method} tuned on val ({trials}): {found} → {self.best.accuracy:.2f} % there"


def tuning_path(features: Path) -> Path:
    """Where tuned parameters are remembered: beside the feature file."""
    return features.with_suffix(".tuned.json")


def read_memory(memory: Path) -> dict[str, Tuned]:
    """All that is remembered in a file."""
    remedy = "Delete the file: it is remade."
    if not memory.exists():
        return {}
    known = read_sealed(memory, dict[str, Tuned], "memory of tuning", remedy)
    if not all(tuned.trials for tuned in known.values()):
        raise FsbenchError(f"The tuned parameters in {memory} are empty.", remedy)
    return known


def write_memory(memory: Path, known: Mapping[str, Tuned]) -> None:
    """Replace all that is remembered in a file."""
    write_sealed(memory, {name: asdict(known[name]) for name in sorted(known)}, indent=1)
