"""`fsbench verify`."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Annotated

import torch
import typer

import fsbench
from fsbench.cli import options as use
from fsbench.cli.session import find_features
from fsbench.devices import choose_device
from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.image_source import ImagePlaces
from fsbench.evaluation.verify import Verdict, Verifier, detectable_share
from fsbench.report.tables import stdout_console, verdicts_table
from fsbench.reporter import Reporter
from fsbench.results.collect import read_records


def verify(
    records: use.RecordsArgument = None,
    sample: Annotated[
        str, typer.Option(metavar="N|all", help="Tasks of every record to solve again, drawn at random.")
    ] = "200",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed of the sample. (default: a new one each time)")
    ] = None,
    methods: Annotated[
        str, typer.Option(metavar="NAMES", help="Methods of your own in the records: file.py:CLASS, with commas.")
    ] = "",
    device: use.Device = "auto",
    features_dir: use.FeaturesRoot = Path("features"),
    data_dir: use.DataRoot = Path("data"),
    weights_dir: use.WeightsRoot = Path("weights"),
    results_dir: use.ResultsRoot = Path("results"),
    as_json: use.AsJson = False,
    quiet: use.Quiet = False,
) -> None:
    """Solve tasks of stored records again, and compare.

    A random sample of each record's tasks is solved, and the right answers are compared task by task. Features are
    found by their content in the features folder. The exit status is 1 if a record differs or none could be verified.
    Other processors round differently, which can move an answer in a few tasks of 10,000.

    Example: [bold]fsbench verify theirs/ --sample 500[/bold]
    """
    count = _sample(sample)
    reporter, drawn = Reporter(quiet), secrets.randbits(32) if seed is None else seed
    found = sorted(read_records(records, results_dir, reporter), key=lambda record: record.source)
    images = ImagePlaces(data_dir, weights_dir)
    files = find_features(None, features_dir, reporter, images=images)
    own = [name for name in methods.split(",") if name]
    verifier = Verifier(files, own, count, drawn, choose_device(device), reporter, images)
    with reporter.bar("verifying", sum(map(verifier.count, found))) as advance:
        verdicts = [verifier.verify(record, advance) for record in found]
    if as_json:
        print(json.dumps({"seed": drawn, "records": [verdict.row() for verdict in verdicts]}, indent=1))
    else:
        console = stdout_console()
        console.print(verdicts_table(verdicts))
        for line in _summary(verdicts, count, drawn, verifier.device):
            console.print(line, soft_wrap=True, highlight=False)
    states = {verdict.state for verdict in verdicts}
    if "different" in states or "equal" not in states:
        raise typer.Exit(1)


def _sample(words: str) -> int | None:
    """The number of tasks; None is all."""
    if words == "all":
        return None
    try:
        count = use.whole_number(words)
    except (ValueError, typer.BadParameter, FsbenchError):
        count = 0
    if count < 1:
        raise UsageError("sample", f"expected a number of tasks, or all, got {words!r}")
    return count


def _summary(verdicts: list[Verdict], sample: int | None, seed: int, device: torch.device) -> list[str]:
    """What was verified, with what, and what that would have found."""
    states = [verdict.state for verdict in verdicts]
    counted = (f"{states.count(state)} {state}" for state in ("equal", "different", "not verified") if state in states)
    lines = [line for verdict in verdicts for line in verdict.details()]
    lines.append(f"{len(verdicts)} records: {', '.join(counted)}.")
    used = list(dict.fromkeys(verdict.features for verdict in verdicts if verdict.features))
    if used:
        lines.append(f"With fsbench {fsbench.__version__}, torch {torch.__version__}, {device}; {', '.join(used)}.")
    if sample is not None and any(len(verdict.tasks) < verdict.record.key.tasks for verdict in verdicts if used):
        share = 100 * detectable_share(sample)
        lines.append(
            f"Sample drawn with --seed {seed}. It would find changes in {share:.2g} % of a record's tasks "
            "with a probability of 95 %; --sample all solves every task."
        )
    return lines
