"""Warnings about results, as data: what to know before trusting a number. Tables, figures and the report show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.results.published import PUBLISHED_ON
from fsbench.results.statistics import LEVEL

if TYPE_CHECKING:
    from fsbench.results.comparison import Column, Pairs, Runs
    from fsbench.results.record import Record

OF_FEATURES = ("network", "image-counts", "run", "redrawn")  # the same for all methods of a feature file, or setting
_CLEARLY_BELOW = 1.0  # points below the method that it starts from
_OFTEN_REDRAWN = 0.01
_NEAR_CHANCE = 0.05  # of the way from chance to 100 %


@dataclass(frozen=True)
class ResultWarning:
    """A code such as `below-ncm`, and the same in words with its numbers: `1.3 points below ncm on the same tasks`."""

    code: str
    text: str


def warnings_of(record: Record) -> list[ResultWarning]:
    """The warnings that a record alone gives rise to."""
    warnings = [ResultWarning("run", text) for text in record.warnings]
    chance = float((100 / (record.answers.classes >= 0).sum(axis=1)).mean())
    if record.interval("accuracy").mean < chance + _NEAR_CHANCE * (100 - chance):
        warnings.append(ResultWarning("near-chance", f"near chance, which is {chance:.3g} %"))
    if record.redrawn > _OFTEN_REDRAWN:
        text = f"about {record.redrawn:.0%} of the class proportions were drawn again for lack of images"
        warnings.append(ResultWarning("redrawn", f"{text}, so they are not those asked for"))
    origins = record.origins
    if origins.tuning and (edge := origins.tuning.edge):
        verb = "is" if len(edge) == 1 else "are"
        text = f"{', '.join(edge)} {verb} at the edge of the tuning grid; extend it with fsbench tune --over"
        warnings.append(ResultWarning("grid-edge", text))
    if record.method.learns and origins.kind in {"default", "blind"} and not origins.given:
        warnings.append(ResultWarning("not-learned", "start values in place of learned parameters; --tune learns them"))
    if record.network and record.dataset in PUBLISHED_ON:
        warnings.append(ResultWarning("network", f"features are not as published: {record.network}"))
    if record.images:
        warnings.append(ResultWarning("image-counts", record.images))
    return warnings


def warnings_beside(key: tuple[int, str, Column], runs: Runs, p_values: Pairs) -> list[ResultWarning]:
    """The warnings that other runs on the same features give rise to; p-values are corrected over all pairs."""
    source, label, column = key
    record, warnings = runs[key], []
    beside = {name: run for (place, name, at), run in runs.items() if (place, at) == (source, column) and name != label}
    for method in ("ncm", record.method.starts_from):
        name = next((name for name, run in beside.items() if run.run.method == method), None)
        if name is None or p_values[source, column, frozenset((label, name))] >= LEVEL:
            continue
        loss = beside[name].accuracy - record.accuracy
        if method == "ncm" and loss > 0:
            warnings.append(ResultWarning("below-ncm", f"{loss:.1f} points below ncm on the same tasks"))
        elif method != "ncm" and loss > _CLEARLY_BELOW:
            text = f"{loss:.1f} points below {method}, which it starts from; {_remedy(record)}"
            warnings.append(ResultWarning("below-baseline", text))
    return warnings


def _remedy(record: Record) -> str:
    """What to do about parameters that do not suit the features, or an assumption that does not suit the tasks."""
    if not record.run.protocol.balanced and record.method.assumes == "uniform prior":
        return "it assumes equally frequent classes, which these tasks do not have"
    if record.origins.tuning:
        return f"use {record.method.starts_from} on these features"
    default = record.origins.kind == "default" and not record.origins.by_hand
    return "tune its parameters" if default else "tune its parameters, or use its defaults"


def warning_lines(warned: Iterable[tuple[str, str, str, Sequence[ResultWarning]]]) -> list[str]:
    """Warnings as lines, one for the same in several settings: from group, label, column and warnings of every cell.

    The group is empty where there is only one.
    """
    of_methods: dict[tuple[str, str, str], dict[str, str]] = {}
    of_features: dict[str, None] = {}
    for group, label, column, warnings in warned:
        for one in warnings:
            if one.code in OF_FEATURES and one.code != "redrawn":
                of_features[f"{group}: {one.text}" if group else one.text] = None
            else:
                of_methods.setdefault((group, label * (one.code != "redrawn"), one.code), {})[column] = one.text
    lines = [*of_features]
    for (group, label, _), texts in of_methods.items():
        (column, text), *more = texts.items()
        others = more[0][0] if len(more) == 1 else f"{len(more)} more settings"
        place = ", ".join(filter(None, (group, label, column)))
        lines.append(f"{place}: {text}" + (f" (also in {others})" if more else ""))
    return lines
