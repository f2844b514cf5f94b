"""`fsbench doctor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fsbench.cli import options as use
from fsbench.doctor import diagnose
from fsbench.report.tables import plain_table, stdout_console
from fsbench.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from fsbench.doctor import DatasetReport, DoctorReport, FoundFile
    from fsbench.machine import Environment

_WIDTH = 100
_COLOURS = {"complete": "green", "own images": "green", "incomplete": "yellow", "differs": "yellow"}


def show(report: DoctorReport) -> None:
    """Print the report, at most 100 columns wide."""
    console = stdout_console()
    console.width = min(console.width, _WIDTH)
    if report.datasets:
        table = plain_table(f"Data sets in {report.data_root}")
        table.add_column("data set", overflow="fold")
        table.add_column("split")
        for name in ("classes", "expected", "images", "expected"):
            table.add_column(name, justify="right")
        table.add_column("state")
        for dataset in report.datasets:
            _add_dataset(table, dataset)
        console.print(table)
    for dataset in report.datasets:
        _say(console, f"{dataset.name}, {dataset.path}:", dataset.sentences)
    _say(console, "Data:", report.data_sentences)
    _files(console, f"Weights in {report.weights_root}", report.weights)
    if report.shipped:
        _files(console, "Weights that come with fsbench", report.shipped)
    _files(console, f"Features in {report.features_root}", report.features)
    _say(console, "Images and feature files, read in full:", report.deep_sentences)
    _environment(console, report.environment)


def _add_dataset(table: Table, dataset: DatasetReport) -> None:
    state = Text(dataset.state, style=_COLOURS.get(dataset.state, "red"))
    if not dataset.splits:
        table.add_row(dataset.name, "", "", "", "", "", state)
    for position, split in enumerate(dataset.splits):
        classes, images = (split.found_classes, split.expected_classes), (split.found_images, split.expected_images)
        name, shown = (dataset.name, state) if position == 0 else ("", "")
        table.add_row(name, split.split, *map(str, classes), *(f"{count:,}" for count in images), shown)


def _say(console: Console, heading: str, sentences: Sequence[str]) -> None:
    if sentences:
        console.print(Text(heading, style="bold"))
        for sentence in sentences:
            console.print(Padding(Text(sentence), (0, 0, 0, 2)))


def _files(console: Console, title: str, files: Sequence[FoundFile]) -> None:
    if not files:
        _say(console, f"{title}:", ["none"])
        return
    table = plain_table(title)
    table.add_column("file", overflow="fold")
    table.add_column("MB", justify="right")
    for file in files:
        table.add_row(Text(file.path), f"{file.size / 1e6:,.1f}")
    console.print(table)


def _environment(console: Console, environment: Environment) -> None:
    versions = ", ".join(f"{name} {version or 'missing'}" for name, version in environment.versions.items())
    _say(console, "Libraries:", [versions])
    if environment.pair_problem:
        problem = f"torch and torchvision do not work together: {environment.pair_problem}"
        _say(console, "Repair:", [problem, environment.advice])
    if not environment.devices:
        _say(console, "Devices:", ["none: torch does not start"])
        return
    table = plain_table("Devices")
    for column in ("device", "description", *environment.devices[0].precisions):
        table.add_column(column, overflow="fold")
    for device in environment.devices:
        table.add_row(device.name, device.description, *(problem or "works" for problem in device.precisions.values()))
    console.print(table)


def doctor(
    data: use.OwnFolder = None,
    data_dir: use.DataRoot = Path("data"),
    weights_dir: use.WeightsRoot = Path("weights"),
    features_dir: use.FeaturesRoot = Path("features"),
    deep: Annotated[
        bool, typer.Option("--deep", help="Decode every image, and find duplicate images and damaged feature files.")
    ] = False,
    as_json: use.AsJson = False,
) -> None:
    """Check data, weights and environment.

    Data sets are compared with the benchmark, split by split; weights, features, libraries and devices are listed.
    With --data, your own images are checked instead: what is used, what is ignored, which tasks are feasible.

    Example: [bold]fsbench doctor --data-dir /mnt/data[/bold]
    """
    if deep:
        report = diagnose(data_dir, weights_dir, features_dir, Reporter(), data)
    else:
        with Console(stderr=True).status("Checking data sets, libraries and devices …"):
            report = diagnose(data_dir, weights_dir, features_dir, own=data)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    else:
        show(report)
