"""Axes of a study: a parameter of the method or of the protocol, with the values it takes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fsbench.tasks.protocol import TaskProtocol

Value = float | int | str
WHOLE = ("shots", "queries", "ways")
OF_PROTOCOL = ("alpha", *WHOLE)  # α is that of the sampler; the prior of BAVARDAGE is `prior_alpha`
SYMBOLS = {
    "alpha": "α*", "shots": "shots", "queries": "queries", "ways": "ways", "t_km": "T_km", "t_vb": "T_vb",
    "s_max": "s_max", "tau": "τ", "sigma": "σ", "prior_alpha": "α_o", "beta": "β_o",
}  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """A parameter and the values it takes, each once, in the order given."""

    name: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if len(set(self.values)) < len(self.values):
            raise FsbenchError(f"A value of {self.name} is given twice: {', '.join(map(str, self.values))}.")
        if self.name in OF_PROTOCOL:
            for value in self.values:
                self._check(value)

    def _check(self, value: Value) -> None:
        kind, word = (int, "whole numbers") if self.name in WHOLE else ((int, float), "numbers")
        if not isinstance(value, kind):
            raise FsbenchError(f"{self.name} takes {word}, got {value!r}.")

    @property
    def symbol(self) -> str:
        """As the article writes it."""
        return symbol(self.name)


def symbol(name: str) -> str:
    """A parameter as the article writes it, or its name."""
    return SYMBOLS.get(name, name)


def at(
    values: Mapping[str, Value], protocol: TaskProtocol, options: Mapping[str, Any]
) -> tuple[TaskProtocol, dict[str, Any]]:
    """Protocol and options of the method at one place of the axes."""
    changed = {name: value for name, value in values.items() if name in OF_PROTOCOL}
    others = {name: value for name, value in values.items() if name not in OF_PROTOCOL}
    return dataclasses.replace(protocol, **changed), {**options, **others}  # type: ignore[arg-type]
