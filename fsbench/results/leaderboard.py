"""A comparison as a ranking: averages, mean ranks, and groups of statistically tied methods."""

from __future__ import annotations

import itertools
import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

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
    """A method at all places; with its average and mean rank over those of the ranking, if it ran at all of them."""

    title: str  # its label, and those of methods with the same answers
    entry: Entry
    standings: tuple[Standing | None, ...]
    average: float | None = None
    mean_rank: float | None = None
    missing: tuple[Place, ...] = ()  # places of the ranking where it did not run, or on fewer tasks


@dataclass(frozen=True)
class Leaderboard:
    """Methods that ran at all places of the ranking, the best average first; then the others, which have no rank."""

    places: tuple[Place, ...]
    ranked: tuple[Place, ...]  # those that averages and ranks are over: all ranked methods have the same tasks there
    rows: tuple[Row, ...]


def leaderboard(
    comparison: Comparison, groups: Sequence[Group] | None = None, columns: Sequence[Column] | None = None
) -> Leaderboard:
    """Rank the methods of a comparison, or of some of its feature files and settings.

    An average is never over other places than the one beside it. Where methods ran at different places, the ranking has
    those places and methods that fill the largest part of the table.
    """
    places = tuple(
        Place(group, column)
        for group in (comparison.groups if groups is None else groups)
        for column in (comparison.columns if columns is None else columns)
        if any(at == column for _, at in group.cells)
    )
    standings = [_standings(place, comparison) for place in places]
    rows = [
        Row(title, entry, tuple(by_label.get(entry.label) for by_label in standings))
        for title, entry in comparison.rows.items()
        if any(entry.label in by_label for by_label in standings)
    ]
    tasks = [place.group.tasks(place.column) for place in places]
    complete = [
        frozenset(at for at, one in enumerate(row.standings) if one and one.cell.record.tasks == tasks[at])
        for row in rows
    ]
    chosen = sorted(_largest_part(complete))
    means = np.array([[one.cell.value.mean if one else np.nan for one in row.standings] for row in rows])[:, chosen]
    sign = 1 if comparison.metric.higher_is_better else -1
    inside = [number for number, own in enumerate(complete) if own >= {*chosen}]
    ranks = (sign * means[inside] > sign * means[inside][:, None]).sum(axis=1) + 0.5  # (M, P) methods that are better
    ranks = (ranks + (means[inside] == means[inside][:, None]).sum(axis=1) / 2).mean(axis=1)
    ranked = [
        replace(rows[number], average=float(means[number].mean()), mean_rank=float(rank))
        for number, rank in zip(inside, ranks, strict=True)
    ]
    ranked.sort(key=lambda row: -sign * (row.average or 0.0))
    others = [
        replace(row, missing=tuple(places[at] for at in chosen if at not in own))
        for row, own in zip(rows, complete, strict=True)
        if not own >= {*chosen}
    ]
    return Leaderboard(places, tuple(places[at] for at in chosen), (*ranked, *others))


def _largest_part(complete: Sequence[frozenset[int]]) -> frozenset[int]:
    """The places, of those that methods have in common, with the most cells in the rows of all methods that have them.

    A ranking of several methods is preferred, and of two with as many cells the one with more methods.
    """

    def cells(places: frozenset[int]) -> tuple[bool, int, int]:
        methods = sum(own >= places for own in complete)
        return methods > 1, methods * len(places), methods

    common = {one & other for one, other in itertools.product({*complete}, repeat=2)} - {frozenset()}
    return max(sorted(common, key=sorted), key=cells)


def best_first(comparison: Comparison) -> Comparison:
    """The same with methods in the order of their ranking."""
    order = {row.entry.label: number for number, row in enumerate(leaderboard(comparison).rows)}
    order |= {entry.label: order[entry.same_as] for entry in comparison.entries if entry.same_as}

    def ordered(one: Comparison) -> Comparison:
        return replace(one, entries=sorted(one.entries, key=lambda entry: order.get(entry.label, len(order))))

    return replace(ordered(comparison), others=[ordered(one) for one in comparison.others])


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
