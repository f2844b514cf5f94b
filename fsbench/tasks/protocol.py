"""Task protocols: frozen, versioned descriptions of how a task is drawn. A protocol is its fields, a name a preset.

"5-way, 75 queries, Dirichlet α = 2" means three different things in circulation, and other fields of research have
protocols of their own. `PRESETS` names them all, with what sets them apart; the name is part of every signature line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fsbench.errors import FsbenchError, unknown_name

Amount = int | str  # a number, or `all`; a range such as `3-10` of classes; `15/class` of queries
Shots = Literal["equal", "meta", "relaxed", "realistic"]
ALPHA = 2.0  # of the Dirichlet law, unless told otherwise
ALL = "all"
_MOST = 10**9  # ways, shots or queries


@dataclass(frozen=True)
class Preset:
    """A protocol of the literature: what its name stands for, unless an option says otherwise."""

    summary: str
    reference: str
    overlap: bool = False  # whether an image may be support and query at once
    smallest: bool = False  # whether every class is cut to the size of the smallest, and may not be used up
    short: bool = False  # whether a query set is shorter where images lack; else class sizes are drawn again
    ways: Amount = 5
    queries: Amount = 75
    present: Amount | None = None
    unknown: int = 0
    support: Shots = "equal"
    # class proportions of the queries, by the settings that it has: Dirichlet, by image (unless α is given), or equal
    mixes: tuple[Literal["dirichlet", "images", "equal"], ...] = ("dirichlet", "equal")
    tasks: int = 10_000


_MARTIN = "Martin et al., NeurIPS 2022"
_SILVA = "Silva-Rodríguez et al., MICCAI 2025"
PRESETS = {
    "disjoint": Preset("support and queries share no image", "fsbench"),
    "released": Preset(
        "classes are cut to the smallest one, counts drawn again already at equality", "Hu et al., program",
        smallest=True,
    ),
    "veilleux": Preset(
        "a query can be a support image, a query set can be shorter", "Veilleux et al., NeurIPS 2021",
        overlap=True, short=True,
    ),
    "keff": Preset(
        "all classes in the support, 5 of them among the queries", _MARTIN,
        ways=ALL, present=5, mixes=("images", "equal"),
    ),
    "keff-released": Preset(
        "the same, and a query can be a support image", f"{_MARTIN}, program",
        overlap=True, ways=ALL, present=5, mixes=("images", "equal"),
    ),
    "all-way": Preset(
        "all classes, all other images as queries", "Zanella et al. (TransCLIP), NeurIPS 2024",
        ways=ALL, queries=ALL, mixes=("images",), tasks=10,
    ),
    "batches": Preset(
        "all classes, queries of a varying number of them", "Zanella et al. (StatA), CVPR 2025",
        short=True, ways=ALL, queries=64, present="2-10", mixes=("images",), tasks=1000,
    ),
    "meta": Preset(
        "5 to 50 classes, unequal shots, 10 queries per class", "Triantafillou et al. (Meta-Dataset), ICLR 2020",
        ways="5-50", queries="10/class", support="meta", mixes=("equal",), tasks=600,
    ),
    "imbalanced-support": Preset(
        "shots in proportion to class sizes, some classes without; all other images as queries", _SILVA,
        ways=ALL, queries=ALL, support="realistic", mixes=("images",), tasks=20,
    ),
    "imbalanced-support-relaxed": Preset(
        "the same, with at least one shot per class", _SILVA,
        ways=ALL, queries=ALL, support="relaxed", mixes=("images",), tasks=20,
    ),
    "open-set": Preset(
        "queries also of 5 classes without support", "Boudiaf et al. (OSLO), CVPR 2023", queries=150, unknown=5,
        tasks=1000,
    ),
}  # fmt: skip


def ends(amount: Amount, most: int) -> tuple[int, int]:
    """The smallest and the largest number that an amount stands for, where there are `most`; a range is cut there."""
    if isinstance(amount, int):
        return amount, amount
    if amount == ALL:
        return most, most
    low, _, high = amount.partition("-")
    return min(int(low), most), min(int(high or low), most)


@dataclass(frozen=True)
class TaskProtocol:
    """How tasks are drawn. Together with a seed and an index it determines a task completely."""

    name: str = "disjoint"  # the preset
    ways: Amount = 5  # classes per task, K
    shots: int = 1  # labelled images per class; their mean where they are unequal, without a meaning for `meta`
    queries: Amount = 75  # unlabelled images per task, over all classes, Q
    # concentration of the Dirichlet law of the class proportions among the queries; None is balanced
    alpha: float | None = ALPHA
    version: int = 1  # raised whenever the same name and seed would give other tasks
    present: Amount | None = None  # k_eff, the classes of a task that are among the queries; None is all
    pooled: bool = False  # whether the queries are drawn from all images of the present classes alike; α is None then
    unknown: int = 0  # further classes among the queries, without support
    support: Shots = "equal"  # the law of the shots of a class

    def __post_init__(self) -> None:
        if self.name not in PRESETS:
            raise unknown_name("protocol", self.name, PRESETS)
        self._check("ways", 2, r"all|\d+-\d+")
        self._check("shots", 0 if self.support == "equal" else 1, "")
        self._check("queries", 1, r"all|\d+/class")
        self._check("unknown", 0, "")
        if self.present is not None:
            self._check("present", 1, r"all|\d+-\d+")
        if self.support not in get_args(Shots):
            raise unknown_name("law of shots", self.support, get_args(Shots))
        if isinstance(self.ways, int) and isinstance(self.present, int) and self.present > self.ways:
            raise FsbenchError(f"The classes among the queries must be 1 to {self.ways}, got {self.present}.")
        if self.support == "meta" and not str(self.queries).endswith("/class"):
            raise FsbenchError(f"Tasks of Meta-Dataset need queries per class, such as 10/class, got {self.queries}.")
        if (self.pooled or self.queries == ALL) and self.alpha is not None:
            raise FsbenchError(f"Queries are drawn by image or with a Dirichlet law, got both and α = {self.alpha:g}.")
        if self.queries == ALL:
            object.__setattr__(self, "pooled", True)
        if self.alpha is not None:
            if not 0 < self.alpha <= sys.float_info.max:
                raise FsbenchError(f"The Dirichlet α must be positive and finite, got {self.alpha}.")
            object.__setattr__(self, "alpha", float(self.alpha))  # 2 and 2.0 are one record

    def _check(self, field: str, least: int, words: str) -> None:
        value = getattr(self, field)
        fits = least <= value <= _MOST if isinstance(value, int) else re.fullmatch(words, value)
        if fits and isinstance(value, str) and value != ALL:
            low, _, high = value.partition("-")
            fits = least <= int(low.removesuffix("/class")) <= int(high or _MOST)
        if not fits:
            raise FsbenchError(f"A task needs {field} of {least} to {_MOST:,}, got {value}.")

    @property
    def preset(self) -> Preset:
        """The rules that the name stands for."""
        return PRESETS[self.name]

    @property
    def same_size(self) -> bool:
        """Whether all tasks have the same numbers of classes, shots and queries, in a split of any size."""
        spans = (isinstance(self.ways, str) and self.ways != ALL) or isinstance(self.present, str)
        in_full = self.queries != ALL and not (self.pooled and self.preset.short)
        return in_full and not spans and self.support == "equal" and not self.unknown

    def queries_of(self, classes: int) -> int:
        """Queries of a task that are drawn from so many classes; as many as there are, if all are."""
        if isinstance(self.queries, int):
            return self.queries
        return _MOST if self.queries == ALL else classes * int(self.queries.removesuffix("/class"))

    @property
    def equal(self) -> bool:
        """Whether the classes that the queries are drawn from have as many of them each (to within one)."""
        return self.alpha is None and not self.pooled

    @property
    def balanced(self) -> bool:
        """Whether every class has the same number of queries (to within one), and there are no others."""
        return self.equal and not self.unknown and self.present in (None, ALL, self.ways)

    @property
    def setting(self) -> str:
        """`balanced` or `unbalanced`, as the tables call it."""
        return "balanced" if self.balanced else "unbalanced"

    @property
    def mix_title(self) -> str:
        """The class proportions of the queries in words: `unbalanced α=2`, `balanced`, `k_eff=5 by image`."""
        if self.queries == ALL and self.present is None:
            return "all images"
        mix = "by image" if self.pooled else "balanced" if self.alpha is None else f"α={self.alpha:g}"
        if self.present is not None:
            return f"k_eff={self.present} {mix}"
        return f"unbalanced {mix}" if self.alpha is not None else mix

    @property
    def shots_title(self) -> str:
        """The shots of a class in words: `1-shot`, `realistic 4-shot`, `unequal shots`."""
        if self.support == "meta":
            return "unequal shots"
        return f"{self.shots}-shot" if self.support == "equal" else f"{self.support} {self.shots}-shot"

    @property
    def title(self) -> str:
        """The setting as tables name it: `unbalanced α=2 1-shot`."""
        return f"{self.mix_title} {self.shots_title}"

    def describe(self, without: Sequence[str] = ()) -> str:
        """The setting in words, without the named fields."""
        parts = {
            "ways": f"{self.ways}-way",
            "shots": self.shots_title,
            "queries": f"{self.queries} queries",
            "alpha": "balanced" if self.equal else "by image" if self.alpha is None else f"α = {self.alpha:g}",
        }
        if self.present is not None:
            parts["queries"] += f" of {self.present} classes"
        if self.unknown:
            parts["queries"] += f", also of {self.unknown} unknown classes"
        return ", ".join(text for name, text in parts.items() if name not in without)

    def signature(self, **instead: str) -> str:
        """The protocol as a part of the signature line; words may stand in place of a number or of the mix."""
        more = "" if self.present is None else f"|keff:{self.present}"  # the classes among the queries
        more += f"|unknown:{self.unknown}" if self.unknown else ""
        more += "" if self.support == "equal" else f"|shots:{self.support}"
        shown = {"ways": self.ways, "shots": self.shots, "queries": self.queries, "mix": self.mix, **instead}
        rules = f"{self.name}:{self.version}"
        return "{rules}|{ways}w{shots}s{queries}q{more}|{mix}".format(rules=rules, more=more, **shown)

    @property
    def mix(self) -> str:
        """The class proportions of the queries in a signature."""
        return "images" if self.pooled else "balanced" if self.alpha is None else f"dirichlet:{self.alpha:g}"
