"""Methods over lists of tasks of a feature file: computed once, then read from their records."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fsbench
from fsbench.devices import device_name
from fsbench.errors import FsbenchError
from fsbench.evaluation.engine import Outcome, TaskList, solve
from fsbench.evaluation.source import Source
from fsbench.evaluation.spec import MethodChoice, command_of
from fsbench.io.files import require_writable
from fsbench.methods.base import Method
from fsbench.methods.bavardage import ARTICLE_UNITS
from fsbench.methods.images.loader import ImageLoader
from fsbench.methods.registry import method_class, method_key
from fsbench.ranks import ALONE, Ranks
from fsbench.reporter import Reporter
from fsbench.results.record import MethodFacts, Origins, Record, Run, load_record, record_path, save_record
from fsbench.tasks.protocol import TaskProtocol

_FIRST_TASKS = 4  # per core, of a slow method, which tell how long it will take
_SECONDS_TO_KEEP = 60.0  # of a slow method, between records of what is solved so far
_SECONDS_TO_TELL = 10.0  # that a slow method must have left to say so
POINTS = "points"  # folder below the results, for the records of single points of sweeps and searches


@dataclass(frozen=True, eq=False)
class Job:
    """What is asked for: a configured method over a list of tasks."""

    choice: MethodChoice  # the method as it was asked for
    method: Method  # the same with all its parameters
    origins: Origins  # of these
    source: Source  # what the tasks are drawn from
    protocol: TaskProtocol
    seed: int
    tasks: int  # how many

    @property
    def run(self) -> Run:
        """Everything that determines the answers."""
        base = self.source.base
        return Run(
            features=self.source.split.digest,
            base=base.digest if base else "",
            split=self.source.split_name,
            protocol=self.protocol,
            seed=self.seed,
            method=method_key(self.choice.method),
            version=self.method.info.version,
            params=self.method.params(),
        )

    @property
    def fast(self) -> bool:
        """Whether tasks take milliseconds."""
        return self.method.info.cost == "fast"

    @property
    def facts(self) -> MethodFacts:
        """What the record keeps of the method."""
        info, params = self.method.info, self.method.params()
        names = [name for name, needs in info.published.items() if all(params[key] in needs[key] for key in needs)]
        same = {name: getattr(info, name) for name in ("title", "reference", "url", "order", "starts_from")}
        assumes = info.assumes(params, self.protocol.alpha)
        taught = self.method.learns()
        return MethodFacts(label=self.choice.label, assumes=assumes, learns=taught, published_as=tuple(names), **same)

    def command(self) -> str:
        """The `fsbench solve` that computes it again, with tuned parameters by value; empty for arrays in memory."""
        source, origins = self.source, self.origins
        if source.path is None:
            return ""
        chosen = [name for name, origin in origins.params.items() if origin in ("given", "tuned")]
        parameters = {name: value for name, value in self.method.params().items() if name in chosen}
        others: dict[str, Any] = {"base": source.base_path, "split": source.split_name, "blind": origins.blind}
        others |= {"tasks": self.tasks, "seed": self.seed, "preset": "article" if origins.preset else ""}
        return command_of(source.path, self.choice.method, parameters, self.protocol, **others)


def configure(
    choice: MethodChoice, source: Source, protocol: TaskProtocol, *, preset: str = "", blind: bool = False
) -> tuple[Method, Origins]:
    """A method for a setting, and where its parameters come from.

    A blind method has the defaults of unbalanced tasks, and is told no α.
    """
    context, chosen = source.context(protocol, preset), method_class(choice.method)
    if blind:
        context = replace(context, balanced=False, alpha=None)
    method = chosen.configure(context, **choice.options)
    params, variants = method.params(), chosen.info.variants
    origins: dict[str, Any] = {}
    if preset:
        plain = chosen.configure(replace(context, preset=""), **choice.options).params()
        origins = {name: "preset" for name, value in params.items() if value != plain[name]}
    used = context.preset if origins else ""
    origins |= {ARTICLE_UNITS.get(name, name): "given" for name in choice.options}
    return method, Origins(params=origins, variant=variants.parameter if variants else "", preset=used, blind=blind)


@dataclass(frozen=True)
class Runner:
    """Computes runs and keeps their records; none of its settings changes a result."""

    device: torch.device
    batch: int | None = None  # tasks per block; None chooses
    ranks: Ranks = ALONE  # processes that share the tasks
    reporter: Reporter = field(default_factory=lambda: Reporter(quiet=True))
    results: Path | None = None  # folder of records; None keeps nothing
    force: bool = False  # recompute existing results
    images: ImageLoader = field(default_factory=ImageLoader)  # where methods on images find these and their networks

    def run_all(self, jobs: Sequence[Job], progress: Callable[[int, str], None] | None = None) -> list[Record]:
        """The records of jobs, in their order: stored ones, or with the missing tasks added.

        Fast methods that lack the same tasks are solved together, which draws these tasks once. Progress is told as
        tasks that are done, times methods, and what is under way.
        """
        advance = progress or (lambda done, label: None)
        drafts = [_draft(job, self) for job in jobs]
        records = [self.ranks.agree(partial(self._stored, draft)) for draft in drafts]
        together: dict[tuple[Any, ...], list[int]] = {}
        for place, (job, record) in enumerate(zip(jobs, records, strict=True)):
            done = min(_count(record), job.tasks)
            advance(done, "")
            if done < job.tasks:
                alone = () if job.fast else (place,)
                key = id(job.source.split), job.protocol, job.seed, done, job.tasks, *alone
                together.setdefault(key, []).append(place)
        if together and self.results:
            self.ranks.agree(partial(require_writable, self.results))
        for places in together.values():
            lacking = [(jobs[n], drafts[n], records[n]) for n in places]
            for place, record in zip(places, self._extended(lacking, advance), strict=True):
                records[place] = record
        return [record.first(job.tasks) for job, record in zip(jobs, records, strict=True) if record]

    def run(self, job: Job) -> Record:
        """The record of one job."""
        return self.run_all([job])[0]

    def _stored(self, draft: Record) -> Record | None:
        """The stored record of a run, as the present job names it; equal runs may have another origin."""
        if self.force or not self.results:
            return None
        path = record_path(self.results, draft)
        if not path.exists():
            return None
        record = load_record(path)
        if record.run != draft.run:
            raise FsbenchError(f"The record {path} does not match its file name.", "Recompute it with --force.")
        names = ("method", "origins", "command", "provenance", "base_provenance", "network", "images", "class_names")
        return record.update(**{name: getattr(draft, name) for name in names})

    def _extended(
        self, lacking: Sequence[tuple[Job, Record, Record | None]], advance: Callable[[int, str], None]
    ) -> list[Record]:
        """Solve what jobs lack, each with its record as a draft without answers and as far as it is stored.

        Records are kept, those of a slow method also while it runs.
        """
        jobs, drafts, records = zip(*lacking, strict=True)
        first, source, done, told = jobs[0], jobs[0].source, _count(records[0]), False
        label = f"{source.dataset} {first.protocol.title} {', '.join(job.choice.label for job in jobs)}"
        threads = self.ranks.agree(torch.get_num_threads)  # all processes solve the same tasks together
        size = first.tasks if first.fast else _FIRST_TASKS * threads * self.ranks.count
        while done < first.tasks:
            numbers, started = np.arange(done, min(first.tasks, done + size)), time.monotonic()
            outcomes = solve(
                [job.method for job in jobs], source.split, source.base, TaskList(first.protocol, first.seed, numbers),
                device=self.device, batch=self.batch, ranks=self.ranks,
                progress=lambda more: advance(more * len(jobs), label),
            )  # fmt: skip
            extended = [_with(*one) for one in zip(drafts, records, outcomes, strict=True)]
            for record in extended if self.results else ():
                path = record_path(self.results, record)  # type: ignore[arg-type]
                self.ranks.agree(partial(save_record, path, record))
            records, done = tuple(extended), done + len(numbers)
            seconds = self.ranks.agree(lambda: max(time.monotonic() - started, 1e-3))  # noqa: B023
            left = (first.tasks - done) * seconds / len(numbers)
            size = max(size, int(_SECONDS_TO_KEEP * len(numbers) / seconds))
            if not told and left > _SECONDS_TO_TELL:
                told, time_left = True, timedelta(seconds=round(left))
                words = f"{first.method.info.title}, {first.protocol.title}: {first.tasks - done:,} more tasks"
                self.reporter.say(f"{words} take about {time_left}.")
        return [record for record in records if record]


def _draft(job: Job, runner: Runner) -> Record:
    """The record of a job, without answers."""
    source = job.source
    return Record(
        run=job.run,
        method=job.facts,
        origins=job.origins,
        command=job.command(),
        provenance=source.provenance,
        base_provenance=source.base_provenance,
        network=source.network,
        images=source.images,
        class_names=source.split.class_names,
        seconds=0.0,
        peak_memory=0,
        device=device_name(runner.device),
        ranks=runner.ranks.count,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"fsbench": fsbench.__version__, "torch": torch.__version__, "python": platform.python_version()},
    )


def _count(record: Record | None) -> int:
    return record.tasks if record else 0


def _with(draft: Record, stored: Record | None, outcome: Outcome) -> Record:
    """A record of the stored tasks and of those that were just solved."""
    new = draft.update(outcome.answers, seconds=outcome.seconds, peak_memory=outcome.peak_memory)
    if stored is None:
        return new
    seconds, peak = stored.seconds + new.seconds, max(stored.peak_memory, new.peak_memory)
    return new.update(stored.answers + new.answers, seconds=seconds, peak_memory=peak)
