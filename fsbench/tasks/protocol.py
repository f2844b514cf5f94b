"""Task protocols: frozen, named, versioned descriptions of how a task is drawn.

"5-way, 75 queries, Dirichlet α = 2" means three different things in circulation. Each is a named value here, and the
name is part of every signature line. `RULES` says how they differ.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from fsbench.errors import FsbenchError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Sequence

ProtocolName = Literal["disjoint", "released", "veilleux"]
PROTOCOL_NAMES: tuple[str, ...] = get_args(ProtocolName)
RULES = {  # support and queries; images of a class that are used; what happens where a class is too small for its count
    "disjoint": ("disjoint", "all", "counts are drawn again"),
    "released": ("disjoint", "the first n, n = the smallest class of the split", "drawn again, already at equality"),
    "veilleux": ("may overlap", "all", "the query set is shorter"),
}
ALPHA = 2.0  # of the Dirichlet law, unless told otherwise


@dataclass(frozen=True)
class TaskProtocol:
    """How tasks are drawn. Together with a seed and an index it determines a task completely.

    Args:
        name: The rules: `disjoint`, `released` or `veilleux`.
        ways: Classes per task, K.
        shots: Labelled images per class.
        queries: Unlabelled images per task, over all classes, Q.
        alpha: Concentration of the Dirichlet law of the class proportions among the queries; None is balanced.
        version: Raised whenever the same name and seed would give other tasks.
    """

    name: ProtocolName = "disjoint"
    ways: int = 5
    shots: int = 1
    queries: int = 75
    alpha: float | None = ALPHA
    version: int = 1

    def __post_init__(self) -> None:
        if self.name not in PROTOCOL_NAMES:
            raise unknown_name("protocol", self.name, PROTOCOL_NAMES)
        for field, least in (("ways", 2), ("shots", 1), ("queries", 1)):
            value = getattr(self, field)
            if value < least:
                raise FsbenchError(f"A task needs {field} of at least {least}, got {value}.")
        if self.alpha is not None:
            if not 0 < self.alpha <= sys.float_info.max:
                raise FsbenchError(f"The Dirichlet α must be positive and finite, got {self.alpha}.")
            object.__setattr__(self, "alpha", float(self.alpha))  # 2 and 2.0 are one record

    @property
    def balanced(self) -> bool:
        """Whether every class has the same number of queries (to within one)."""
        return self.alpha is None

    @property
    def setting(self) -> str:
        """`balanced` or `unbalanced`, as the tables call it."""
        return "balanced" if self.balanced else "unbalanced"

    @property
    def overlapping(self) -> bool:
        """Whether an image may be support and query at once, as in the sampler of Veilleux et al."""
        return self.name == "veilleux"

    def describe(self, without: Sequence[str] = ()) -> str:
        """The setting in words, without the named fields."""
        parts = {
            "ways": f"{self.ways}-way",
            "shots": f"{self.shots}-shot",
            "queries": f"{self.queries} queries",
            "alpha": "balanced" if self.alpha is None else f"α = {self.alpha:g}",
        }
        return ", ".join(text for name, text in parts.items() if name not in without)

    def signature(self, without: str = "") -> str:
        """The protocol as a part of the signature line; a star stands for the value of the field to leave out."""
        shown = {name: "*" if name == without else getattr(self, name) for name in ("ways", "shots", "queries")}
        mix = "balanced" if self.alpha is None else f"dirichlet:{self.alpha:g}"
        mix = "dirichlet:*" if without == "alpha" else mix
        return f"{self.name}:{self.version}|{shown['ways']}w{shown['shots']}s{shown['queries']}q|{mix}"

    def as_dict(self) -> dict[str, Any]:
        """The protocol as plain data, for records."""
        return dataclasses.asdict(self)
