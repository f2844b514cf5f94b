"""`fsbench doctor`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.padding import Padding
from rich.text import Text

from fsbench.cli.options import Doctor
from fsbench.doctor import DatasetReport, DoctorReport, diagnose
from fsbench.report.writers import Cell, Column, Mark, Table, cells, numbers, show, stdout_console
from fsbench.reporter import Reporter

_WIDTH = 100
_MARKS: dict[str, Mark] = {
    "complete": "good", "own images": "good", "incomplete": "doubtful", "differs": "doubtful",
}  # fmt: skip


def doctor(options: Doctor) -> None:
    """Print what is found of data, weights, features, libraries and devices."""
    places = options.data_dir, options.weights_dir, options.features_dir
    report = diagnose(*places, Reporter() if options.deep else None, options.data)
    if options.as_json:
        print(json.dumps(asdict(report), indent=2))
    else:
        _show(report)


def _show(report: DoctorReport) -> None:
    """Print the report, at most 100 columns wide."""
    console = stdout_console()
    console.width = min(console.width, _WIDTH)
    if report.datasets:
        counts = numbers("classes", "expected", "images", "expected")
        columns = [Column("data set"), Column("split"), *counts, Column("state")]
        rows = [row for dataset in report.datasets for row in _rows(dataset)]
        show(Table(f"Data sets in {report.data_root}", columns, rows), console=console)
    environment = report.environment
    versions = ", ".join(f"{name} {version or 'missing'}" for name, version in environment.versions.items())
    devices = [f"{name}: {description}" for name, description in environment.devices.items()]
    sections: dict[str, Sequence[str]] = {
        **{f"{dataset.name}, {dataset.path}:": dataset.sentences for dataset in report.datasets},
        "Data:": report.data_sentences,
        f"Weights in {report.weights_root}:": _lines(report.weights) or ["none"],
        "Weights that come with fsbench:": _lines(report.shipped),
        f"Features in {report.features_root}:": _lines(report.features) or ["none"],
        "Images and feature files, read in full:": report.deep_sentences,
        "Libraries:": [text for text in (versions, environment.problem) if text],
        "Devices:": devices or ["none: torch does not start"],
    }
    for heading, sentences in sections.items():
        if sentences:
            console.print(Text(heading, style="bold"))
        for sentence in sentences:
            console.print(Padding(Text(sentence), (0, 0, 0, 2)))


def _rows(dataset: DatasetReport) -> list[list[Cell]]:
    """A row per split; the first one has the name and the state of the data set."""
    rows = []
    for one in dataset.splits:
        counts = one.found_classes, one.expected_classes, one.found_images, one.expected_images
        rows.append(cells("", one.split, *(f"{count:,}" for count in counts), ""))
    rows = rows or [cells(*[""] * 7)]
    rows[0][0], rows[0][-1] = Cell(dataset.name), Cell(dataset.state, _MARKS.get(dataset.state, "bad"))
    return rows


def _lines(files: dict[str, int]) -> list[str]:
    return [f"{path}  {size / 1e6:,.1f} MB" for path, size in files.items()]
