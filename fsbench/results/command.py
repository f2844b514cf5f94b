"""The command that computes a recorded run again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from fsbench.methods.presets import ARTICLE_UNITS
from fsbench.tasks.protocol import ALPHA, TaskProtocol

if TYPE_CHECKING:
    from fsbench.results.record import RunRecord


def command_of(record: RunRecord) -> str:
    """The `fsbench solve` that gives this record, with the feature file where `fsbench extract` puts it.

    Tuned parameters are given by value, so that no search is repeated.
    """
    key, usual = record.key, TaskProtocol()
    rules = TaskProtocol(**key.protocol)
    method = key.method.partition("@")[0]
    words = ["fsbench", "solve", f"features/{record.dataset}-{record.backbone}.h5", "--method", method]
    words += ["--balanced"] if rules.balanced else []
    words += ["--alpha", f"{rules.alpha:g}"] if rules.alpha not in (None, ALPHA) else []
    words += ["--shots", str(rules.shots), "--tasks", str(key.tasks)]
    other = {"ways": usual.ways, "queries": usual.queries}
    words += [word for name, value in other.items() if (own := getattr(rules, name)) != value
              for word in (f"--{name}", str(own))]  # fmt: skip
    words += ["--protocol", rules.name] if rules.name != usual.name else []
    words += ["--split", key.split] if key.split != "novel" else []
    words += ["--seed", str(key.seed)] if key.seed else []
    if record.other_base or record.base_dataset:
        words += ["--base", f"features/{record.base_dataset or record.dataset}-{record.backbone}.h5"]
    origin, _, given = record.params_from.partition(" + given:")
    words += ["--preset", "article"] if origin.startswith("preset:") else []
    names = [ARTICLE_UNITS.get(name, name) for name in given.split(",")]
    known = origin == "default" or origin.startswith("preset:")
    chosen = {name: value for name, value in key.params.items() if not known or name in names}
    for name, value in chosen.items():
        words += ["--set", f"{name}={_text(value)}"]
    return shlex.join(words)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
