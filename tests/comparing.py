"""Comparisons in a line, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fsbench.evaluation.compare import compare
from fsbench.evaluation.run import Runner
from fsbench.evaluation.spec import Spec, parse_methods, with_options
from fsbench.reporter import Reporter
from fsbench.tasks.protocol import TaskProtocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fsbench.features.store import FeatureFile
    from fsbench.results.comparison import Comparison, PairedRow

CPU = torch.device("cpu")
QUIET = Reporter(quiet=True)
FOUR = tuple(TaskProtocol(shots=shots, alpha=alpha) for alpha in (2.0, None) for shots in (1, 5))


def runner(results: Path | None = None, **options: Any) -> Runner:
    """A quiet runner on the CPU."""
    return Runner(CPU, **{"reporter": QUIET, "results": results, **options})


def compared(
    methods: str,
    files: Sequence[FeatureFile],
    protocols: Sequence[TaskProtocol] = FOUR,
    *,
    results: Path | None = None,
    base: FeatureFile | None = None,
    **fields: Any,
) -> Comparison:
    """A table of methods."""
    spec = Spec(
        methods=tuple(parse_methods(methods)), protocols=tuple(protocols), all_methods=methods == "all", **fields
    )
    return compare(spec, files, runner(results), base)


def solved(
    method: str,
    file: FeatureFile,
    protocols: Sequence[TaskProtocol] = (TaskProtocol(),),
    *,
    options: Mapping[str, Any] | None = None,
    results: Path | None = None,
    base: FeatureFile | None = None,
    **fields: Any,
) -> list[PairedRow]:
    """What `fsbench solve` computes: a method and its baseline."""
    (choice,) = parse_methods(method)
    spec = Spec(methods=(with_options(choice, options or {}),), protocols=tuple(protocols), **fields)
    return compare(spec, [file], runner(results), base).paired_rows()
