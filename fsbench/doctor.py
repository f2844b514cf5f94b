"""`fsbench doctor`: data sets, weights, features, libraries, devices; `--deep` reads every image and feature file."""

from __future__ import annotations

import hashlib
import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.backbones.find_weights import SUFFIXES, shipped_weights
from fsbench.data.catalog import SPLITS, dataset_names
from fsbench.data.dataset import PIXEL_FOLDER, build_dataset, drop_small, first_names
from fsbench.data.scan import compare_with_catalog, find_datasets, other_folders, preflight, scan_folder
from fsbench.errors import FsbenchError
from fsbench.features.store import FeatureFile, overlap
from fsbench.machine import Environment, probe_environment
from fsbench.tasks.sampling import feasible_settings

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.data.dataset import Listing
    from fsbench.data.scan import FoundDataset
    from fsbench.reporter import Reporter

_NOT_READ = "Images were counted, not read: --deep decodes every one of them."
_IMAGES_AT_ONCE = 256  # per call of the threads that decode
_DOUBLES = (
    "occur in more than one split, so that novel images were seen before",
    "occur in more than one class, so that labels contradict each other",
    "occur more than once in a class, so that a query may equal a support image",
)
_FAULTS = {  # what each kind of difference makes of a data set, the gravest first
    "wrong split": {"wrong split", "two splits"},
    "incomplete": {"files", "empty", "missing split", "missing", "short", "sizes"},
    "differs": {"extra", "long"},
}


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
    """The state of one data set."""

    name: str
    path: str
    state: str  # complete, incomplete, differs, wrong split, unreadable or own images
    splits: tuple[SplitReport, ...]  # empty if it is unreadable or no benchmark
    sentences: tuple[str, ...]  # what a person needs to know, the verdict first


@dataclass(frozen=True)
class DoctorReport:
    """All results of the checks. Files are paths below their root, with their sizes in bytes."""

    data_root: str
    datasets: tuple[DatasetReport, ...]
    data_sentences: tuple[str, ...]  # remarks on the data root itself
    weights_root: str
    weights: dict[str, int]
    shipped: dict[str, int]  # those that come with fsbench, unless the weights root is where they are
    features_root: str
    features: dict[str, int]
    environment: Environment
    deep_sentences: tuple[str, ...]  # what reading everything shows, if that was asked for


def diagnose(
    data: Path, weights: Path, features: Path, deep: Reporter | None = None, own: Path | None = None
) -> DoctorReport:
    """Check everything below the roots of data, weights and features, which need not exist.

    A folder of `own` images takes the place of the data sets. The reporter `deep` shows progress while every image and
    every feature file is read; without it, none is.
    """
    if own is None:
        candidates = find_datasets(data)
        datasets = tuple(map(_report_dataset, candidates))
        listings = [candidate.listing for candidate in candidates if candidate.listing is not None]
        sentences = _on_data_root(data, datasets, deep is not None)
    else:
        listings = [scan_folder(own, None, undivided=True)]
        datasets = (_report_own(listings[0]),)
        sentences = [] if deep else [_NOT_READ]
    sizes = {path: size for path, size in _files(features, "*.h5").items() if not path.endswith(".scatter.h5")}
    read: list[str] = []
    if deep is not None:
        read += [sentence for listing in listings for sentence in _read_images(listing, deep)]
        read += [sentence for path in sizes for sentence in _read_features(features / path)]
        read = read or ["There are neither data sets nor feature files to read."]
    shipped = {} if weights.resolve() == shipped_weights().resolve() else _list_weights(shipped_weights())
    return DoctorReport(
        data_root=str(own or data), datasets=datasets, data_sentences=tuple(sentences),
        weights_root=str(weights), weights=_list_weights(weights), shipped=shipped,
        features_root=str(features), features=sizes,
        environment=probe_environment(), deep_sentences=tuple(read),
    )  # fmt: skip


def _read_images(listing: Listing, reporter: Reporter) -> list[str]:
    """Which images cannot be decoded, and which are the same, byte for byte."""
    classes = [(split, name, images) for split, of in listing.splits.items() for name, images in of.items()]
    places = [(split, name, image) for split, name, images in classes for image in images]

    def read(place: tuple[str, str, str]) -> tuple[str, str]:
        """The digest of an image, or why it cannot be read."""
        try:
            listing.reader.open(place[2])
            return hashlib.sha256(listing.reader.content(place[2])).hexdigest(), ""
        except (FsbenchError, OSError) as error:
            return "", str(error).partition("\n")[0]

    broken: list[str] = []
    equal: dict[str, list[tuple[str, str, str]]] = {}
    with reporter.bar(f"reading images of {listing.root.name}", len(places)) as advance, ThreadPoolExecutor() as pool:
        for start in range(0, len(places), _IMAGES_AT_ONCE):
            batch = places[start : start + _IMAGES_AT_ONCE]
            for place, (digest, trouble) in zip(batch, pool.map(read, batch), strict=True):
                broken += [trouble] if trouble else []
                equal.setdefault(digest or trouble, []).append(place)
            advance(len(batch))
    doubles = _on_doubles([group for group in equal.values() if len(group) > 1])
    broken = broken and [f"{len(broken):,} of {len(places):,} images cannot be read:", *broken]
    sentences = broken or [f"all {len(places):,} images can be read."]
    return [f"{listing.root}: {sentence}" for sentence in sentences + (doubles or ["no two images are the same."])]


