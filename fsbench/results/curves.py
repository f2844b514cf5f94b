"""The result of a sweep as plain data, and its file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from fsbench.errors import FsbenchError
from fsbench.io.sealed import read_sealed, write_sealed

if TYPE_CHECKING:
    from pathlib import Path

Value = float | int | str  # of a parameter
SWEEPS = "sweeps"  # folder of the curves, within the results


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
    """Panels of one feature file, one per axis and setting.

    The name is the file's without its ending; the signature says what all points have in common.
    """

    name: str
    title: str
    signature: str
    panels: tuple[Panel, ...]


def save_sweep(path: Path, sweep: Sweep) -> None:
    """Write a sweep atomically."""
    write_sealed(path, asdict(sweep), indent=1)


def load_sweep(path: Path) -> Sweep:
    """Read and check a sweep."""
    remedy = "Sweeps are written by `fsbench sweep` into results/sweeps/."
    sweep = read_sealed(path, Sweep, "sweep", remedy)
    if not all(panel.curves and all(curve.points for curve in panel.curves) for panel in sweep.panels):
        raise FsbenchError(f"The sweep {path} has a panel without points.", remedy)
    return sweep
