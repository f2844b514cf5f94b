"""One method over one list of tasks of one feature file: computed once, then read from its record."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import fsbench
from fsbench.evaluation.engine import Outcome, TaskList, solve_tasks, solve_together, tasks_that_fit
from fsbench.evaluation.image_source import ImagePlaces
from fsbench.io.files import require_writable
from fsbench.methods.base import Demanding
from fsbench.methods.centroids import CentredRows
from fsbench.methods.registry import METHODS, method_class
from fsbench.ranks import ALONE, Ranks
from fsbench.reporter import Reporter
from fsbench.results.predictions import Predictions, predictions_path, save_predictions
from fsbench.results.record import (
    OwnMethod,
    RunKey,
    RunRecord,
    find_record,
    first_tasks,
    named_base,
    named_network,
    record_path,
    save_record,
)
from fsbench.results.statistics import accuracies, interval
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_list

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fsbench.evaluation.source import Source
    from fsbench.methods.base import Method

_SECONDS_TO_TELL = 2.0  # of a slow method, before it says how long it will take
_SECONDS_TO_KEEP = 120.0  # of a slow method, between records of what is solved so far
POINTS = "points"  # folder below the results, for the records of single points of sweeps and searches


@dataclass(frozen=True)
class Job:
    """What is asked for: a configured method over a list of tasks.

    Attributes:
        method: With its parameters.
        protocol: How tasks are drawn.
        seed: Of the task list.
        tasks: How many.
        params_from: Where the parameters come from.
        name: Under which results are recorded, if not the method's own name.
        seconds: Solve as many of the tasks as fit into this time; None solves all.
        asked: Tasks asked for, if these are fewer, as a network is adapted to each.
    """

    method: Method
    protocol: TaskProtocol
    seed: int
    tasks: int
    params_from: str = "given"
    name: str = ""
    seconds: float | None = None
    asked: int = 0


@dataclass(frozen=True)
class Runner:
    """Computes runs and keeps their records; none of its settings changes a result.

    Attributes:
        device: Where to compute.
        batch: Tasks per block; None chooses.
        ranks: Processes that share the tasks.
        reporter: Shows progress, notes and warnings.
        results: Folder of records; None keeps nothing.
        force: Recompute existing results.
        predictions: Also write the class probabilities of all queries beside the records.
        images: Where methods on images find these, and their networks.
        ahead: Outcomes of jobs that were solved together with another one, until they are asked for.
    """

    device: torch.device
    batch: int | None = None
    ranks: Ranks = ALONE
    reporter: Reporter = field(default_factory=lambda: Reporter(quiet=True))
    results: Path | None = None
    force: bool = False
    predictions: bool = False
    images: ImagePlaces = field(default_factory=ImagePlaces)
    ahead: dict[str, Outcome] = field(default_factory=dict)

    def run(
        self,
        job: Job,
        source: Source,
        progress: Callable[[int], None] = lambda done: None,
        following: Sequence[Job] = (),
    ) -> RunRecord:
        """Give the record of a job: the stored one or the first tasks of it, else one with the missing tasks added.

        Jobs that follow on the same tasks are solved together with this one where their methods share features.
        """
        wanted = replace(job, tasks=job.asked) if job.asked and not self.predictions else job
        key = key_of(wanted, source)
        stored = self.ranks.agree(lambda: self.stored(key, source))
        if stored and job.asked:
            job = replace(job, tasks=min(max(job.tasks, stored.key.tasks), job.asked))
        if not stored or not (stored.key.tasks >= job.tasks or (job.seconds and stored.seconds > job.seconds / 2)):
            record = self._solve(job, source, stored, progress, following)
            return self.ranks.agree(lambda: record)
        progress(job.tasks)
        record = first_tasks(stored, job.tasks) if stored.key.tasks > job.tasks else stored
        record = _renamed(record, replace(job, tasks=record.key.tasks), source)
        asked = job.asked or job.tasks
        record = replace(record, asked=asked if record.key.tasks < asked else 0)
        if self.results and stored.key.tasks > job.tasks:
            self.ranks.agree(partial(_save, self.results, record, source))
        return self.ranks.agree(lambda: record)

    def stored(self, key: RunKey, source: Source) -> RunRecord | None:
        """The record of a run, or of more or fewer tasks of its list; with predictions only that of the very run."""
        if self.force or not self.results:
            return None
        path = record_path(self.results, key, source.dataset, source.backbone)
        if self.predictions and not (path.exists() and predictions_path(path).exists()):
            return None
        return find_record(path, key)

    def _solve(
        self,
        job: Job,
        source: Source,
        stored: RunRecord | None,
        progress: Callable[[int], None],
        following: Sequence[Job],
    ) -> RunRecord:
        """Add the missing tasks to what is stored, and keep the record; that of a slow method also while it runs."""
        results, fast = self.results, job.method.info.cost == "fast"
        if results:
            self.ranks.agree(partial(require_writable, results))
        if isinstance(job.method, Demanding):
            self._say_if_memory_is_short(job.method, job.protocol)
        progress(stored.key.tasks if stored else 0)
        advance = progress if fast else _estimating(job, stored, progress, self.reporter)
        limit = _SECONDS_TO_KEEP if results and not (fast or job.seconds or self.predictions) else None
        while True:
            record, probabilities = self._compute(job, source, stored, advance, following, limit)
            if results:
                self.ranks.agree(partial(_save, results, record, source, probabilities, stored))
            if not limit or record.key.tasks == job.tasks:
                return record
            stored = record

    def _compute(
        self,
        job: Job,
        source: Source,
        stored: RunRecord | None,
        progress: Callable[[int], None],
        following: Sequence[Job],
        limit: float | None,
    ) -> tuple[RunRecord, NDArray[np.float16] | None]:
        """Solve the tasks that are not stored yet, as many as fit into the seconds of a budget or limit.

        With predictions, none is stored, and the probabilities of all are kept.
        """
        first = stored.key.tasks if stored else 0
        budget = job.seconds and max(job.seconds - (stored.seconds if stored else 0), job.seconds / 2)
        tasks = TaskList(job.protocol, job.seed, job.tasks, first, budget or limit, probabilities=self.predictions)
        if outcome := self.ahead.pop(key_of(job, source).digest(), None):
            stored = None  # a record that another process has written meanwhile: its tasks are solved here too
            for part in (1, job.tasks - first - 1):  # not at once: it is no stored result, and counts for the speed
                progress(part)
        elif others := () if stored else self._solved_alike(job, source, following):
            outcome, *more = solve_together(
                [each.method for each in (job, *others)], source.split, source.base, tasks,
                device=self.device, batch=self.batch, ranks=self.ranks, progress=progress,
            )  # fmt: skip
            self.ahead.update({key_of(each, source).digest(): found for each, found in zip(others, more, strict=True)})
        else:
            outcome = solve_tasks(
                job.method, source.split, source.base, tasks, device=self.device, batch=self.batch, ranks=self.ranks,
                progress=progress,
            )  # fmt: skip
        if stored:
            outcome = Outcome(
                np.concatenate([stored.correct, outcome.correct]),
                np.concatenate([stored.queries, outcome.queries]),
                stored.seconds + outcome.seconds,
                max(stored.peak_memory, outcome.peak_memory),
            )
        solved, asked = len(outcome.correct), job.asked or job.tasks
        assert solved <= job.tasks
        record = self._record(replace(job, tasks=solved), source, outcome)
        return replace(record, asked=asked if solved < asked else 0), outcome.probabilities

    def _say_if_memory_is_short(self, method: Demanding, protocol: TaskProtocol) -> None:
        samples, usual = protocol.ways * protocol.shots + protocol.queries, torch.get_num_threads()
        fitting = tasks_that_fit(method, samples, self.device, self.ranks)
        if fitting and self.device.type == "cpu" and fitting < usual:
            self.reporter.say(
                f"{method.info.title}: {fitting} instead of {usual} tasks are solved side by side, as each takes about "
                f"{method.memory_per_task(samples) / 1e9:,.1f} GB of memory."
            )

    def _solved_alike(self, job: Job, source: Source, following: Sequence[Job]) -> list[Job]:
        """The jobs to solve together with one: on the CPU, on the same tasks, of CL2N features, and without record."""
        if self.device.type != "cpu" or self.predictions or not isinstance(job.method, CentredRows):
            return []
        found = {key_of(job, source).digest(): job}
        for other in following:
            same = replace(other, method=job.method, name=job.name, params_from=job.params_from) == job
            if same and isinstance(other.method, CentredRows):
                key = key_of(other, source)
                if not self.ranks.agree(partial(self.stored, key, source)):
                    found.setdefault(key.digest(), other)
        return [*found.values()][1:]

    def _record(self, job: Job, source: Source, outcome: Outcome) -> RunRecord:
        mean = interval(accuracies(outcome.correct, outcome.queries))
        device = self.device.type
        if device == "cuda":
            device += f":{torch.cuda.get_device_name(self.device)}"
        elif device == "cpu":
            threads = torch.get_num_threads()
            device += f":{threads} thread{'s' if threads > 1 else ''}"
        return RunRecord(
            key=key_of(job, source),
            dataset=source.dataset,
            backbone=source.backbone,
            params_from=job.params_from,
            accuracy=mean.mean,
            ci95=mean.half_width if job.tasks > 1 else None,
            correct=outcome.correct.tolist(),
            queries=outcome.queries.tolist(),
            seconds=outcome.seconds,
            peak_memory=outcome.peak_memory,
            device=device,
            signature=signature(job, source),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            crops=source.crops,
            base_dataset=source.base_dataset,
            versions={"fsbench": fsbench.__version__, "torch": torch.__version__, "python": platform.python_version()},
            ranks=self.ranks.count,
            other_base=source.other_base,
            family=source.family,
            weights=source.weights,
            network=source.network,
            images=source.images,
            own_method=_own_method(job),
        )


def _estimating(
    job: Job, stored: RunRecord | None, progress: Callable[[int], None], reporter: Reporter
) -> Callable[[int], None]:
    """Progress of a slow method, which also says how long it will take, as soon as its first tasks tell."""
    start, done, told = time.monotonic(), 0, False
    tasks = job.tasks - (stored.key.tasks if stored else 0)

    def report(more: int) -> None:
        nonlocal done, told
        progress(more)
        done, passed = done + more, time.monotonic() - start
        if not told and passed > _SECONDS_TO_TELL:
            told = True
            each = timedelta(seconds=round(passed / done * tasks))
            setting = f"{job.protocol.setting} {job.protocol.shots}-shot"
            words = f"{job.method.info.title}, {setting}: {tasks:,} {'more ' if stored else ''}tasks take about {each}"
            limit = job.seconds and timedelta(seconds=round(job.seconds))
            reporter.say(words + (f"; as many as fit into {limit} are solved." if limit else "."))

    return report


def configure(
    name: str, source: Source, protocol: TaskProtocol, options: Mapping[str, Any], preset: str = "", blind: bool = False
) -> tuple[Method, str]:
    """A method for a setting, and a word on where its parameters come from: `default`, `blind`, or `preset:mini`.

    A blind method has the defaults of unbalanced tasks, and is told no α.
    """
    context, chosen = source.context(protocol, preset), method_class(name)
    if blind:
        context = replace(context, balanced=False, alpha=None)
    method, plain = (chosen.configure(one, **options) for one in (context, replace(context, preset="")))
    origin = "blind" if blind else "default" if method.params() == plain.params() else f"preset:{context.preset}"
    if options:
        origin += " + given:" + ",".join(sorted(options))
    return method, origin


def key_of(job: Job, source: Source) -> RunKey:
    """Everything that determines the result of a job."""
    return RunKey(
        features_sha256=source.split.digest,
        base_sha256=source.base.digest if source.base else "",
        split=source.split_name,
        protocol=job.protocol.as_dict(),
        seed=job.seed,
        tasks=job.tasks,
        method=job.name or job.method.info.name,
        params=job.method.params(),
        method_version=job.method.info.version,
    )


def _renamed(stored: RunRecord, job: Job, source: Source) -> RunRecord:
    """A stored record as the present job names it; equal parameters and features may have another origin."""
    return replace(
        stored,
        dataset=source.dataset,
        backbone=source.backbone,
        params_from=job.params_from,
        signature=signature(job, source, stored.versions.get("fsbench", "unknown")),
        crops=source.crops,
        base_dataset=source.base_dataset,
        other_base=source.other_base,
        family=source.family,
        weights=source.weights,
        network=source.network,
        images=source.images,
        own_method=_own_method(job),
    )


def _save(
    folder: Path,
    record: RunRecord,
    source: Source,
    probabilities: NDArray[np.float16] | None = None,
    stored: RunRecord | None = None,
) -> None:
    """Write a record, before it the predictions if there are some, and remove the unfinished one that it extends."""
    key, split = record.key, source.split
    path = record_path(folder, key, source.dataset, source.backbone)
    if probabilities is not None:
        drawn = sample_list(TaskProtocol(**key.protocol), split.offsets, key.seed, key.tasks)
        predictions = Predictions.of(probabilities, [*drawn], split.class_names)
        save_predictions(predictions_path(path), key.digest(), predictions)
    save_record(path, record)
    if stored and stored.asked:
        unfinished = record_path(folder, stored.key, source.dataset, source.backbone)
        if not predictions_path(unfinished).exists():
            unfinished.unlink(missing_ok=True)


def signature(job: Job, source: Source, version: str = fsbench.__version__) -> str:
    """One line that a paper can print under a table; the version is that of the fsbench that computed."""
    name, number = job.name or job.method.info.name, job.method.info.version
    method = name if number == 1 else f"{name}:{number}"
    params = ",".join(
        f"{name}:{value:.4g}" if isinstance(value, float) else f"{name}:{value}"
        for name, value in job.method.params().items()
    )
    parts = [
        f"fsbench:{version}",
        f"{source.dataset}/{named_network(source.backbone, source.family, source.weights)}/{source.split_name}",
        job.protocol.signature(),
        f"seed:{job.seed}|tasks:{job.tasks}",
        f"{method}({params})" if params else method,
        f"params:{job.params_from}",
    ]
    if source.base and source.other_base:
        parts.insert(2, f"base:{named_base(source.base_dataset or source.dataset, source.base.digest)}")
    return "|".join(parts)


def _own_method(job: Job) -> OwnMethod | None:
    """What the record keeps of a method that is not part of fsbench."""
    info = job.method.info
    if job.name in ("", *METHODS):
        return None
    assumes = info.assumes(job.method.params(), job.protocol.alpha)
    return OwnMethod(info.title, info.reference, info.transductive, info.prior, info.needs_base, assumes, info.url)
