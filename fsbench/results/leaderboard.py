"""A comparison as a ranking: averages, mean ranks, and groups of statistically tied methods."""

from __future__ import annotations

import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from fsbench.results.comparison import Cell, Column, Comparison, Entry, Group, difference
from fsbench.results.statistics import LEVEL, Interval


@dataclass(frozen=True)
class Place:
    """A column of the ranking: a feature file in one setting."""

    group: Group
    column: Column


@dataclass(frozen=True)
class Standing:
    """A method at one place."""

    cell: Cell
    to_best: Interval | None  # difference to the best method, over the same tasks; None for the best itself
    ties: str  # letters of its groups: methods that share a letter do not differ significantly


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
        if any(at == column for _, at in group.cells)
    )
    standings = [_standings(place, comparison) for place in places]
    rows = [
        Row(entry, tuple(by_label.get(entry.label) for by_label in standings))
        for entry in comparison.entries
        if any(entry.label in by_label for by_label in standings)
    ]
    complete = [row for row in rows if all(row.standings)]
    sign = 1 if comparison.metric.higher_is_better else -1
    means = np.array([[one.cell.value.mean for one in row.standings if one] for row in complete])  # (M, P)
    better = (sign * means > sign * means[:, None]).sum(axis=1)  # methods that are
    ranks = (0.5 + better + (means == means[:, None]).sum(axis=1) / 2).mean(axis=1) if complete else means
    ranked = [
        Row(row.entry, row.standings, float(values.mean()), float(rank))
        for row, values, rank in zip(complete, means, ranks, strict=True)
    ]
    ranked.sort(key=lambda row: -sign * (row.average or 0.0))
    return Leaderboard(places, (*ranked, *(row for row in rows if not all(row.standings))))


def _standings(place: Place, comparison: Comparison) -> dict[str, Standing]:
    """Every method at a place, the best first."""
    cells = {label: cell for (label, column), cell in place.group.cells.items() if column == place.column}
    sign = 1 if comparison.metric.higher_is_better else -1
    ordered = sorted(cells, key=lambda label: -sign * cells[label].value.mean)
    best = next(label for label in ordered if cells[label].best)
    tested = place.group.p_values
    differ = [pair for (column, pair), p_value in tested.items() if column == place.column and p_value < LEVEL]
    ties = tie_letters(ordered, differ)
    return {
        label: Standing(
            cells[label],
            None if label == best else difference(cells[label].record, cells[best].record, comparison.metric),
            ties[label],
        )
        for label in ordered
    }


def tie_letters(labels: Sequence[str], differ: Collection[frozenset[str]]) -> dict[str, str]:
    """Letters such that two labels share one if and only if they do not differ; `a` for the group of the first.

    Piepho's way: start with one group of all, split it at every pair that differs, and drop groups within others.
    """
    order = {label: number for number, label in enumerate(labels)}
    groups = [frozenset(labels)]
    for pair in sorted(differ, key=lambda pair: sorted(order[label] for label in pair)):
        halves = [group - {label} for group in groups if pair <= group for label in pair]
        candidates = {*halves, *(group for group in groups if not pair <= group)}
        groups = [group for group in candidates if not any(group < other for other in candidates)]
    groups.sort(key=lambda group: sorted(order[label] for label in group))
    names = [*string.ascii_lowercase, *(f"z{number}" for number in range(len(groups)))]
    return {
        label: "".join(name for name, group in zip(names, groups, strict=False) if label in group) for label in labels
    }
