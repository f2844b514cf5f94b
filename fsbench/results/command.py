"""The command that computes a recorded run again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from fsbench.methods.presets import ARTICLE_UNITS
from fsbench.tasks.protocol import ALPHA, PRESENT, TaskProtocol

if TYPE_CHECKING:
    from fsbench.results.record import RunRecord


def command_of(record: RunRecord) -> str:
    """The `fsbench solve` that gives this record, with the feature file where `fsbench extract` puts it.

    Tuned parameters are given by value, so that no search is repeated.
    """
    key, usual = record.key, TaskProtocol()
    rules = TaskProtocol(**key.protocol)
    method = key.method.partition("@")[0]
    words = ["fsbench", "solve", _features(record.dataset, record.backbone), "--method", method]
    few = rules.present is not None  # then the usual numbers are others: all classes, queries drawn by image
    words += ["--balanced"] if rules.equal else []
    words += (
        ["--alpha", str(rules.alpha).removesuffix(".0")]
        if rules.alpha is not None and (few or rules.alpha != ALPHA)
        else []
    )
    words += ["--shots", str(rules.shots), "--tasks", str(key.tasks)]
    usual_numbers = {"ways": None if few else usual.ways, "queries": usual.queries, "present": PRESENT if few else None}
    for name, value in usual_numbers.items():
        words += [f"--{name}", str(own)] if (own := getattr(rules, name)) != value else []
    words += ["--protocol", rules.name] if rules.name != usual.name else []
    words += ["--split", key.split] if key.split != "novel" else []
    words += ["--seed", str(key.seed)] if key.seed else []
    if record.other_base or record.base_dataset:
        words += ["--base", _features(record.base_dataset or record.dataset, record.backbone)]
    origin, _, given = record.params_from.partition(" + given:")
    words += ["--preset", "article"] if origin.startswith("preset:") else ["--blind"] if origin == "blind" else []
    names = [ARTICLE_UNITS.get(name, name) for name in given.split(",")]
    known = origin in ("default", "blind") or origin.startswith("preset:")
    chosen = {name: value for name, value in key.params.items() if not known or name in names}
    for name, value in chosen.items():
        words += ["--set", f"{name}={_text(value)}"]
    return shlex.join(words)


def _features(dataset: str, backbone: str) -> str:
    name = f"{dataset}-{backbone}".replace("/", "_")
    return f"features/{name}.h5"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
