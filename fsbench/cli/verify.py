"""`fsbench verify`: solve tasks of stored records again, and compare the answers."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import typer

import fsbench
from fsbench.cli.options import Verify
from fsbench.cli.session import find_features
from fsbench.devices import choose_device
from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.engine import TaskList, solve
from fsbench.evaluation.options import Features
from fsbench.evaluation.run import Runner
from fsbench.evaluation.source import Source, base_of, load_source, with_pixels
from fsbench.features.store import FeatureFile
from fsbench.methods.base import Context, Method
from fsbench.methods.images.loader import ImageLoader
from fsbench.methods.images.networks import ImageNetwork
from fsbench.methods.pool import POOL
from fsbench.methods.registry import method_class, method_key, method_names
from fsbench.report.writers import Cell, Column, Mark, Table, cells, show, stdout_console
from fsbench.reporter import Reporter
from fsbench.results.collect import read_records
from fsbench.results.record import Record, Run


def verify(options: Verify) -> None:
    """Solve a sample of the tasks of every record again, and print where right answers differ."""
    count = None if options.sample == "all" else options.sample
    if count is not None and count < 1:
        raise UsageError("sample", f"expected a number of tasks, or all, got {count}")
    reporter, seed = Reporter(options.quiet), secrets.randbits(32) if options.seed is None else options.seed
    records = sorted(read_records(options.records, options.results_dir, reporter), key=lambda record: record.source)
    images = ImageLoader(options.data_dir, options.weights_dir)
    runner = Runner(choose_device(options.device), reporter=reporter, images=images)
    folders = {name: getattr(options, name) for name in ("features_dir", "data_dir", "weights_dir")}
    files = find_features(Features(**folders), reporter)
    verifier = Verifier(files, list(options.methods), count, seed, runner)
    with reporter.bar("verifying", sum(map(verifier.count, records))) as advance:
        verdicts = [verifier.verify(record, advance) for record in records]
    if options.as_json:
        print(json.dumps({"seed": seed, "records": [verdict.row() for verdict in verdicts]}, indent=1))
    else:
        show(verdicts_table(verdicts))
        for line in _summary(verdicts, count, seed, runner.device):
            stdout_console().print(line, soft_wrap=True, highlight=False)
    states = {verdict.state for verdict in verdicts}
    if "different" in states or "equal" not in states:
        raise typer.Exit(1)


def _summary(verdicts: list[Verdict], sample: int | None, seed: int, device: torch.device) -> list[str]:
    """What was verified, and with what."""
    states = [verdict.state for verdict in verdicts]
    counted = (f"{states.count(state)} {state}" for state in ("equal", "different", "not verified") if state in states)
    lines = [verdict.note for verdict in verdicts if verdict.note]
    lines.append(f"{len(verdicts)} records: {', '.join(counted)}.")
    used = list(dict.fromkeys(verdict.features for verdict in verdicts if verdict.features))
    if used:
        lines.append(f"With fsbench {fsbench.__version__}, torch {torch.__version__}, {device}; {', '.join(used)}.")
    if sample is not None and any(len(verdict.tasks) < verdict.record.tasks for verdict in verdicts if used):
        lines.append(f"Sample drawn with --seed {seed}; --sample all solves every task.")
    return lines


@dataclass(frozen=True)
class Verdict:
    """What solving tasks of a record again has shown."""

    record: Record
    tasks: Sequence[int] = ()  # numbers of the tasks that were solved again
    different: Sequence[int] = ()  # those with other answers, or other queries
    features: str = ""  # the file that the features come from
    reason: str = ""  # why nothing could be verified; empty if it was

    @property
    def state(self) -> str:
        """`equal`, `different` or `not verified`."""
        return "not verified" if self.reason else "different" if len(self.different) else "equal"

    @property
    def note(self) -> str:
        """What a reader wants to know of a record that is not equal; else empty."""
        name = str(self.record).rpartition(": ")[0]
        if self.reason:
            return f"{name}: not verified, as {self.reason}."
        first = f"{len(self.different)} of {len(self.tasks)} tasks; the first is task {[*self.different, 0][0]}"
        return f"{name}: other answers in {first}." if self.different else ""

    def row(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "record": self.record.signature,
            "state": self.state,
            "reason": self.reason,
            "features": self.features,
            "tasks": self.record.tasks,
            "checked": len(self.tasks),
            "different": [*self.different],
        }


@dataclass
class Verifier:
    """Solves samples of records again. Features are read once for records of the same ones that follow each other."""

    files: Sequence[FeatureFile]  # where features are looked for, by their content
    own: Sequence[str]  # methods that are not installed, as `path/to/file.py:CLASS`
    sample: int | None  # tasks of a record that are solved again; None is all of them
    seed: int  # of the samples
    runner: Runner  # the device, and where methods on images find these
    _last: tuple[tuple[str, ...], FeatureFile, Source] | None = None

    def count(self, record: Record) -> int:
        """How many tasks of a record are to be solved."""
        return record.tasks if self.sample is None else min(self.sample, record.tasks)

    def verify(self, record: Record, advance: Callable[[int], None] = lambda done: None) -> Verdict:
        """Solve a sample of a record's tasks again."""
        run = record.run
        try:
            if record.method.elsewhere:
                raise FsbenchError("its predictions are those of another program")
            method_type, (file, source) = self._class(run), self._source(run)
            source = with_pixels(source, method_type.info.network_for(run.params), file, self.runner)
            method = _configured(method_type, run, source.image_network)
            facts = method.info.title, method.info.assumes(run.params, run.protocol.alpha)
            if (record.class_names, record.method.title, record.method.assumes) != (source.split.class_names, *facts):
                raise FsbenchError("its names of classes or facts of its method are not those of its features")
        except FsbenchError as error:
            advance(self.count(record))
            return Verdict(record, reason=error.message)
        rng = np.random.default_rng([self.seed, int(run.digest, 16)])
        numbers = np.sort(rng.permutation(record.tasks)[: self.count(record)])
        tasks, device = TaskList(run.protocol, run.seed, numbers), self.runner.device
        progress = lambda done, *note: advance(done)  # noqa: E731
        (outcome,) = solve([method], source.split, source.base, tasks, device=device, progress=progress)
        pairs = [
            (getattr(outcome.answers, name), getattr(record.answers, name)[numbers])
            for name in ("predicted", "labels", "classes", "confidence")
        ]
        close = (np.isclose(new, stored, rtol=0, atol=0.02, equal_nan=True).all(axis=1) for new, stored in pairs)
        different = ~np.all([*close], axis=0)
        return Verdict(record, numbers.tolist(), numbers[different].tolist(), str(file.path))

    def _class(self, run: Run) -> type[Method]:
        """The class of a record's method, of the very version."""
        name = run.method.partition("@")[0]
        here = [name, *self.own] if name in method_names() else self.own
        same = next((one for one in here if method_key(one) == run.method), None)
        if same is None:
            raise FsbenchError(f"its method {run.method} is not here, or of another version: name it with --methods")
        method = method_class(same)
        if method.info.version != run.version:
            raise FsbenchError(f"it is of version {run.version} of {name}, this fsbench has {method.info.version}")
        return method

    def _source(self, run: Run) -> tuple[FeatureFile, Source]:
        """The features and base classes of a record."""
        key = run.features, run.base, run.split
        if self._last is None or self._last[0] != key:
            file = self._file(run.split, run.features, "features")
            base = self._file("base", run.base, "base classes") if run.base not in ("", POOL) else None
            statistics = base_of(base, self.runner.reporter) if base else None
            self._last = key, file, load_source(file, run.split, POOL if run.base == POOL else statistics)
        return self._last[1:]

    def _file(self, split: str, digest: str, what: str) -> FeatureFile:
        """The file whose split has this content."""
        for file in self.files:
            if split in file.splits and file.summary(split).digest == digest:
                return file
        raise FsbenchError(f"its {what} ({split} {digest[:8]}) are in none of the feature files")


