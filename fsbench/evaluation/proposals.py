"""What a search tries next: the cells of a grid, or guesses that learn from the outcomes so far."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fsbench.evaluation.axes import Axis, Value


class Grid:
    """All combinations."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        names = [axis.name for axis in axes]
        self.cells = [
            dict(zip(names, cell, strict=True)) for cell in itertools.product(*(axis.values for axis in axes))
        ]

    def __len__(self) -> int:
        return len(self.cells)

    def __iter__(self) -> Iterator[dict[str, Value]]:
        return iter(self.cells)

    def tell(self, accuracy: float) -> None:
        """A grid does not learn."""


class Guesses:
    """Guesses of optuna's default sampler (TPE), the same for the same seed and accuracies."""

    def __init__(self, axes: Sequence[Axis], trials: int, seed: int) -> None:
        try:
            import optuna
        except ImportError as error:
            raise FsbenchError(
                "optuna is not installed.", "pip install 'fsbench[tune]', or search the grid."
            ) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed)
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.axes, self.trials = axes, trials
        self.open: Any = None

    def __len__(self) -> int:
        return self.trials

    def __iter__(self) -> Iterator[dict[str, Value]]:
        for _ in range(self.trials):
            self.open = self.study.ask()
            yield {axis.name: self._guess(axis) for axis in self.axes}

    def _guess(self, axis: Axis) -> Value:
        """Between the ends of an axis of numbers, on a logarithmic scale where it has one; else one of its values."""
        values = [value for value in axis.values if not isinstance(value, str)]
        if len(values) < len(axis.values):
            chosen: Value = self.open.suggest_categorical(axis.name, list(axis.values))
            return chosen
        low, high = min(values), max(values)
        if all(isinstance(value, int) for value in values):
            return int(self.open.suggest_int(axis.name, int(low), int(high), log=low > 0))
        guess = self.open.suggest_float(axis.name, low, high, log=low > 0)
        return float(f"{guess:.3g}")

    def tell(self, accuracy: float) -> None:
        """Learn from the last guess."""
        self.study.tell(self.open, accuracy)
