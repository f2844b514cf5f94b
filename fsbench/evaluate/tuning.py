"""Parameters from the validation classes: a small grid, searched once and remembered beside the features."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fsbench.errors import FsbenchError
from fsbench.evaluate.engine import solve_tasks
from fsbench.evaluate.statistics import accuracies
from fsbench.files import write_text
from fsbench.methods import method_class

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from fsbench.evaluate.run import Machine
    from fsbench.evaluate.source import Source
    from fsbench.tasks.protocol import TaskProtocol

TASKS = 500
GRIDS: Mapping[str, Mapping[str, Sequence[float]]] = {
    "soft-kmeans": {"t_km": (5.0, 10.0, 20.0, 50.0, 100.0)},
    "bavardage": {
        "t_km": (10.0, 50.0),
        "tau": (0.1, 0.2, 0.3, 0.5, 1.0),
        "sigma": (10.0, 15.0, 20.0, 30.0, 50.0),
    },
}
_REPLACED_BY = {"t_vb": "tau", "s_max": "sigma"}


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Attributes:
        params: The best cell.
        accuracy: Its mean accuracy on the validation tasks, in percent.
        cells: How many cells were tried.
        tasks: On how many validation tasks each.
    """

    params: dict[str, float]
    accuracy: float
    cells: int
    tasks: int

    def origin(self) -> str:
        """Where parameters come from, for records and signatures."""
        return f"tuned:val:{self.cells}x{self.tasks}"

    def describe(self) -> str:
        """One line for people."""
        found = ", ".join(f"{name} {value:g}" for name, value in self.params.items())
        return f"tuned on val ({self.cells} cells × {self.tasks} tasks): {found} → {self.accuracy:.2f} % there"


def tuning_path(features: Path) -> Path:
    """Where tuned parameters are remembered: beside the feature file."""
    return features.with_suffix(".tuned.json")


def grid_of(method: str, fixed: Mapping[str, Any]) -> dict[str, Sequence[float]]:
    """The axes to search: those of the method that the user did not fix, in whichever units."""
    if method not in GRIDS:
        raise FsbenchError(f"There is no grid to tune {method} on.", f"Tuning knows: {', '.join(GRIDS)}.")
    settled = {_REPLACED_BY.get(name, name) for name in fixed}
    return {name: values for name, values in GRIDS[method].items() if name not in settled}


def tune(
    method: str,
    source: Source,
    protocol: TaskProtocol,
    seed: int,
    fixed: Mapping[str, Any],
    machine: Machine,
    memory: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Tuned:
    """Search the grid of a method on validation tasks, or remember an earlier search.

    Args:
        method: Name of the method.
        source: Features of the validation split.
        protocol: The protocol of the tasks to come; validation tasks are drawn the same way.
        seed: Seed of the validation tasks.
        fixed: Parameters that the user gave.
        machine: Where and how to compute.
        memory: File that remembers searches.
        progress: Called with the cells done and their number.
    """
    if source.split_name != "val":
        raise FsbenchError(f"Parameters are tuned on val, never on {source.split_name}: that would be looking.")
    axes = grid_of(method, fixed)
    question = {
        "method": method,
        "grid": {name: list(values) for name, values in axes.items()},
        "fixed": dict(fixed),
        "protocol": protocol.as_dict(),
        "seed": seed,
        "tasks": TASKS,
        "features": source.split.digest,
        "base": source.base.digest if source.base else "",
    }
    name = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:16]
    remembered = machine.ranks.agree(lambda: _read(memory).get(name))
    if remembered:
        return remembered
    cells = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    best = Tuned({}, -1.0, len(cells), TASKS)
    for done, cell in enumerate(cells, start=1):
        configured = method_class(method).configure(source.context(protocol), **fixed, **cell)
        outcome = solve_tasks(
            configured, source.split, source.base, protocol, seed, range(TASKS),
            device=machine.device, batch=machine.batch, ranks=machine.ranks,
        )  # fmt: skip
        accuracy = float(accuracies(outcome.correct, outcome.queries).mean())
        if accuracy > best.accuracy:
            best = Tuned(cell, accuracy, len(cells), TASKS)
        progress(done, len(cells))
    machine.ranks.agree(lambda: _remember(memory, name, best))
    return best


def _remember(memory: Path, name: str, found: Tuned) -> None:
    known = {key: asdict(value) for key, value in {**_read(memory), name: found}.items()}
    write_text(memory, json.dumps(known, indent=1, sort_keys=True) + "\n")


def _read(memory: Path) -> dict[str, Tuned]:
    from pydantic import TypeAdapter, ValidationError

    if not memory.exists():
        return {}
    try:
        return TypeAdapter(dict[str, Tuned]).validate_json(memory.read_bytes())
    except (OSError, ValidationError) as error:
        raise FsbenchError(
            f"The tuned parameters in {memory} cannot be read.", "Delete the file: it is remade."
        ) from error