def _configured(method_type: type[Method], run: Run, network: ImageNetwork | None) -> Method:
    """The method of a record, with the record's parameters."""
    params = {word: math.inf if value == "inf" else value for word, value in run.params.items()}
    if network is not None and (weights := params.pop("weights", network.name)) != network.name:
        raise FsbenchError(f"its weights are {weights}, and {network.name} are here")
    try:
        context = Context(balanced=False, network=network)
        method = method_type(**params) if network is None else method_type.configure(context, **params)
    except (TypeError, FsbenchError) as error:
        raise FsbenchError(f"its parameters are not those of {run.method} ({error})") from error
    if method.params() != run.params:
        raise FsbenchError(f"its parameters are not as {run.method} would record them")
    return method


def verdicts_table(verdicts: Sequence[Verdict]) -> Table:
    """The table of `fsbench verify`: one row per record."""
    marks: dict[str, Mark] = {"equal": "good", "different": "bad", "not verified": "doubtful"}
    rows = []
    for verdict in verdicts:
        record, protocol = verdict.record, verdict.record.run.protocol
        texts = (record.dataset, record.backbone, record.method.label, protocol.mix_title, str(protocol.shots))
        checked = f"{len(verdict.tasks):,} of {record.tasks:,}"
        rows.append([*cells(*texts, checked), Cell(verdict.state, marks[verdict.state])])
    names = ("data set", "backbone", "method", "setting", "shots", "tasks", "result")
    columns = [Column(name, whole=name in ("setting", "shots", "result"), numeric=name == "tasks") for name in names]
    return Table("Records, solved again on a sample of their tasks", columns, rows)
