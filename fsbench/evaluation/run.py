"""Methods over lists of tasks of a feature file: computed once, then read from their records."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fsbench
from fsbench.devices import device_name
from fsbench.errors import FsbenchError
from fsbench.evaluation.engine import MethodError, Outcome, TaskList, solve
from fsbench.evaluation.source import FACTS, Source
from fsbench.evaluation.spec import MethodChoice, command_of
from fsbench.features.scatter import BaseStatistics
from fsbench.io.files import only_writer, require_writable
from fsbench.methods.base import Context, Learnable, Method
from fsbench.methods.bavardage import ARTICLE_UNITS
from fsbench.methods.images.loader import ImageLoader
from fsbench.methods.pool import POOL
from fsbench.methods.registry import method_class, method_key
from fsbench.methods.soft_kmeans import benchmark_with_preset
from fsbench.ranks import ALONE, Ranks
from fsbench.reporter import Reporter
from fsbench.results.record import MethodFacts, Origins, Record, Run, load_record, record_path, save_record
from fsbench.tasks.protocol import ALPHA, TaskProtocol
from fsbench.tasks.sampling import feasible_sizes

_FIRST_TASKS = 4  # per core, of a slow method, which tell how many are solved before they are kept
_SECONDS_TO_KEEP = 60.0  # of a slow method, between records of what is solved so far
NEEDS_TEXT = "Import the features again with the text of their classes: fsbench import novel=FILE text=FILE."
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


def lack_of_examples(choice: MethodChoice, text: bool, shots: int) -> FsbenchError | None:
    """What a method cannot do without, where there is no text or no labelled image of the classes."""
    if choice.info.text == "needed" and not text:
        return FsbenchError("There are no text prototypes of the classes.", NEEDS_TEXT)
    if not shots and not choice.info.zero_shot:
        hint = "Use --shots 1 or more, or a method that works from text alone, such as zero-shot."
        return FsbenchError("There are no labelled images at 0 shots.", hint)
    return None


def configure(
    choice: MethodChoice, source: Source, protocol: TaskProtocol, *, preset: str = "", blind: bool = False
) -> tuple[Method, Origins]:
    """A method for a setting, and where its parameters come from.

    A blind method has the defaults of unbalanced tasks, and is told no α.
    """
    if lack := lack_of_examples(choice, source.split.text is not None, protocol.shots):
        raise FsbenchError(f"{choice.label} cannot run here. {lack.message}", lack.hint)
    chosen = method_class(choice.method)
    context = Context(
        balanced=protocol.balanced and not blind,
        shots=protocol.shots,
        preset=benchmark_with_preset(source.provenance.dataset) if preset else "",
        alpha=None if blind else protocol.alpha or ALPHA,
        base=source.base if isinstance(source.base, BaseStatistics) else None,
        network=source.image_network,
    )
    method = chosen.configure(context, **choice.options)
    params, variants = method.values(), chosen.info.variants
    origins: dict[str, Any] = {}
    if preset:
        plain = chosen.configure(replace(context, preset=""), **choice.options).values()
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

    def run_all(self, jobs: Sequence[Job], advance: Callable[[int, str], None]) -> list[Record | MethodError]:
        """The records of jobs, in their order: stored ones, or with the missing tasks added.

        In place of the record of a method that fails there is its error, unless several processes share the tasks.
        Fast methods that lack the same tasks are solved together, which draws these tasks once. Progress is told as
        tasks that are done, times methods, and what is under way.
        """
        drafts = [_draft(job, self) for job in jobs]
        records = [self.ranks.agree(partial(self._stored, draft)) for draft in drafts]
        together: dict[tuple[Any, ...], list[int]] = {}
        for place, (job, record) in enumerate(zip(jobs, records, strict=True)):
            done = min(record.tasks if record else 0, job.tasks)
            advance(done, "")
            if done < job.tasks:
                alone = () if job.method.info.cost == "fast" else (place,)
                key = id(job.source.split), job.protocol, job.seed, done, job.tasks, *alone
                together.setdefault(key, []).append(place)
        if together and self.results:
            self.ranks.agree(partial(require_writable, self.results))
        failed: dict[int, MethodError] = {}
        while together:
            key = next(iter(together))
            places = together.pop(key)
            lacking = [(jobs[n], drafts[n], records[n]) for n in places]
            try:
                for place, record in zip(places, self._extended(lacking, advance), strict=True):
                    records[place] = record
            except MethodError as error:
                if self.ranks.count > 1:
                    raise
                failed[places[error.number]] = error
                if rest := [place for place in places if place not in failed]:
                    together[key] = rest
        whole = {n: record.first(jobs[n].tasks) for n, record in enumerate(records) if record}
        return [failed.get(n) or whole[n] for n in range(len(jobs))]

    def run(self, job: Job, advance: Callable[[int, str], None] = lambda done, label: None) -> Record:
        """The record of one job."""
        (record,) = self.run_all([job], advance)
        if isinstance(record, MethodError):
            raise record
        return record

    def _stored(self, draft: Record) -> Record | None:
        """The stored record of a run, as the job names it; its origin may be another."""
        if self.force or not self.results:
            return None
        path = record_path(self.results, draft)
        if not path.exists():
            return None
        record = load_record(path)
        if record.run != draft.run:
            raise FsbenchError(f"The record {path} does not match its file name.", "Recompute it with --force.")
        asked = [record.origins, *record.also]
        asked += [draft.origins] if draft.origins not in asked else []
        present = {name: getattr(draft, name) for name in (*FACTS, "method")}
        kept = record.model_copy(update={**present, "also": tuple(asked[1:])})
        if kept != record:
            with suppress(FsbenchError, OSError):  # a folder that cannot be written is shown all the same
                self._keep(kept)
        of_answers = {"answers", "seconds", "peak_memory", "redrawn", "device", "ranks", "created", "versions"}
        others = tuple(one for one in asked if one != draft.origins)
        return draft.model_copy(update={**{name: getattr(record, name) for name in of_answers}, "also": others})

    def _extended(
        self, lacking: Sequence[tuple[Job, Record, Record | None]], advance: Callable[[int, str], None]
    ) -> list[Record]:
        """Solve what jobs lack, each with its record as a draft without answers and as far as it is stored.

        Records are kept, those of a slow method also while it runs.
        """
        jobs, drafts, records = zip(*lacking, strict=True)
        first, source = jobs[0], jobs[0].source
        done = records[0].tasks if records[0] else 0
        label = f"{source.provenance.dataset} {first.protocol.title} {', '.join(job.choice.label for job in jobs)}"
        threads = self.ranks.agree(torch.get_num_threads)  # all processes solve the same tasks together
        size = first.tasks if first.method.info.cost == "fast" else _FIRST_TASKS * threads * self.ranks.count
        notes: set[str] = set()

        def progress(more: int, note: str = "") -> None:
            if note and not notes:
                notes.add(note)
                self.reporter.say(note)
            advance(more * len(jobs), label)

        while done < first.tasks:
            numbers, started = np.arange(done, min(first.tasks, done + size)), time.monotonic()
            outcomes = solve(
                [job.method for job in jobs], source.split, source.base,
                TaskList(first.protocol, first.seed, numbers),
                device=self.device, batch=self.batch, ranks=self.ranks,
                progress=progress,
            )  # fmt: skip
            extended = [_with(*one) for one in zip(drafts, records, outcomes, strict=True)]
            for record in extended if self.results else ():
                self.ranks.agree(partial(self._keep, record))
            records, done = tuple(extended), done + len(numbers)
            seconds = self.ranks.agree(lambda: max(time.monotonic() - started, 1e-3))  # noqa: B023
            size = max(size, int(_SECONDS_TO_KEEP * len(numbers) / seconds))
        return [record for record in records if record]

    def _keep(self, record: Record) -> None:
        """Write a record, unless there is a longer one; with `force`, one that begins with the same answers."""
        assert self.results is not None
        path, stored = record_path(self.results, record), None
        with only_writer(path, waiting=lambda sentence: None):
            with suppress(FsbenchError):  # damaged
                stored = load_record(path) if path.exists() else None
            longer = stored is not None and stored.tasks > record.tasks
            if not longer or (self.force and stored and stored.first(record.tasks).answers != record.answers):
                save_record(path, record)


def _draft(job: Job, runner: Runner) -> Record:
    """The record of a job, without answers. Its command has tuned parameters by value; arrays in memory have none."""
    source, base, origins, protocol = job.source, job.source.base, job.origins, job.protocol
    info, params = job.method.info, job.method.params()
    run = Run(
        features=source.split.digest,
        base=base.digest if isinstance(base, BaseStatistics) else base or "",
        split=source.split_name,
        protocol=protocol,
        seed=job.seed,
        method=method_key(job.choice.method, type(job.method)),
        version=info.version,
        params=params,
    )
    facts = MethodFacts(
        label=job.choice.label,
        assumes=info.assumes(params, protocol.alpha),
        learns=isinstance(job.method, Learnable),
        published_as=tuple(
            name for name, needs in info.published.items() if all(params[key] in needs[key] for key in needs)
        ),
        **{name: getattr(info, name) for name in ("title", "reference", "url", "order", "starts_from")},
    )
    chosen = [name for name, origin in origins.params.items() if origin in ("given", "tuned")]
    command = ("", "")
    if source.path and (source.base_path or not source.base_provenance):
        given = {name: value for name, value in job.method.values().items() if name in chosen}
        of_method = {"method": job.choice.method, "parameters": given, "blind": origins.blind}
        of_method |= {"preset": "article"} if origins.preset else {}
        base_path = Path(POOL) if base == POOL else source.base_path
        of_tasks = {"base": base_path, "split": source.split_name, "tasks": job.tasks, "seed": job.seed}
        command = command_of(source.path, of_method, protocol, **of_tasks)
    sizes, names = feasible_sizes(protocol, source.split.offsets), source.split.class_names
    if few := [name for name, size in zip(names, sizes, strict=True) if not size]:
        listed = f"{', '.join(few[:5])}{', …' if few[5:] else ''}"
        told = (
            f"classes with too few images, left out of settings that need more: {len(few)} of {len(names)} ({listed})"
        )
        source = replace(source, warnings=(*source.warnings, told))
    return Record(
        run=run,
        method=facts,
        origins=origins,
        asked=command,
        **source.facts,
        seconds=0.0,
        peak_memory=0,
        device=device_name(runner.device),
        ranks=runner.ranks.count,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"fsbench": fsbench.__version__, "torch": torch.__version__, "python": platform.python_version()},
    )


def _with(draft: Record, stored: Record | None, outcome: Outcome) -> Record:
    """A record of the stored tasks and of those that were just solved."""
    if stored is None:
        return draft.model_copy(update=vars(outcome))
    new = len(outcome.answers)
    pairs = {name: [*stored.versions.get(name, "unknown").split(","), own] for name, own in draft.versions.items()}
    together = {
        "answers": stored.answers + outcome.answers,
        "seconds": stored.seconds + outcome.seconds,
        "peak_memory": max(stored.peak_memory, outcome.peak_memory),
        "redrawn": 1 - (stored.tasks + new) / (stored.tasks / (1 - stored.redrawn) + new / (1 - outcome.redrawn)),
        "versions": {name: ",".join(dict.fromkeys(versions)) for name, versions in pairs.items()},
        "also": stored.also,
    }
    return draft.model_copy(update=together)
