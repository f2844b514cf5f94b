"""What `fsbench solve` does: one method on every asked-for setting of a feature file, Soft-KMEANS beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fsbench.evaluation.run import Job, Machine, configure, run
from fsbench.evaluation.source import Source, source_of
from fsbench.evaluation.tuning import Search, configure_tuned
from fsbench.methods import presets
from fsbench.methods.registry import BASELINE, method_key
from fsbench.results.statistics import Interval, paired_difference

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.features.store import FeatureFile
    from fsbench.reporter import Reporter
    from fsbench.results.record import RunRecord
    from fsbench.tasks.protocol import TaskProtocol


CLEARLY = 1.0  # points below Soft-KMEANS from which BAVARDAGE is said to have failed


@dataclass(frozen=True)
class Request:
    """What to solve, whatever the features.

    Attributes:
        method: Name of the method.
        options: Its parameters as the user gave them.
        split: Where tasks are drawn from.
        tasks: How many.
        seed: Of the task list.
        tune: Whether to use parameters chosen on the validation classes, the baseline's too.
        results: Folder of records.
        force: Run again what has a record.
        base: Feature file whose base classes to use, if not the file's own.
    """

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    split: str = "novel"
    tasks: int = 10_000
    seed: int = 0
    tune: bool = False
    results: Path | None = None
    force: bool = False
    base: FeatureFile | None = None


@dataclass(frozen=True)
class Solved:
    """One row: the record, and the baseline's on the same tasks."""

    record: RunRecord
    baseline: RunRecord | None

    @property
    def gain(self) -> Interval | None:
        """Paired difference to the baseline."""
        return paired_difference(self.record.per_task, self.baseline.per_task) if self.baseline else None

    def row(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        row = self.record.row()
        if self.baseline and self.gain:
            row["baseline"] = {
                "method": self.baseline.key.method,
                "accuracy": self.baseline.accuracy,
                "ci95": self.baseline.ci95,
                "difference": self.gain.mean,
                "difference_ci95": self.gain.half_width if self.record.key.tasks > 1 else None,
            }
        return row

    def warning(self) -> str | None:
        """What to say when BAVARDAGE ends clearly below its own starting point."""
        gain, params = self.gain, self.record.key.params
        if self.record.key.method != "bavardage" or not gain or not (gain.high < 0 and gain.mean < -CLEARLY):
            return None
        remedies = []
        if not self.record.params_from.startswith("tuned"):
            remedies.append("choose them on val classes, if there are any: --tune")
        if (params["tau"], params["sigma"]) != (presets.TAU, presets.SIGMA):
            defaults = f"--tau {presets.TAU:g} --sigma {presets.SIGMA:g}"
            remedies.append(f"take the scale-free defaults: fsbench solve {defaults}")
        row = self.record.row()
        tau = params["tau"] if isinstance(params["tau"], str) else f"{params['tau']:.3g}"
        return (
            f"BAVARDAGE ({params['variant']}) is {-gain.mean:.1f} points below Soft-KMEANS on the same {row['tasks']} "
            f"tasks ({row['dataset']}, {row['setting']}, {row['shots']}-shot). Likely cause: τ = {tau}, "
            f"σ = {float(params['sigma']):.3g} do not suit these features; with too small a precision the prior lets "
            f"the largest class swallow the task. What helps: {'; or '.join(remedies) or 'Soft-KMEANS'}."
        )


def solve(
    request: Request, file: FeatureFile, protocols: list[TaskProtocol], machine: Machine, reporter: Reporter
) -> list[Solved]:
    """Solve every protocol on one feature file."""
    source = source_of(file, request.split, request.base, reporter, machine.ranks)
    rows = [_solve_one(request, file, source, protocol, machine, reporter) for protocol in protocols]
    if source.base is None:
        reporter.say(f"{file.path.name} has no base classes, which {BASELINE} needs: it is left out.")
    return rows


def record_of(
    request: Request, file: FeatureFile, source: Source, protocol: TaskProtocol, machine: Machine, reporter: Reporter
) -> RunRecord:
    """The record of the requested method alone."""
    name, options = request.method, request.options
    if request.tune:
        search = Search.on(file, source.base, name, options, protocol)
        method, origin = configure_tuned(search, source, machine, reporter, request.results)
    else:
        method, origin = configure(name, source, protocol, options)
    job = Job(method, protocol, request.seed, request.tasks, origin, method_key(name))
    with reporter.bar(f"{source.dataset} {protocol.shots}-shot {method.info.title}", job.tasks) as advance:
        return run(job, source, machine, request.results, force=request.force, progress=advance)


def _solve_one(
    request: Request, file: FeatureFile, source: Source, protocol: TaskProtocol, machine: Machine, reporter: Reporter
) -> Solved:
    record = record_of(request, file, source, protocol, machine, reporter)
    if request.method == BASELINE or source.base is None:
        return Solved(record, None)
    shared = {name: value for name, value in request.options.items() if name == "t_km"}
    baseline = replace(request, method=BASELINE, options=shared, tune=request.tune and not shared)
    return Solved(record, record_of(baseline, file, source, protocol, machine, reporter))
