"""`fsbench verify`."""

from __future__ import annotations

import json
import secrets

import torch
import typer

import fsbench
from fsbench.cli.options import Verify
from fsbench.cli.session import find_features
from fsbench.devices import choose_device
from fsbench.errors import UsageError
from fsbench.evaluation.options import Features
from fsbench.evaluation.run import Runner
from fsbench.evaluation.verify import Verdict, Verifier
from fsbench.methods.images.loader import ImageLoader
from fsbench.report.tables import verdicts_table
from fsbench.report.writers import show, stdout_console
from fsbench.reporter import Reporter
from fsbench.results.collect import read_records


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
