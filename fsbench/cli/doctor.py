"""`fsbench doctor`: data sets, weights, features, libraries, devices."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.padding import Padding
from rich.text import Text

from fsbench.backbones.find_weights import SUFFIXES, shipped_weights
from fsbench.cli.options import Doctor
from fsbench.data.catalog import DATASETS, SPLITS, DatasetInfo, dataset_info
from fsbench.data.dataset import Listing, build_dataset, drop_small
from fsbench.data.layouts import list_folder
from fsbench.data.scan import differences, find_datasets, preflight, wrong_split
from fsbench.errors import FsbenchError
from fsbench.features.store import library_versions
from fsbench.report.writers import Cell, Column, Mark, Table, cells, numbers, show, stdout_console
from fsbench.tasks.sampling import feasible_settings

_MARKS: dict[str, Mark] = {
    "complete": "good", "own images": "good", "incomplete": "doubtful", "differs": "doubtful",
}  # fmt: skip
_PROBE = """
import json, torch
devices = {"cpu": f"{torch.get_num_threads()} threads"}
for number in range(torch.cuda.device_count()):
    gpu = torch.cuda.get_device_properties(number)
    devices[f"cuda:{number}"] = f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB"
print(json.dumps(devices), flush=True)
from torchvision.ops import nms
nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
"""
_ADVICE = (
    "Install torch and torchvision together, from the same index, so that they belong to each other: "
    "python -m pip install --upgrade --force-reinstall torch torchvision"
)


@dataclass(frozen=True)
class Environment:
    """The installed libraries and the devices they can use."""

    versions: dict[str, str]
    problem: str  # why torch and torchvision do not work together, and how to repair it
    devices: dict[str, str]  # `cuda:0` with model and memory; none without torch


@dataclass(frozen=True)
class DatasetReport:
    """The state of one data set."""

    name: str
    path: str
    state: str  # complete, incomplete, differs, wrong split, unreadable or own images
    splits: dict[str, tuple[int, ...]]  # classes and images, found and expected; empty if unreadable or no benchmark
    sentences: tuple[str, ...]  # what a person needs to know, the verdict first


def check_datasets(data: Path, own: Path | None = None) -> list[DatasetReport]:
    """The benchmarks below a data root, which need not exist, compared with the catalog; or a folder of own images."""
    if own is not None:
        listing = list_folder(own, None)
        dataset = build_dataset(drop_small(listing, 1), listing.root.resolve().name)
        sentences = [preflight(dataset), *dataset.notes]
        sentences += [feasible_settings(split) for name, split in dataset.splits.items() if name == "novel"]
        return [DatasetReport(dataset.name, str(dataset.root), "own images", {}, tuple(sentences))]
    reports = []
    for name, folder in find_datasets(data):
        try:
            reports.append(_report_benchmark(list_folder(folder, dataset_info(name)), dataset_info(name)))
        except FsbenchError as error:
            reports.append(DatasetReport(name, str(folder), "unreadable", {}, (str(error),)))
    return reports


def probe_environment(code: str = _PROBE) -> Environment:
    """Try out torch and torchvision in a child process: a pair that does not fit can end a process without a word."""
    child = [sys.executable, "-P", "-c", code]  # -P: nothing is imported from the current folder
    done = subprocess.run(child, capture_output=True, text=True, check=False)
    devices = json.loads(done.stdout.splitlines()[0]) if done.stdout else {}
    reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    problem = f"torch and torchvision do not work together: {reason}. {_ADVICE}" if done.returncode else ""
    return Environment(library_versions(), problem, devices)


def _report_benchmark(listing: Listing, info: DatasetInfo) -> DatasetReport:
    """Compare a folder with the catalog and say how they differ."""
    splits: dict[str, tuple[int, ...]] = {}
    for split in SPLITS:
        here, there = listing.counts(split), info.splits[split]
        splits[split] = len(here), len(there), sum(here.values()), sum(there.values())
    wrong, others = wrong_split(listing, info), differences(listing, info)
    present, expected = (sum(one[place] for one in splits.values()) for place in (2, 3))
    if wrong:
        state, verdict = "wrong split", "is not divided as in the benchmark; it cannot be used."
    elif not others:
        state, verdict = "complete", "is complete."
    elif present < expected:
        rest = "Copy the rest; until then accuracies do not compare with published ones."
        state, verdict = "incomplete", f"is incomplete: {present:,} of {expected:,} images are here. {rest}"
    else:
        state, verdict = "differs", "differs from the benchmark."
    sentences = (f"{info.title} {verdict}", *([wrong] if wrong else []), *others, *listing.notes)
    return DatasetReport(info.name, str(listing.root), state, splits, sentences)


def list_weights(root: Path) -> dict[str, int]:
    """The checkpoints at ``<data set>/<backbone>.*`` below the weights root with their sizes; no cards beside them."""
    files = _files(root, "*/*.*") | _files(root, "*/timm/*.*")
    return {path: size for path, size in files.items() if re.search(f"{SUFFIXES.pattern}$", path)}


def _files(root: Path, pattern: str) -> dict[str, int]:
    paths = sorted(path for path in root.glob(pattern) if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(root).as_posix(): path.stat().st_size for path in paths}


def doctor(options: Doctor) -> None:
    """Print what is found of data, weights, features, libraries and devices, at most 100 columns wide."""
    data, weights, features = options.data_dir, options.weights_dir, options.features_dir
    datasets, environment = check_datasets(data, options.data), probe_environment()
    made = {path: size for path, size in _files(features, "*.h5").items() if not path.endswith(".scatter.h5")}
    console = stdout_console()
    console.width = min(console.width, 100)
    if datasets:
        counts = numbers("classes", "expected", "images", "expected")
        columns = [Column("data set"), Column("split"), *counts, Column("state")]
        rows = []
        for one in datasets:  # a row per split; the first one has the name and the state of the data set
            counted = one.splits.items()
            own_rows = [cells("", split, *(f"{count:,}" for count in each), "") for split, each in counted]
            own_rows = own_rows or [cells(*[""] * 7)]
            own_rows[0][0], own_rows[0][-1] = Cell(one.name), Cell(one.state, _MARKS.get(one.state, "bad"))
            rows += own_rows
        show(Table(f"Data sets in {options.data or data}", columns, rows), console=console)
    shipped = {} if weights.resolve() == shipped_weights().resolve() else list_weights(shipped_weights())
    versions = ", ".join(f"{name} {version or 'missing'}" for name, version in environment.versions.items())
    devices = [f"{name}: {description}" for name, description in environment.devices.items()]
    missing = f"There is no folder {data}. Put data sets there, or name it with --data-dir or FSBENCH_DATA."
    if data.is_dir():
        missing = f"No folder in {data} is named as a known data set: {', '.join(DATASETS)}. "
        missing += "Check your own images with --data FOLDER."
    sections: dict[str, Sequence[str]] = {
        **{f"{dataset.name}, {dataset.path}:": dataset.sentences for dataset in datasets},
        "Data:": () if datasets else (missing,),
        f"Weights in {weights}:": _lines(list_weights(weights)) or ["none"],
        "Weights that come with fsbench:": _lines(shipped),
        f"Features in {features}:": _lines(made) or ["none"],
        "Libraries:": [text for text in (versions, environment.problem) if text],
        "Devices:": devices or ["none: torch does not start"],
    }
    for heading, sentences in sections.items():
        if sentences:
            console.print(Text(heading, style="bold"))
        for sentence in sentences:
            console.print(Padding(Text(sentence), (0, 0, 0, 2)))


def _lines(files: dict[str, int]) -> list[str]:
    return [f"{path}  {size / 1e6:,.1f} MB" for path, size in files.items()]