def _on_doubles(groups: list[list[tuple[str, str, str]]]) -> list[str]:
    """A sentence for each kind of equal images, with the first examples."""
    kinds: tuple[list[str], ...] = ([], [], [])
    for group in groups:
        splits, names = ({place[part] for place in group} for part in (0, 1))
        kind = 0 if len(splits) > 1 else 1 if len(names) > 1 else 2
        kinds[kind].append(" = ".join(f"{split} {image}" for split, _, image in group))
    return [
        f"{len(examples):,} images {where}: {first_names(sorted(examples))}."
        for examples, where in zip(kinds, _DOUBLES, strict=True)
        if examples
    ]


def _read_features(path: Path) -> list[str]:
    try:
        file = FeatureFile.open(path)
        for name in file.splits:
            file.read(name)
        pairs = itertools.combinations(file.splits, 2)
        shared = [overlap(one, file.stream(one), other, file.stream(other)) for one, other in pairs]
    except FsbenchError as error:
        return [error.message]
    doubts = [f"{path}: {pair.sentence}: the same images in both?" for pair in shared if pair.rows]
    return [f"{path}: intact, its SHA-256 is right.", *doubts]


def _report_dataset(candidate: FoundDataset) -> DatasetReport:
    """Compare a folder with the catalog and say how they differ."""
    info, named, listing = candidate.info, candidate.named, candidate.listing
    if listing is None:
        return DatasetReport(info.name, str(candidate.path), "unreadable", (), (str(candidate.problem),))
    splits = tuple(_report_split(split, info.splits[split], listing.counts(split)) for split in SPLITS)
    differences = compare_with_catalog(listing, info)
    kinds = {difference.kind for difference in differences}
    state = next((state for state, faults in _FAULTS.items() if kinds & faults), "complete")
    present, expected = sum(split.found_images for split in splits), sum(split.expected_images for split in splits)
    verdicts = {
        "complete": f"{info.title} is complete.",
        "incomplete": f"{info.title} is incomplete: {present:,} of {expected:,} images are here. "
        "Copy the rest; until then accuracies do not compare with published ones.",
        "differs": f"{info.title} is all here, but the folder holds more than the benchmark.",
        "wrong split": f"The classes of {info.title} are not divided as in the benchmark; it cannot be used.",
    }
    sentences = [verdicts[state]]
    if info is not named:
        looks = f"this looks like {info.split_title} split, not {named.split_title}. It is used as {info.name}"
        sentences.append(f"The folder is named {named.name}, but {looks}; do not use weights trained on {named.name}.")
    sentences += [*(difference.sentence for difference in differences), *listing.notes]
    return DatasetReport(info.name, str(candidate.path), state, splits, tuple(sentences))


def _report_split(split: str, expected: dict[str, int], present: dict[str, int]) -> SplitReport:
    return SplitReport(split, len(expected), len(present), sum(expected.values()), sum(present.values()))


def _report_own(listing: Listing) -> DatasetReport:
    """Say what is used and what is ignored of a folder of own images."""
    dataset = build_dataset(drop_small(listing, 1), listing.root.resolve().name)
    sentences = [preflight(dataset), *dataset.notes]
    sentences += [feasible_settings(split) for name, split in dataset.splits.items() if name == "novel"]
    return DatasetReport(dataset.name, str(dataset.root), "own images", (), tuple(sentences))


def _list_weights(root: Path) -> dict[str, int]:
    """The checkpoints at ``<data set>/<backbone>.*`` below the weights root; cards beside them are not listed."""
    files = _files(root, "*/*.*") | _files(root, "*/timm/*.*")
    return {path: size for path, size in files.items() if re.search(f"{SUFFIXES.pattern}$", path)}


def _files(root: Path, pattern: str) -> dict[str, int]:
    paths = sorted(path for path in root.glob(pattern) if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(root).as_posix(): path.stat().st_size for path in paths}


def _on_data_root(root: Path, datasets: tuple[DatasetReport, ...], deep: bool) -> list[str]:
    if not root.is_dir():
        return [f"There is no folder {root}. Put data sets there, or name it with --data-dir or FSBENCH_DATA."]
    if not any(root.iterdir()):
        return [f"The folder {root} is empty. Copy a data set into it, for example as {root / 'mini'}."]
    sentences = []
    if not datasets:
        sentences.append(f"No folder in {root} is named as a known data set: {', '.join(dataset_names())}.")
    if others := other_folders(root):
        sentences.append(f"Other folders: {first_names(others, 5)}. Check your own images with --data FOLDER.")
    if size := sum(_files(root / PIXEL_FOLDER, "*.npy").values()) / 1e6:
        sentences.append(f"Decoded images in {root / PIXEL_FOLDER}: {size:,.0f} MB, which may be deleted at any time.")
    if datasets and not deep:
        sentences.append(_NOT_READ)
    return sentences
