"""What is asked for, from words: methods with their variants, and the axes of a study."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsbench.errors import FsbenchError
from fsbench.methods.registry import method_class, method_names, needs_base, split_variant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fsbench.tasks.protocol import TaskProtocol

ALL = "all"


@dataclass(frozen=True)
class MethodChoice:
    """A method of the comparison, with the options that tell its variants apart."""

    label: str
    method: str
    options: dict[str, Any]

    @property
    def needs_base(self) -> bool:
        """Whether it needs statistics of base classes."""
        return needs_base(self.method if ".py:" in self.method else self.label)

    def runs_as(self, other: MethodChoice) -> bool:
        """Whether both are the same but for their labels."""
        return (self.method, self.options) == (other.method, other.options)


ABLATION = (
    MethodChoice("soft-kmeans", "soft-kmeans", {}),
    MethodChoice("+ VB", "bavardage", {"stage": "vb"}),
    MethodChoice("+ VB + PLDA", "bavardage", {}),
    MethodChoice("+ VB (released)", "bavardage", {"stage": "vb", "variant": "released"}),
    MethodChoice("+ VB + PLDA (released)", "bavardage", {"variant": "released"}),
)


def parse_methods(text: str) -> list[MethodChoice]:
    """Parse `soft-kmeans,bavardage:released`; `all` is every method that does not take minutes per setting."""
    if text == ALL:
        text = ",".join(label for name in method_names() for label in _in_all(name))
    found = []
    for label in dict.fromkeys(part.strip() for part in text.split(",")):
        if ".py:" in label:
            found.append(MethodChoice(label.rpartition(":")[2], label, {}))
            continue
        name, options = split_variant(label)
        method_class(name)
        found.append(MethodChoice(label, name, options))
    return found


def _in_all(name: str) -> list[str]:
    """The labels under which `all` runs a method."""
    info = method_class(name).info
    if info.cost == "very slow":
        return []
    return [name, *(f"{name}:{word}" for word in (info.variants.in_all if info.variants else ()))]


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
