"""Runs and comparisons in a line, for tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fsbench.evaluation.compare import compare
from fsbench.evaluation.run import Job, Runner, configure
from fsbench.evaluation.source import Source
from fsbench.evaluation.spec import Spec, parse_methods, with_options
from fsbench.features.store import FeatureFile, Provenance
from fsbench.reporter import Reporter
from fsbench.results.comparison import Comparison
from fsbench.tasks.protocol import TaskProtocol
from tests.synthetic import Features

CPU = torch.device("cpu")
QUIET = Reporter(quiet=True)
FOUR = tuple(TaskProtocol(shots=shots, alpha=alpha) for alpha in (2.0, None) for shots in (1, 5))
# A method of a user, in a file of its own.
PLUGIN = """
from dataclasses import dataclass
from fsbench.methods.base import MethodInfo
from fsbench.methods.ncm import NearestClassMean

@dataclass(frozen=True)
class Mine(NearestClassMean):
    info = MethodInfo("mine", "Mine", "me", transductive=False, prior="none")
"""


def runner(results: Path | None = None, **options: Any) -> Runner:
    """A quiet runner on the CPU."""
    return Runner(CPU, **{"reporter": QUIET, "results": results, **options})


def source_in_memory(features: Features, split: str = "novel") -> Source:
    """A split of features that have no file."""
    return Source(split, getattr(features, split), features.statistics, Provenance("synthetic", "none"))


def job(
    source: Source,
    method: str = "ncm",
    tasks: int = 20,
    rules: TaskProtocol | None = None,
    *,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    **how: Any,
) -> Job:
    """What to run: a method as typed, with further options; `preset` and `blind` as `configure` takes them."""
    choice, protocol = with_options(parse_methods(method)[0], options or {}), rules or TaskProtocol()
    return Job(choice, *configure(choice, source, protocol, **how), source, protocol, seed, tasks)


def compared(
    methods: str,
    files: Sequence[FeatureFile],
    protocols: Sequence[TaskProtocol] = FOUR,
    *,
    options: Mapping[str, Any] | None = None,
    results: Path | None = None,
    base: FeatureFile | None = None,
    **fields: Any,
) -> Comparison:
    """A table of methods."""
    choices = tuple(with_options(choice, options or {}) for choice in parse_methods(methods))
    spec = Spec(methods=choices, protocols=tuple(protocols), all_methods=methods == "all", **fields)
    return compare(spec, files, runner(results), base)
