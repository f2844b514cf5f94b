"""Sweeps and searches for parameters as plain data, and their files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from fsbench.io.files import read_sealed, write_sealed
from fsbench.results.record import Tuning

Value = float | int | str  # of a parameter
SWEEPS = "sweeps"  # folder of the curves, within the results
_SYMBOLS = {
    "alpha": "α*", "t_km": "T_km", "t_vb": "T_vb", "tau": "τ", "sigma": "σ", "prior_alpha": "α_o", "beta": "β_o",
}  # fmt: skip


def symbol(name: str) -> str:
    """A parameter of a method or of the protocol as the article writes it, or its name."""
    return _SYMBOLS.get(name, name)


@dataclass(frozen=True)
class Point:
    """Accuracy in percent at one value of the axis."""

    x: Value
    accuracy: float
    ci95: float | None = None


@dataclass(frozen=True)
class Curve:
    """One line: measured points, and the published ones that belong to it."""

    label: str
    points: tuple[Point, ...]
    published: tuple[Point, ...] = ()

    @property
    def best(self) -> Point:
        """The point with the highest accuracy."""
        return max(self.points, key=lambda point: point.accuracy)


@dataclass(frozen=True)
class Panel:
    """Curves over one axis; the title says what is the same for all of them."""

    axis: str
    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Sweep:
    """Panels of one feature file, one per axis and setting."""

    name: str  # of its file, without the ending
    title: str
    signature: str  # what all points have in common
    panels: tuple[Panel, ...]


def save_sweep(path: Path, sweep: Sweep) -> None:
    """Write a sweep atomically."""
    write_sealed(path, asdict(sweep), indent=1)


def load_sweep(path: Path) -> Sweep:
    """Read and check a sweep."""
    return read_sealed(path, Sweep, "sweep", "Sweeps are written by `fsbench sweep` into results/sweeps/.")


@dataclass(frozen=True)
class Trial:
    """One cell of the grid: accuracy in percent on the validation tasks."""

    params: dict[str, Value]
    accuracy: float
    ci95: float | None
    ece: float | None = None  # expected calibration error in percent, where it is what counts

    @property
    def score(self) -> float:
        """What counts, in percent."""
        return self.accuracy if self.ece is None else self.ece


@dataclass(frozen=True)
class Tuned:
    """The outcome of a search."""

    method: str  # with its variant
    setting: str  # the protocol, in words
    how: Literal["grid", "gradient"]  # the two trials of a gradient are before and after learning
    tasks: int  # validation tasks per trial
    trials: list[Trial]  # in the order they were made

    @property
    def best(self) -> Trial:
        """The trial with the highest accuracy, or the smallest calibration error; the first of equals."""
        return min(self.trials, key=lambda trial: -trial.accuracy if trial.ece is None else trial.ece)

    @property
    def metric(self) -> str:
        """What counts, in words."""
        return "accuracy" if self.trials[0].ece is None else "expected calibration error"

    @property
    def params(self) -> dict[str, Value]:
        """The parameters to use."""
        return self.best.params

    def facts(self) -> Tuning:
        """What records keep of the search.

        At the edge is a parameter whose best value is the first or last of three or more; beyond zero there is nothing.
        """
        equals = [trial for trial in self.trials if trial.score == self.best.score]
        names = []
        for name in self.params:
            values = {trial.params[name] for trial in self.trials}
            if len(values) < 3 or any(isinstance(value, str) for value in values):
                continue
            ends = {min(values), max(values)} - {0}
            if all(trial.params[name] in ends for trial in equals):
                names.append(name)
        return Tuning(how=self.how, trials=len(self.trials), tasks=self.tasks, edge=tuple(names))

    def describe(self) -> str:
        """One line for people."""
        values = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in self.params.items()}
        chosen = ", ".join(f"{symbol(name)} {value}" for name, value in values.items())
        each = "cells" if self.how == "grid" else "trials"
        trials = f"{self.how}, {len(self.trials)} {each} × {self.tasks} tasks"
        return f"{self.method} tuned on val ({trials}): {chosen} → {self.metric} {self.best.score:.2f} % there"


def tuning_path(features: Path) -> Path:
    """Where tuned parameters are remembered: beside the feature file."""
    return features.with_suffix(".tuned.json")


def read_memory(memory: Path) -> dict[str, Tuned]:
    """All that is remembered in a file."""
    if not memory.exists():
        return {}
    return read_sealed(memory, dict[str, Tuned], "memory of tuning", "Delete the file: it is remade.")
