"""A comparison in a few sentences: which method to use, what is tied with it, how sure that is, what it assumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fsbench.results.comparison import Cell, Column, Comparison, Entry, Group
from fsbench.results.leaderboard import Place, leaderboard
from fsbench.results.metrics import ACCURACY
from fsbench.results.statistics import FEW_TASKS
from fsbench.tasks.protocol import ALL, ALPHA

_ASSUMES = {
    ("inductive",): "It labels each image by itself.",
    ("no prior",): "It assumes nothing about how frequent the classes are.",
    ("free prior",): "It estimates how frequent the classes are.",
    ("uniform prior",): "It needs to know that the classes are equally frequent.",
    ("free prior", "uniform prior"): "It estimates how frequent the classes are; in balanced settings, it is told "
    "that they are equally frequent.",
}


class Answer(NamedTuple):
    """What to use in some settings."""

    method: str  # the title of its row; empty where the tasks are too few to tell
    where: str  # the settings in words, if there are others
    text: str
    columns: tuple[Column, ...] = ()  # the settings


def answers(
    comparison: Comparison, group: Group, columns: Sequence[Column] | None = None, prefer: str = ""
) -> list[Answer]:
    """The answers for a feature file: one for all settings, or for parts of them; last, where tasks are too few.

    Settings in which a single method ran, or several with the same answers, are left out. Of tied methods, the one to
    `prefer` is named.
    """
    winners, several = {}, []
    for column in columns or comparison.columns:
        cells = {title: group.cells.get((row.label, column)) for title, row in comparison.rows.items()}
        winners[column] = {title: cell for title, cell in cells.items() if cell and (cell.best or cell.tied)}
        several += [column] if sum(map(bool, cells.values())) > 1 else []
    parts = _parts([column for column in several if column not in group.undecided], winners, prefer)
    each = [(part, method, _use(comparison, group, part, method, winners)) for part, method in parts]
    if unclear := [column for column in several if column in group.undecided]:
        each.append((unclear, "", _too_few(winners[unclear[0]])))
    return [Answer(method, _where(part) if len(each) > 1 else "", text, (*part,)) for part, method, text in each]


def sentences(comparison: Comparison) -> list[str]:
    """The answers for all feature files."""
    return [
        f"{group.dataset} {group.backbone}{one.where and ', '}{one.where}: {one.text}"
        for group in comparison.groups
        for one in answers(comparison, group)
    ]


def in_short(comparison: Comparison, group: Group) -> str:
    """`bavardage for unbalanced classes, pt-map for balanced classes`: what to use, without how sure that is."""
    each = [(one.method or "too few tasks to tell", one.where) for one in answers(comparison, group)]
    if len(each) > 2:
        return f"{listed([*dict.fromkeys(method for method, _ in each)], 8)}, depending on the setting"
    return ", ".join(f"{method} for {where}" if where else method for method, where in each)


def headline(comparison: Comparison) -> str:
    """Data sets and what to use on them, for a title."""
    names = [group.dataset for group in comparison.groups]
    if len({group.backbone for group in comparison.groups}) > 1:
        names = [f"{group.dataset} {group.backbone}" for group in comparison.groups]
    uses = {in_short(comparison, group) for group in comparison.groups}
    return listed([*dict.fromkeys(names)]) + (f": {use}" if len(uses) == 1 and (use := uses.pop()) else "")


def listed(names: Sequence[str], most: int = 4) -> str:
    """`a, b and c`; of many the first ones, and how many others."""
    shown = [*names] if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} others"]
    return " and ".join([*([", ".join(shown[:-1])] if shown[1:] else []), *shown[-1:]])


def setting_words(column: Column) -> str:
    """`1 labelled image per class, unbalanced`, for those who do not know the field's words."""
    noun = "image" if column.shots == 1 else "images"
    shots = f"{column.shots} labelled {noun} per class" if column.support == "equal" else column.shots_title
    return f"{shots}, {_mix_words(column)}"


def _mix_words(column: Column) -> str:
    return "unbalanced" if column.alpha == ALPHA and column.present is None else column.mix_title


def _where(columns: Sequence[Column]) -> str:
    mixes = {_mix_words(column) for column in columns}
    if len(columns) == 1:
        return setting_words(columns[0])
    return f"{mixes.pop()} classes" if len(mixes) == 1 else f"{len(columns)} settings"


Winners = dict[Column, dict[str, Cell]]  # the best method of a setting and those tied with it, by titles of rows


def _parts(columns: list[Column], winners: Winners, prefer: str) -> list[tuple[list[Column], str]]:
    """The settings in as few parts as share a method that is the best or tied with it; the most frequent best one."""
    if not columns:
        return []
    if common := [title for title in winners[columns[0]] if all(title in winners[column] for column in columns)]:
        often = max(common, key=lambda title: sum(winners[column][title].best for column in columns))
        return [(columns, prefer if prefer in common else often)]
    parts = [[one for one in columns if one.mix_title == mix] for mix in dict.fromkeys(c.mix_title for c in columns)]
    parts = parts if len(parts) > 1 else [[column] for column in columns]
    return [one for part in parts for one in _parts(part, winners, prefer)]


