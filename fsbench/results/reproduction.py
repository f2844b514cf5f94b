"""The article's Tables 1, 2 and 3 as plain data: their cells, with our numbers and the published ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.errors import unknown_name
from fsbench.results.published import article_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsbench.results.comparison import Column
    from fsbench.results.record import RunRecord

_RIVALS = ("MAML", "Versa", "Entropy-min", "PT-MAP", "LaplacianShot", "BD-CSPN", "TIM", "alpha-TIM", "BAVARDAGE")
_CUB_RIVALS = ("PT-MAP", "Entropy-min", *_RIVALS[4:])
_STEPS = ("Soft-KMEANS", "Soft-KMEANS+VB", "BAVARDAGE")
_BOTH = ("Soft-KMEANS", "BAVARDAGE")
Rows = tuple[tuple[str, tuple[str, ...]], ...]  # a backbone and its methods, by their published names


@dataclass(frozen=True)
class Layout:
    """The blocks of a table, one per data set, and its settings."""

    caption: str
    settings: tuple[str, ...]
    blocks: tuple[tuple[str, Rows], ...]
    others: tuple[str, ...] = ()  # methods to run on feature files that have no place in the table


def _table3(*backbones: str) -> Rows:
    return tuple((backbone, _BOTH) for backbone in backbones)


TABLES = {
    "table1": Layout(
        "Table 1: methods on the same networks",
        ("unbalanced", "balanced"),
        (
            ("mini", (("RN18", _RIVALS), ("WRN", _RIVALS[2:]), ("RN12", ("BAVARDAGE",)))),
            ("tiered", (("RN18", _RIVALS[2:]), ("WRN", _RIVALS[2:]), ("RN12", ("BAVARDAGE",)))),
            ("cub", (("RN18", _CUB_RIVALS), ("RN12", ("BAVARDAGE",)))),
        ),
    ),
    "table2": Layout(
        "Table 2: the elements of BAVARDAGE",
        ("unbalanced",),
        (("mini", (("WRN", _STEPS),)), ("cub", (("RN18", _STEPS),))),
        others=_STEPS,
    ),
    "table3": Layout(
        "Table 3: BAVARDAGE and Soft-KMEANS on all data sets",
        ("unbalanced", "balanced"),
        (
            ("mini", _table3("RN18", "WRN", "RN12", "RN12*")),
            ("tiered", _table3("RN18", "WRN", "RN12", "RN12*")),
            ("cub", _table3("RN18", "RN12", "RN12*")),
            ("fc100", _table3("RN12", "RN12*")),
            ("cifarfs", _table3("RN12", "RN12*")),
        ),
    ),
}


def layout_of(name: str) -> Layout:
    """The layout of a table of the article."""
    if name not in TABLES:
        raise unknown_name("table", name, TABLES)
    return TABLES[name]


@dataclass(frozen=True)
class Cell:
    """One number of the article, and ours: None where it was not measured."""

    published: float | None
    ours: RunRecord | None

    @property
    def gap(self) -> float | None:
        """Ours minus the published one."""
        return None if self.ours is None or self.published is None else self.ours.accuracy - self.published


@dataclass(frozen=True)
class Row:
    """A method on a network, both by their published names."""

    method: str
    backbone: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Reproduction:
    """A table of the article with our numbers beside its own.

    Attributes:
        blocks: Data sets with their rows, as the article orders them.
        notes: Which networks and parameters are behind our numbers, and what is missing for the others.
    """

    caption: str
    columns: tuple[Column, ...]
    blocks: tuple[tuple[str, tuple[Row, ...]], ...]
    notes: tuple[str, ...]


def assemble(
    layout: Layout,
    columns: Sequence[Column],
    runs: dict[tuple[str, str, str, Column], RunRecord],
    notes: Sequence[str],
) -> Reproduction:
    """The table from runs by data set, backbone, method (published names) and column."""
    blocks = []
    for dataset, networks in layout.blocks:
        rows = []
        for backbone, methods in networks:
            for method in methods:
                cells = tuple(
                    Cell(
                        article_number(dataset, backbone, method, column),
                        runs.get((dataset, backbone, method, column)),
                    )
                    for column in columns
                )
                if any(cell.published is not None or cell.ours for cell in cells):
                    rows.append(Row(method, backbone, cells))
        blocks.append((dataset, tuple(rows)))
    return Reproduction(layout.caption, tuple(columns), tuple(blocks), tuple(notes))
