"""Names of runs in a table: the method, its variant, and the parameters that tell it from its neighbours."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from fsbench.methods import METHODS, VARIANT_PARAMETER, method_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsbench.report.record import RunRecord

_RECORDED_AS = {"t_vb": "tau", "s_max": "sigma"}  # given in the article's units, recorded in scale-free ones


def label_runs(records: Sequence[RunRecord]) -> list[str]:
    """Labels for the runs of one comparison, such that no two runs of a setting share one.

    A run is called as `fsbench compare` calls it. Where runs of one name were configured in different ways, those that
    do not have the default parameters say what was given, or that they were tuned. If that does not tell them apart,
    the parameters that differ do.
    """
    names = _names(records)
    remarks = [_remark(record) for record in records]
    ways: dict[str, set[str]] = {}
    for name, remark in zip(names, remarks, strict=True):
        ways.setdefault(name, set()).add(remark)
    found = [
        f"{name} {remark}" if remark and len(ways[name]) > 1 else name
        for name, remark in zip(names, remarks, strict=True)
    ]
    differing = _differing(records, found)
    return [
        " ".join([label, *(f"{name}={record.key.params.get(name)}" for name in differing[label])])
        for record, label in zip(records, found, strict=True)
    ]


def order(label: str, method: str) -> tuple[int, list[str | float]]:
    """Sorts labels as the table of methods lists them, then others; numbers in labels by value."""
    place = [*METHODS].index(method) if method in METHODS else len(METHODS)
    parts = re.split(r"(\d+(?:\.\d+)?)", label)  # text and numbers take turns
    return place, [float(part) if number % 2 else part for number, part in enumerate(parts)]


def _names(records: Sequence[RunRecord]) -> list[str]:
    """Method and variant; a class of the user's file goes by its own name while there is one of that name."""
    classes = {record.key.method: _class_name(record.key.method) for record in records}
    short = list(classes.values())
    return [
        record.key.method if short.count(classes[record.key.method]) > 1 else _with_variant(record, classes)
        for record in records
    ]


def _class_name(method: str) -> str:
    """`Mine` for `mine.py:Mine@1a2b3c4d`, `theirs` for `theirs@1.2`."""
    return (method.rpartition(":")[2] if ".py:" in method else method).partition("@")[0]


def _with_variant(record: RunRecord, classes: dict[str, str]) -> str:
    method = record.key.method
    parameter = VARIANT_PARAMETER.get(method)
    if parameter is None:
        return classes[method]
    fields = dataclasses.fields(method_class(method))  # type: ignore[arg-type]
    default = next(field.default for field in fields if field.name == parameter)
    variant = record.key.params.get(parameter, default)
    return method if variant == default else f"{method}:{variant}"


def _remark(record: RunRecord) -> str:
    """How a run departs from the default parameters: `tau=0.2`, `(tuned:val:50x500)`, or nothing."""
    origin, _, given = record.params_from.partition(" + given:")
    params = record.key.params
    named = [_RECORDED_AS.get(name, name) for name in given.split(",") if name]
    words = [
        f"{name}={params[name]:.4g}" if isinstance(params[name], float) else f"{name}={params[name]}"
        for name in named
        if name in params and name != VARIANT_PARAMETER.get(record.key.method)
    ]
    if not origin.startswith(("default", "preset:")):
        words.append(f"({origin})")
    return " ".join(words)


def _differing(records: Sequence[RunRecord], labels: Sequence[str]) -> dict[str, list[str]]:
    """For every label, the parameters that differ between runs of one setting."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    found: dict[str, set[str]] = {label: set() for label in labels}
    for record, label in zip(records, labels, strict=True):
        key = record.key
        setting = repr((key.features_sha256, key.base_sha256, sorted(key.protocol.items())))
        cells.setdefault((label, setting), []).append(key.params)
    for (label, _), params in cells.items():
        for name in {name for one in params for name in one}:
            if any(one.get(name) != params[0].get(name) for one in params):
                found[label].add(name)
    return {label: sorted(names) for label, names in found.items()}
