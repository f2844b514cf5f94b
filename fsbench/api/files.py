"""Methods on feature files: `fsbench solve` and `fsbench compare` as functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fsbench.devices import choose_device
from fsbench.errors import FsbenchError, unknown_name
from fsbench.evaluation.compare import Question, choose_methods
from fsbench.evaluation.compare import compare as compare_files
from fsbench.evaluation.comparison import Column
from fsbench.evaluation.run import Machine
from fsbench.evaluation.solve import Request, record_of
from fsbench.evaluation.source import source_of
from fsbench.features.store import FeatureFile
from fsbench.methods import split_variant
from fsbench.report.progress import Reporter
from fsbench.tasks.protocol import TaskProtocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsbench.evaluation.comparison import Comparison
    from fsbench.report.record import RunRecord

    Protocol = Literal["disjoint", "released", "veilleux"]
    Features = str | Path | FeatureFile

SETTINGS = ("unbalanced", "balanced")


def evaluate(
    method: str,
    features: Features,
    *,
    shots: int = 1,
    balanced: bool = False,
    alpha: float | None = None,
    ways: int = 5,
    queries: int = 75,
    tasks: int = 10_000,
    seed: int = 0,
    split: str = "novel",
    protocol: Protocol = "disjoint",
    base: Features | None = None,
    tune: bool = False,
    results: str | Path | None = None,
    force: bool = False,
    device: str = "auto",
    batch: int | None = None,
    progress: bool = False,
    **params: Any,
) -> RunRecord:
    """Run one method over sampled tasks, as `fsbench solve` does, without the baseline beside it.

    Args:
        method: `bavardage`, `bavardage:released`, `soft-kmeans`, … or `path/to/file.py:CLASS`.
        features: A feature file.
        shots: Labelled images per class.
        balanced: Draw equally many queries of every class.
        alpha: Dirichlet α of the class proportions of unbalanced queries; 2 unless given.
        ways: Classes per task.
        queries: Unlabelled images per task.
        tasks: How many.
        seed: Of the task list.
        split: `novel`, `val` or `base`.
        protocol: The rules: `disjoint`, `released` or `veilleux`.
        base: Feature file whose base classes to use, if not the file's own.
        tune: Use parameters chosen on the val classes.
        results: Folder of records, where a run that is there is not repeated; None stores nothing.
        force: Run again what has a record.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`.
        batch: Tasks per block.
        progress: Show bars and remarks on stderr.
        **params: Parameters of the method, e.g. `tau=0.3, sigma=20`.

    Returns:
        The record: `accuracy` and `ci95` in percent, `per_task` (T,), `signature`, `key`, and more.

    Example:
        >>> import fsbench
        >>> record = fsbench.evaluate("bavardage", "features/glyphs-rn12.h5", shots=5, tasks=100)
        >>> 20 < record.accuracy < 100, record.per_task.shape
        (True, (100,))
        >>> print(record)  # doctest: +ELLIPSIS
        bavardage on glyphs rn12, unbalanced α=2 5-shot: ... ± ... % over 100 tasks
    """
    if balanced and alpha is not None:
        raise FsbenchError("α has no meaning for balanced tasks.", "Leave out alpha, or balanced=True.")
    level = None if balanced else 2.0 if alpha is None else alpha
    rules = TaskProtocol(protocol, ways, shots, queries, level)
    name, variant = split_variant(method)
    request = Request(
        name, {**variant, **params}, split, _count(tasks), seed, tune, Path(results) if results else None, force,
        _opened(base) if base else None,
    )  # fmt: skip
    file, reporter, machine = _opened(features), Reporter(quiet=not progress), Machine(choose_device(device), batch)
    source = source_of(file, split, request.base, reporter)
    return record_of(request, file, source, rules, machine, reporter)


def compare(
    methods: str | Sequence[str],
    features: Features | Sequence[Features],
    *,
    shots: int | Sequence[int] = (1, 5),
    settings: str | Sequence[str] = SETTINGS,
    alpha: float = 2.0,
    ways: int = 5,
    queries: int = 75,
    tasks: int = 10_000,
    seed: int = 0,
    split: str = "novel",
    protocol: Protocol = "disjoint",
    baseline: str | None = None,
    base: Features | None = None,
    tune: bool = False,
    published: bool = True,
    over_data: bool = False,
    results: str | Path | None = None,
    force: bool = False,
    device: str = "auto",
    batch: int | None = None,
    progress: bool = False,
) -> Comparison:
    """Put methods side by side on the very same tasks, as `fsbench compare` does.

    Args:
        methods: Names, or one text with commas between them; `all` is every method.
        features: One feature file or several.
        shots: Labelled images per class; one number or several.
        settings: `unbalanced`, `balanced`, or both.
        alpha: Dirichlet α of the class proportions of unbalanced queries.
        ways: Classes per task.
        queries: Unlabelled images per task.
        tasks: How many per setting.
        seed: Of the task lists.
        split: `novel`, `val` or `base`.
        protocol: The rules: `disjoint`, `released` or `veilleux`.
        baseline: What others are compared to; Soft-KMEANS unless given, without base classes SimpleShot (L2N).
        base: Feature file whose base classes to use, if not the files' own.
        tune: Use parameters chosen on the val classes, where a method has some.
        published: Look up published numbers.
        over_data: Add intervals over the data.
        results: Folder of records, where a run that is there is not repeated; None stores nothing.
        force: Run again what has a record.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`.
        batch: Tasks per block.
        progress: Show bars and remarks on stderr.

    Returns:
        The table: `print(it)`, `it.show("markdown")`, `it.records`.

    Example:
        >>> import fsbench
        >>> table = fsbench.compare(["soft-kmeans", "bavardage"], "features/glyphs-rn12.h5", shots=1, tasks=50)
        >>> len(table.records)
        4
        >>> table.show("csv")  # doctest: +ELLIPSIS
        dataset,backbone,method,...
    """
    files = [_opened(one) for one in ([features] if isinstance(features, str | Path | FeatureFile) else features)]
    if not files:
        raise FsbenchError("There is no feature file to compare on.", "Give one, or several.")
    other, reporter = _opened(base) if base else None, Reporter(quiet=not progress)
    names = methods if isinstance(methods, str) else ",".join(methods)
    contestants, reference = choose_methods(names, baseline, files, other, reporter)
    question = Question(
        contestants, _columns(settings, alpha, shots), reference, TaskProtocol(protocol, ways, 1, queries, alpha),
        split, _count(tasks), seed, Path(results) if results else None, force, published, over_data, tune, other,
    )  # fmt: skip
    return compare_files(question, files, Machine(choose_device(device), batch), reporter)


def _opened(features: Features) -> FeatureFile:
    return features if isinstance(features, FeatureFile) else FeatureFile.open(features)


def _count(tasks: int) -> int:
    if tasks < 1:
        raise FsbenchError(f"At least one task is needed, got {tasks}.")
    return tasks


def _columns(settings: str | Sequence[str], alpha: float, shots: int | Sequence[int]) -> list[Column]:
    """The settings of the table, each with every number of shots."""
    found = []
    for setting in [settings] if isinstance(settings, str) else settings:
        if setting not in SETTINGS:
            raise unknown_name("setting", setting, SETTINGS)
        balanced = setting == "balanced"
        found += [Column(balanced, None if balanced else alpha, shot) for shot in _listed(shots)]
    return found


def _listed(shots: int | Sequence[int]) -> list[int]:
    return [shots] if isinstance(shots, int) else list(dict.fromkeys(shots))
