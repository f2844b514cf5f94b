"""Task protocols: frozen, named, versioned descriptions of how a task is drawn.

"5-way, 75 queries, Dirichlet α = 2" means three different things in circulation. Each is a named value here, and the
name is part of every signature line. `RULES` says how they differ; a new one is named here and drawn in `sampling`.

In the `keff` protocols all classes of the split are in the support, and few of them among the queries, as in Martin et
al., "Towards Practical Few-Shot Query Sets", NeurIPS 2022.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fsbench.errors import FsbenchError, unknown_name

ProtocolName = Literal["disjoint", "released", "veilleux", "keff", "keff-released"]
PROTOCOL_NAMES: tuple[str, ...] = get_args(ProtocolName)
RULES = {  # support and queries; images of a class that are used; what happens where a class is too small for its count
    "disjoint": ("disjoint", "all", "counts are drawn again"),
    "released": ("disjoint", "the first n, n = the smallest class of the split", "drawn again, already at equality"),
    "veilleux": ("may overlap", "all", "the query set is shorter"),
    "keff": ("disjoint", "all", "counts are drawn again"),
    "keff-released": ("may overlap", "all", "counts are drawn again"),
}
FEW_PRESENT = ("keff", "keff-released")
ALPHA = 2.0  # of the Dirichlet law, unless told otherwise
WAYS = 5
ALL_CLASSES = 0  # in place of a number of ways: those that the split has
PRESENT = 5  # k_eff, unless told otherwise
_MOST = 10**9  # ways, shots or queries


@dataclass(frozen=True)
class TaskProtocol:
    """How tasks are drawn. Together with a seed and an index it determines a task completely."""

    name: ProtocolName = "disjoint"  # the rules: one of those above
    ways: int = WAYS  # classes per task, K; `ALL_CLASSES` in the `keff` protocols
    shots: int = 1  # labelled images per class
    queries: int = 75  # unlabelled images per task, over all classes, Q
    # concentration of the Dirichlet law of the class proportions among the queries; None is balanced
    alpha: float | None = ALPHA
    version: int = 1  # raised whenever the same name and seed would give other tasks
    # k_eff, the classes among the queries, in the `keff` protocols; None in others, where it is all
    present: int | None = None
    pooled: bool = False  # whether the queries are drawn from all images of the present classes alike; α is None then

    def __post_init__(self) -> None:
        if self.name not in PROTOCOL_NAMES:
            raise unknown_name("protocol", self.name, PROTOCOL_NAMES)
        for field, least in (("ways", 2), ("shots", 1), ("queries", 1)):
            value = getattr(self, field)
            every_class = field == "ways" and value == ALL_CLASSES and self.name in FEW_PRESENT
            if not least <= value <= _MOST and not every_class:
                raise FsbenchError(f"A task needs {field} of {least} to {_MOST:,}, got {value}.")
        if self.name in FEW_PRESENT:
            self._check_present()
        elif self.present is not None or self.pooled:
            raise FsbenchError(f"The protocol {self.name} has all classes among the queries.", "Use keff.")
        if self.alpha is not None:
            if not 0 < self.alpha <= sys.float_info.max:
                raise FsbenchError(f"The Dirichlet α must be positive and finite, got {self.alpha}.")
            object.__setattr__(self, "alpha", float(self.alpha))  # 2 and 2.0 are one record

    def _check_present(self) -> None:
        if self.present is None:
            object.__setattr__(self, "present", PRESENT)
        if self.held < 1 or self.held > (self.ways or self.held):
            most = self.ways or "the number of classes"
            raise FsbenchError(f"The classes among the queries must be 1 to {most}, got {self.present}.")
        if self.pooled and self.alpha is not None:
            raise FsbenchError(f"Queries are drawn by image or with a Dirichlet law, got both and α = {self.alpha:g}.")

    def within(self, classes: int) -> TaskProtocol:
        """The same protocol for a split of that many classes: all of them, if it says so."""
        return dataclasses.replace(self, ways=classes) if self.ways == ALL_CLASSES else self

    @property
    def held(self) -> int:
        """Classes that the queries are drawn from."""
        return self.ways if self.present is None else self.present

    @property
    def equal(self) -> bool:
        """Whether the classes that the queries are drawn from have as many of them each (to within one)."""
        return self.alpha is None and not self.pooled

    @property
    def balanced(self) -> bool:
        """Whether every class has the same number of queries (to within one)."""
        return self.equal and self.held == self.ways

    @property
    def setting(self) -> str:
        """`balanced` or `unbalanced`, as the tables call it."""
        return "balanced" if self.balanced else "unbalanced"

    @property
    def mix_title(self) -> str:
        """The class proportions of the queries in words: `unbalanced α=2`, `balanced`, `k_eff=5 by image`."""
        if self.present is None:
            return "balanced" if self.alpha is None else f"unbalanced α={self.alpha:g}"
        mix = "by image" if self.pooled else "balanced" if self.alpha is None else f"α={self.alpha:g}"
        return f"k_eff={self.present} {mix}"

    @property
    def title(self) -> str:
        """The setting as tables name it: `unbalanced α=2 1-shot`."""
        return f"{self.mix_title} {self.shots}-shot"

    @property
    def overlapping(self) -> bool:
        """Whether an image may be support and query at once, as in the sampler of Veilleux et al."""
        return self.name in ("veilleux", "keff-released")

    def describe(self, without: Sequence[str] = ()) -> str:
        """The setting in words, without the named fields."""
        parts = {
            "ways": f"{self.ways}-way",
            "shots": f"{self.shots}-shot",
            "queries": f"{self.queries} queries",
            "alpha": "balanced" if self.equal else "by image" if self.alpha is None else f"α = {self.alpha:g}",
        }
        if self.present is not None:
            parts["queries"] += f" of {self.present} classes"
        return ", ".join(text for name, text in parts.items() if name not in without)

    def signature(self, **instead: str) -> str:
        """The protocol as a part of the signature line; words may stand in place of a number or of the mix."""
        few = "" if self.present is None else f"|keff:{self.present}"  # the classes among the queries
        shown = {
            "ways": self.ways,
            "shots": self.shots,
            "queries": self.queries,
            "mix": self.mix,
            "few": few,
            **instead,
        }
        return "{name}:{version}|{ways}w{shots}s{queries}q{few}|{mix}".format(
            name=self.name, version=self.version, **shown
        )

    @property
    def mix(self) -> str:
        """The class proportions of the queries in a signature."""
        return "images" if self.pooled else "balanced" if self.alpha is None else f"dirichlet:{self.alpha:g}"
