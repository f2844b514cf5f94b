"""A comparison as a ranking: averages, mean ranks, and groups of statistically tied methods."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fsbench.results.comparison import Cell, Column, Comparison, Entry, Group, pair_p_values
from fsbench.results.statistics import LEVEL, Interval, paired_difference

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Place:
    """A column of the ranking: a feature file in one setting."""

    group: Group
    column: Column


@dataclass(frozen=True)
class Standing:
    """A method at one place.

    Attributes:
        to_best: Difference to the best method, over the same tasks; None for the best itself.
        ties: Letters of its groups: methods that share a letter do not differ significantly.
    """

    cell: Cell
    to_best: Interval | None
    ties: str


@dataclass(frozen=True)
class Row:
    """A method at all places, with its average and mean rank if it ran at all of them."""

    entry: Entry
    standings: tuple[Standing | None, ...]
    average: float | None = None
    mean_rank: float | None = None


@dataclass(frozen=True)
class Leaderboard:
    """Methods, the best average first; then those that did not run everywhere, in the order of the comparison."""

    places: tuple[Place, ...]
    rows: tuple[Row, ...]


def leaderboard(comparison: Comparison) -> Leaderboard:
    """Rank the methods of a comparison that have runs. Ranks are among the methods that ran at every place."""
    places = tuple(
        Place(group, column)
        for group in comparison.groups
        for column in comparison.columns
        if any(cell.record for (_, at), cell in group.cells.items() if at == column)
    )
    tested = {id(group): pair_p_values(group) for group in comparison.groups}
    standings = [_standings(place, tested[id(place.group)]) for place in places]
    rows = [
        Row(entry, tuple(by_label.get(entry.label) for by_label in standings))
        for entry in comparison.entries
        if any(entry.label in by_label for by_label in standings)
    ]
    complete = [row for row in rows if all(row.standings)]
    accuracies = np.array([[_accuracy(standing) for standing in row.standings] for row in complete])
    ranked = [
        Row(row.entry, row.standings, float(values.mean()), float(ranks.mean()))
        for row, values, ranks in zip(complete, accuracies, mean_ranks(accuracies), strict=True)
    ]
    ranked.sort(key=lambda row: -(row.average or 0.0))
    return Leaderboard(places, (*ranked, *(row for row in rows if not all(row.standings))))


def mean_ranks(accuracies: NDArray[np.float64]) -> NDArray[np.float64]:
    """(M, P) ranks of (M, P) accuracies within each place: 1 for the best; equal ones share the mean of theirs."""
    if not len(accuracies):
        return accuracies
    above = (accuracies[None] > accuracies[:, None]).sum(axis=1)
    equal = (accuracies[None] == accuracies[:, None]).sum(axis=1)
    ranks: NDArray[np.float64] = 1.0 + above + (equal - 1) / 2
    return ranks


def _accuracy(standing: Standing | None) -> float:
    return standing.cell.record.accuracy if standing and standing.cell.record else float("nan")


def _standings(place: Place, p_values: dict[tuple[Column, frozenset[str]], float]) -> dict[str, Standing]:
    runs = {label: cell for (label, column), cell in place.group.cells.items() if column == place.column}
    ran = sorted(
        ((label, cell, cell.record) for label, cell in runs.items() if cell.record), key=lambda run: -run[2].accuracy
    )
    best = next(record for _, cell, record in ran if cell.best)
    differ = [pair for (column, pair), p_value in p_values.items() if column == place.column and p_value < LEVEL]
    ties = tie_letters([label for label, *_ in ran], differ)
    return {
        label: Standing(cell, None if cell.best else paired_difference(record.per_task, best.per_task), ties[label])
        for label, cell, record in ran
    }


def tie_letters(labels: Sequence[str], differ: Collection[frozenset[str]]) -> dict[str, str]:
    """Letters such that two labels share one if and only if they do not differ; `a` for the group of the first.

    Piepho's way: start with one group of all, split it at every pair that differs, and drop groups within others.
    """
    order = {label: number for number, label in enumerate(labels)}
    groups = [frozenset(labels)]
    for pair in sorted(differ, key=lambda pair: sorted(order[label] for label in pair)):
        halves = [group - {label} for group in groups if pair <= group for label in pair]
        kept = [group for group in groups if not pair <= group]
        candidates = {*halves, *kept}
        groups = [group for group in candidates if not any(group < other for other in candidates)]
    groups.sort(key=lambda group: sorted(order[label] for label in group))
    names = [*string.ascii_lowercase, *(f"z{number}" for number in range(len(groups)))]
    return {
        label: "".join(name for name, group in zip(names, groups, strict=False) if label in group) for label in labels
    }