def _use(comparison: Comparison, group: Group, columns: Sequence[Column], method: str, winners: Winners) -> str:
    cells, count, rows = [winners[column][method] for column in columns], len(columns), comparison.rows
    others = dict.fromkeys(title for column in columns for title in winners[column] if title != method)
    always = [title for title in others if all(title in winners[column] for column in columns)]
    at_times = [title for title in others if title not in always]
    each = {title: [group.cells.get((one.label, column)) for column in columns] for title, one in rows.items()}
    unsure = [title for title, own in each.items() if any(cell and cell.unsure for cell in own)]
    rank = "significantly better than all others" if not others else "the best"
    rank += " that solved all tasks" if unsure else ""
    rank += "" if all(cell.best for cell in cells) else " or tied with the best"
    rank += "" if count == 1 else " in both settings" if count == 2 else f" in all {count} settings"
    rank += f", tied with {listed(always)}" if always else ""
    rank += f", sometimes tied with {listed(at_times)}" if at_times else ""
    name = "" if comparison.metric is ACCURACY else f"{comparison.metric.title} "
    mean = f" ({name}{cells[0].value.mean:.1f} %)" if count == 1 else f" for its {name.strip()}" if name else ""
    assumed = _ASSUMES.get(tuple(sorted({cell.record.method.assumes for cell in cells})), "")
    fewer = any(cell.record.tasks < group.tasks(column) for cell, column in zip(cells, columns, strict=True))
    sure = f"95 % intervals over {f'its {rows[method].fewer}' if fewer else group.counted_tasks}"
    ways, classes = cells[0].record.run.protocol.ways, len(cells[0].record.class_names)
    sure += f" of all {classes} classes" if ways in (ALL, classes) else f" of {ways} of {classes} classes"
    assumed += f" {listed(unsure)} solved too few tasks to tell." if unsure else ""
    return f"use {method}{mean}. It is {rank}{_lead(comparison, cells)} ({sure}). {assumed.strip()}".strip()


def _lead(comparison: Comparison, cells: Sequence[Cell]) -> str:
    """By how much a method beats the baseline, and how sure that is."""
    leads = [cell.difference for cell in cells if cell.difference]
    if not leads:
        return ""
    sign = 1 if comparison.metric.higher_is_better else -1
    low, high = (f"{end(sign * lead.mean for lead in leads):.1f}" for end in (min, max))
    amount = " to ".join(dict.fromkeys((low, high)))
    significant = sum(cell.significant for cell in cells)
    doubt = "" if significant == len(leads) else f", significantly in {significant} of {len(leads)} settings"
    doubt = ", which may be chance" if not significant else doubt
    width = max(lead.half_width for lead in leads)
    sure = f"{width:.1f}" if width >= 0.1 else f"{width:.2f}"
    return f", {amount} points (± {sure}) {'above' if sign > 0 else 'below'} {comparison.baseline}{doubt}"


def _too_few(winners: dict[str, Cell]) -> str:
    means = sorted(cell.value.mean for cell in winners.values())
    tasks, record = min(cell.record.tasks for cell in winners.values()), next(iter(winners.values())).record
    whole = record.run.protocol.ways in (ALL, len(record.class_names)) and tasks < FEW_TASKS
    more = f"From --tasks {FEW_TASKS} on, intervals are for more tasks of these classes alone." if whole else ""
    return (
        f"{tasks:,} {'task is' if tasks == 1 else 'tasks are'} too few to tell the methods apart: {means[-1]:.1f} % "
        f"beside {means[0]:.1f} % may be chance. {more or f'Use more: --tasks {max(1000, 10 * tasks)}.'}"
    )


class Unranked(NamedTuple):
    """A method that the ranking leaves out, as it did not run in all settings of all feature files."""

    method: str
    missing: str  # in words
    commands: list[str]  # that fill the gaps


def unranked(comparison: Comparison) -> list[Unranked]:
    """The methods without a rank over everything that others ran on."""
    several = len(comparison.groups) > 1
    return [
        Unranked(
            row.title,
            listed([(f"{place.group.dataset}, " if several else "") + place.column.title for place in row.missing]),
            [*dict.fromkeys(filter(None, (_command(comparison, row.entry, place) for place in row.missing)))],
        )
        for row in leaderboard(comparison).rows
        if row.missing
    ]


def _command(comparison: Comparison, entry: Entry, place: Place) -> str:
    """The command of another method at a place, with the method and parameters of this one; empty if there is none."""
    every = [(*key, cell.record) for group in comparison.groups for key, cell in group.cells.items()]
    solved = [item for item in every if item[2].asked[0] and not item[2].method.elsewhere]  # by fsbench, of files
    own = [record.asked[1] for label, _, record in solved if label == entry.label]
    here = [cell.record for (_, at), cell in place.group.cells.items() if at == place.column]
    others = [record.asked[0] for _, _, record in solved if any(record is one for one in here)]
    return f"{others[0]} {own[0]}".strip() if own and others else ""
