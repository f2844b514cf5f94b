"""A table as plain data, and its numbers as text. Everything that is printed is a list of these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from fsbench.results.statistics import Interval

Value = str | float | bool | None | dict[str, Any]
Mark = Literal["", "best", "tied", "good", "doubtful", "bad"]
NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """A column and how it is printed."""

    title: str  # with a line break where a terminal should break it
    numeric: bool = False  # aligned to the right, never broken into lines
    whole: bool = False  # text that is never broken into lines
    optional: bool = False  # left out of a terminal that is too narrow for all columns


@dataclass(frozen=True)
class Cell:
    """One cell."""

    text: str = ""  # for people
    mark: Mark = ""  # what it is among others: the best of its column, tied with it; or how well a state is
    warned: bool = False  # whether a warning belongs to it
    note: str = ""  # what a page shows where the mouse points at it
    value: Value = None  # for CSV and JSON, and for sorting; where it is None, they have the text


@dataclass(frozen=True)
class Note:
    """A line below a table; `best` explains the mark of the best, which every format has its own sign for."""

    text: str
    kind: Literal["text", "item", "best", "warning", "signature"] = "text"


@dataclass(frozen=True)
class Table:
    """Title, columns, rows of cells, and notes below."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[Note] = ()


def numbers(*titles: str) -> list[Column]:
    """Numeric columns."""
    return [Column(title, numeric=True) for title in titles]


def cells(*texts: str) -> list[Cell]:
    """Cells without marks."""
    return [Cell(text) for text in texts]


def plus_minus(mean: float, half_width: float | None) -> str:
    """A mean with its interval, which a single task does not have."""
    return f"{mean:.2f}" if half_width is None or math.isnan(half_width) else f"{mean:.2f} ± {half_width:.2f}"


def signed(difference: Interval) -> str:
    """A difference with its sign and interval."""
    sign = "" if f"{difference.mean:+.2f}".startswith("-") else "+"
    return sign + plus_minus(difference.mean, difference.half_width)


def number(value: float | str) -> str:
    """Short, without needless digits."""
    return value if isinstance(value, str) else f"{value:g}"
