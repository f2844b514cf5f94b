"""The doctor's report: data sets, weights, features, libraries, devices."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fsbench.backbones.weights import SUFFIXES, shipped_weights
from fsbench.data.catalog import SPLITS, dataset_names
from fsbench.data.check import compare_with_catalog
from fsbench.data.dataset import first_names
from fsbench.data.scan import find_datasets, other_folders
from fsbench.doctor.deep import read_everything
from fsbench.machine import probe_environment

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.data.check import Difference
    from fsbench.data.scan import FoundDataset
    from fsbench.machine import Environment
    from fsbench.reporter import Reporter


@dataclass(frozen=True)
class SplitReport:
    """Expected and found numbers of one split."""

    split: str
    expected_classes: int
    found_classes: int
    expected_images: int
    found_images: int


@dataclass(frozen=True)
class DatasetReport:
    """The state of one data set.

    Attributes:
        name: The catalog's name.
        path: Its folder.
        layout: How the folder is organised, in words.
        state: ``complete``, ``incomplete``, ``differs``, ``wrong split`` or ``unreadable``.
        splits: Numbers per split, empty if it is unreadable.
        sentences: What a person needs to know, the verdict first.
    """

    name: str
    path: str
    layout: str
    state: str
    splits: tuple[SplitReport, ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class FoundFile:
    """A file of weights or features: its path below the root, and its size in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class DoctorReport:
    """All results of the checks.

    Attributes:
        data_root: Where data sets were looked for.
        datasets: The known data sets found there.
        data_sentences: Remarks on the data root itself.
        weights_root: Where weights were looked for.
        weights: Files at ``<data set>/<backbone>.*``.
        shipped: Those that come with fsbench, unless the weights root is where they are.
        features_root: Where features were looked for.
        features: HDF5 files.
        environment: Libraries and devices.
        deep_sentences: What reading everything shows; empty if that was not asked for.
    """

    data_root: str
    datasets: tuple[DatasetReport, ...]
    data_sentences: tuple[str, ...]
    weights_root: str
    weights: tuple[FoundFile, ...]
    shipped: tuple[FoundFile, ...]
    features_root: str
    features: tuple[FoundFile, ...]
    environment: Environment
    deep_sentences: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)


def diagnose(data: Path, weights: Path, features: Path, deep: Reporter | None = None) -> DoctorReport:
    """Check everything that is here.

    Args:
        data: The data root; like the other two it need not exist.
        weights: The weights root.
        features: The features root.
        deep: Shows progress while every image and every feature file is read; without it, none is.
    """
    found = find_datasets(data)
    datasets = tuple(report_dataset(item) for item in found)
    feature_files = list_features(features)
    paths = [features / file.path for file in feature_files]
    return DoctorReport(
        data_root=str(data),
        datasets=datasets,
        data_sentences=_data_sentences(data, datasets, deep is not None),
        weights_root=str(weights),
        weights=list_weights(weights),
        shipped=() if weights.resolve() == shipped_weights().resolve() else list_weights(shipped_weights()),
        features_root=str(features),
        features=feature_files,
        environment=probe_environment(),
        deep_sentences=read_everything(found, paths, deep) if deep is not None else (),
    )


def report_dataset(found: FoundDataset) -> DatasetReport:
    """Compare a folder with the catalog and say how they differ."""
    info, listing = found.info, found.listing
    if listing is None:
        problem = str(found.problem).splitlines()
        return DatasetReport(info.name, str(found.path), "", "unreadable", (), tuple(problem))
    splits = tuple(
        SplitReport(
            split=split,
            expected_classes=len(info.classes(split)),
            found_classes=len(listing.counts(split)),
            expected_images=info.images(split),
            found_images=sum(listing.counts(split).values()),
        )
        for split in SPLITS
    )
    differences = compare_with_catalog(listing, info)
    state = _state(differences)
    sentences = (
        *_verdict(found, state, splits),
        *(difference.sentence for difference in differences),
        *listing.notes,
        *listing.ignored,
    )
    return DatasetReport(info.name, str(found.path), listing.layout, state, splits, sentences)


def list_weights(root: Path) -> tuple[FoundFile, ...]:
    """The checkpoints at ``<data set>/<backbone>.*`` below the weights root; cards beside them are not listed."""
    files = (*_files(root, "*/*.*"), *_files(root, "*/timm/*.*"))
    return tuple(file for file in files if re.search(f"{SUFFIXES.pattern}$", file.path))


def list_features(root: Path) -> tuple[FoundFile, ...]:
    """The feature files in the features root, without the scatter files beside them."""
    return tuple(file for file in _files(root, "*.h5") if not file.path.endswith(".scatter.h5"))


def _files(root: Path, pattern: str) -> tuple[FoundFile, ...]:
    paths = sorted(path for path in root.glob(pattern) if path.is_file() and not path.name.startswith("."))
    return tuple(FoundFile(path.relative_to(root).as_posix(), path.stat().st_size) for path in paths)


def _state(differences: tuple[Difference, ...]) -> str:
    kinds = {difference.kind for difference in differences}
    if kinds & {"wrong split", "two splits"}:
        return "wrong split"
    if kinds & {"files", "empty", "missing split", "missing", "short", "sizes"}:
        return "incomplete"
    return "differs" if kinds else "complete"


def _verdict(found: FoundDataset, state: str, splits: tuple[SplitReport, ...]) -> list[str]:
    """The sentences that come first."""
    info = found.info
    expected = sum(split.expected_images for split in splits)
    present = sum(split.found_images for split in splits)
    verdicts = {
        "complete": f"{info.title} is complete.",
        "incomplete": f"{info.title} is incomplete: {present:,} of {expected:,} images are here. "
        "Copy the rest; until then accuracies do not compare with published ones.",
        "differs": f"{info.title} is all here, but the folder holds more than the benchmark.",
        "wrong split": f"The classes of {info.title} are not divided as in the benchmark; it cannot be used.",
    }
    sentences = [verdicts[state]]
    if info is not found.named:
        sentences.append(
            f"The folder's name stands for {found.named.name}, but this looks like {info.split_title} split, "
            f"not {found.named.split_title}. It is used as {info.name}; do not mix it with weights trained "
            f"on {found.named.name}."
        )
    return sentences


def _data_sentences(root: Path, datasets: tuple[DatasetReport, ...], deep: bool) -> tuple[str, ...]:
    if not root.is_dir():
        return (f"There is no folder {root}. Put data sets there, or name it with --data-dir or FSBENCH_DATA.",)
    others = other_folders(root)
    if not datasets and not any(root.iterdir()):
        return (f"The folder {root} is empty. Copy a data set into it, for example as {root / 'mini'}.",)
    sentences = []
    if not datasets:
        known = ", ".join(dataset_names())
        sentences.append(f"No folder in {root} has the name of a known data set. Known: {known}.")
    if others:
        sentences.append(f"Other folders, not looked into: {first_names(others, 5)}.")
    if datasets and not deep:
        sentences.append("Images were counted, not read: `fsbench doctor --deep` decodes every one of them.")
    return tuple(sentences)
