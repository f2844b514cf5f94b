"""Warnings about results, as data: what to know before trusting a number. Tables, figures and the report show them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.methods.registry import installed_info, learns
from fsbench.results.published import has_published_numbers
from fsbench.results.statistics import LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsbench.methods.base import MethodInfo
    from fsbench.results.comparison import Column, Pairs, Runs
    from fsbench.results.record import RunRecord

MEANINGS = {
    "below-ncm": "significantly below nearest class mean on the same tasks",
    "below-baseline": "significantly below the method that it starts from, by more than a point",
    "near-chance": "hardly better than guessing",
    "worse-with-more-shots": "significantly below its own result with fewer shots",
    "not-learned": "run with start values, although its parameters are meant to be learned on val tasks",
    "grid-edge": "tuned to an end of the searched range: a better value may lie beyond",
    "network": "the network is not the one behind the published numbers",
    "image-counts": "other numbers of images than the benchmark",
}
OF_FEATURES = ("network", "image-counts")  # the same for all methods of a feature file
_CLEARLY_BELOW = 1.0  # points below the method that it starts from
_NEAR_CHANCE = 0.05  # of the way from chance to 100 %


@dataclass(frozen=True)
class ResultWarning:
    """A code of `MEANINGS`, and the same in words with its numbers: `1.3 points below ncm on the same tasks`."""

    code: str
    text: str


def warnings_of(runs: Runs, p_values: Pairs) -> dict[tuple[int, str, Column], tuple[ResultWarning, ...]]:
    """The warnings of every run of a comparison; the p-values are Holm-corrected over all pairs."""
    return {key: (*_beside_others(key, runs, p_values), *own_warnings(record)) for key, record in runs.items()}


def own_warnings(record: RunRecord) -> list[ResultWarning]:
    """The warnings that a record alone gives rise to."""
    found = []
    chance = 100 / record.key.protocol["ways"]
    if record.accuracy < chance + _NEAR_CHANCE * (100 - chance):
        found.append(ResultWarning("near-chance", f"near chance, which is {chance:.3g} %"))
    if names := record.params_from.partition(":edge:")[2].partition(" ")[0]:
        verb = "is" if "," not in names else "are"
        text = f"{names.replace(',', ', ')} {verb} at the edge of the tuning grid; extend it with fsbench tune --over"
        found.append(ResultWarning("grid-edge", text))
    if record.params_from in {"default", "blind"} and _info(record) and learns(_name(record)):
        found.append(ResultWarning("not-learned", "start values in place of learned parameters; --tune learns them"))
    if record.network and has_published_numbers(record.dataset):
        found.append(ResultWarning("network", f"the network is not the published one: {record.network}"))
    if record.images:
        found.append(ResultWarning("image-counts", record.images))
    return found


def _beside_others(key: tuple[int, str, Column], runs: Runs, p_values: Pairs) -> list[ResultWarning]:
    """The warnings that other runs on the same features give rise to."""
    source, label, column = key
    record, found = runs[key], []
    for name in ("ncm", starting_point(record)):
        others = [
            (other_label, other)
            for (other_source, other_label, other_column), other in runs.items()
            if (other_source, other_column) == (source, column) and other.key.method == name and other_label != label
        ]
        for other_label, other in others[:1]:
            loss = other.accuracy - record.accuracy
            significant = p_values[source, column, frozenset((label, other_label))] < LEVEL
            if name == "ncm" and loss > 0 and significant:
                found.append(ResultWarning("below-ncm", f"{loss:.1f} points below ncm on the same tasks"))
            elif name != "ncm" and loss > _CLEARLY_BELOW and significant:
                text = f"{loss:.1f} points below {name}, which it starts from; {_remedy(record)}"
                found.append(ResultWarning("below-baseline", text))
    fewer = [
        other
        for (other_source, other_label, other), run in runs.items()
        if (other_source, other_label) == (source, label)
        and (other.balanced, other.alpha) == (column.balanced, column.alpha)
        and other.shots < column.shots
        and _significantly_below(record, run)
    ]
    if fewer:
        best = max(fewer, key=lambda other: runs[source, label, other].accuracy)
        loss = runs[source, label, best].accuracy - record.accuracy
        found.append(
            ResultWarning("worse-with-more-shots", f"{loss:.1f} points below its own {best.shots}-shot result")
        )
    return found


def starting_point(record: RunRecord) -> str:
    """The method that the method of a run starts from; empty if it has none, or is not installed."""
    info = _info(record)
    return info.starts_from if info else ""


def _info(record: RunRecord) -> MethodInfo | None:
    return installed_info(_name(record))


def _name(record: RunRecord) -> str:
    """The name of the method that ran, without the version of its package."""
    return record.key.method.partition("@")[0]


def _remedy(record: RunRecord) -> str:
    """What to do about parameters that do not suit the features, or an assumption that does not suit the tasks."""
    info, rules = _info(record), record.key.protocol
    unequal = rules["alpha"] is not None or rules.get("present") is not None
    if info and unequal and info.assumes(record.key.params, rules["alpha"]) == "uniform prior":
        return "it assumes equally frequent classes, which these tasks do not have"
    if record.params_from.startswith("tuned"):
        return f"use {starting_point(record)} on these features"
    return "tune its parameters" if record.params_from == "default" else "tune its parameters, or use its defaults"


def _significantly_below(record: RunRecord, other: RunRecord) -> bool:
    """Whether the mean of one run is below that of another one over other tasks, beyond the 95 % interval of both."""
    if record.ci95 is None or other.ci95 is None:
        return False
    return other.accuracy - record.accuracy > math.hypot(record.ci95, other.ci95)


def warning_lines(warned: Iterable[tuple[str, str, str, Sequence[ResultWarning]]]) -> list[str]:
    """Warnings as lines, one for the same in several settings: from group, label, column and warnings of every cell.

    The group is empty where there is only one.
    """
    of_methods: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    of_features: dict[str, None] = {}
    for group, label, column, warnings in warned:
        for one in warnings:
            if one.code in OF_FEATURES:
                of_features[f"{group}: {one.text}" if group else one.text] = None
            else:
                of_methods.setdefault((group, label, one.code), []).append((column, one.text))
    lines = [*of_features]
    for (group, label, _), ((column, text), *more) in of_methods.items():
        others = more[0][0] if len(more) == 1 else f"{len(more)} more settings"
        place = ", ".join(filter(None, (group, label, column)))
        lines.append(f"{place}: {text}" + (f" (also in {others})" if more else ""))
    return lines
