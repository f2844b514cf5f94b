"""`fsbench doctor`: data sets, weights, features, libraries, devices; `--deep` reads every image and feature file."""

from __future__ import annotations

import hashlib
import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fsbench.backbones.find_weights import SUFFIXES, shipped_weights
from fsbench.data.catalog import SPLITS, dataset_names
from fsbench.data.check import compare_with_catalog, preflight
from fsbench.data.dataset import build_dataset, drop_small, first_names
from fsbench.data.folders import PIXEL_FOLDER
from fsbench.data.scan import find_datasets, other_folders, scan_folder
from fsbench.errors import FsbenchError
from fsbench.features.overlap import overlap
from fsbench.features.store import FeatureFile
from fsbench.machine import probe_environment
from fsbench.tasks.sampling import feasible_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from fsbench.data.dataset import Listing, Source
    from fsbench.data.scan import FoundDataset
    from fsbench.machine import Environment
    from fsbench.reporter import Reporter


_NOT_READ = "Images were counted, not read: --deep decodes every one of them."
_IMAGES_AT_ONCE = 256  # per call of the threads that decode


def read_everything(listings: Iterable[Listing], features: Iterable[Path], reporter: Reporter) -> tuple[str, ...]:
    """What only reading every image and every feature file shows, in sentences."""
    sentences = [sentence for listing in listings for sentence in _on_images(listing, reporter)]
    for path in features:
        sentences += _on_features(path, reporter)
    return tuple(sentences) or ("There are neither data sets nor feature files to read.",)


def _on_images(listing: Listing, reporter: Reporter) -> list[str]:
    count = sum(len(sources) for classes in listing.splits.values() for sources in classes.values())
    with reporter.bar(f"decoding images of {listing.root.name}", count) as advance:
        broken = find_broken(listing, advance)
    readable = [f"{len(broken):,} of {count:,} images cannot be read:", *broken] if broken else []
    with reporter.bar(f"comparing images of {listing.root.name}", count) as advance:
        try:
            equal = find_doubles(listing, advance).sentences()
        except FsbenchError as error:
            equal = (error.message,)
    sentences = [*(readable or [f"all {count:,} images can be read."]), *(equal or ("no two images are the same.",))]
    return [f"{listing.root}: {sentence}" for sentence in sentences]


def find_broken(listing: Listing, progress: Callable[[int], None] = lambda done: None) -> list[str]:
    """The errors of all images that cannot be decoded; `progress` is called with the number of images just read."""

    def problem(source: Source) -> str | None:
        try:
            listing.reader.open(source)
        except FsbenchError as error:
            return error.message
        return None

    sources = [source for classes in listing.splits.values() for found in classes.values() for source in found]
    broken: list[str] = []
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(sources), _IMAGES_AT_ONCE):
            batch = sources[start : start + _IMAGES_AT_ONCE]
            broken += [message for message in pool.map(problem, batch) if message is not None]
            progress(len(batch))
    return broken


def _on_features(path: Path, reporter: Reporter) -> list[str]:
    try:
        file = FeatureFile.open(path)
        with reporter.bar(f"checking {path.name}", len(file.splits)) as advance:
            for name in file.splits:
                file.read(name)
                advance(1)
        pairs = [
            overlap(one, file.stream(one), other, file.stream(other))
            for one, other in itertools.combinations(file.splits, 2)
        ]
    except FsbenchError as error:
        return [error.message]
    shared = [f"{path}: {found.sentence}: the same images in both?" for found in pairs if found.rows]
    return [f"{path}: intact, its SHA-256 is right.", *shared]


Place = tuple[str, str, "Source"]  # split, class, image


@dataclass(frozen=True)
class Doubles:
    """Groups of equal images, by how much harm they do."""

    across_splits: tuple[tuple[str, ...], ...] = ()
    across_classes: tuple[tuple[str, ...], ...] = ()
    within_class: tuple[tuple[str, ...], ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """One per kind that occurs, with the first examples."""
        kinds = (
            (self.across_splits, "occur in more than one split, so that novel images were seen before"),
            (self.across_classes, "occur in more than one class, so that labels contradict each other"),
            (self.within_class, "occur more than once in a class, so that a query may equal a support image"),
        )
        return tuple(
            f"{len(groups):,} images {where}: {first_names(' = '.join(group) for group in groups)}."
            for groups, where in kinds
            if groups
        )


def find_doubles(listing: Listing, progress: Callable[[int], None] = lambda done: None) -> Doubles:
    """Compare all images of a data set by the SHA-256 of their bytes; only those of equal size are read."""
    groups: dict[object, list[Place]] = {}
    for split, classes in listing.splits.items():
        for label, sources in classes.items():
            for source in sources:
                groups.setdefault(listing.reader.mark(source), []).append((split, label, source))
    equal: dict[tuple[object, str], list[Place]] = {}
    for mark, places in groups.items():
        for place in places if len(places) > 1 else ():
            equal.setdefault((mark, _digest(listing, place[2])), []).append(place)
        progress(len(places))
    found: tuple[list[tuple[str, ...]], ...] = ([], [], [])
    for places in equal.values():
        if len(places) > 1:
            kind = 0 if len({split for split, _, _ in places}) > 1 else 1 if len({c for _, c, _ in places}) > 1 else 2
            found[kind].append(tuple(f"{split} {listing.reader.name(source)}" for split, _, source in places))
    return Doubles(*(tuple(sorted(kind)) for kind in found))


def _digest(listing: Listing, source: Source) -> str:
    try:
        return hashlib.sha256(listing.reader.content(source)).hexdigest()
    except OSError as error:
        raise FsbenchError(
            f"Could not read {listing.reader.name(source)} in {listing.root}: {error.strerror or error}.",
            "Check its rights, or copy it again.",
        ) from error


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
    layout: str  # how the folder is organised, in words
    state: str  # complete, incomplete, differs, wrong split, unreadable or own images
    splits: tuple[SplitReport, ...]  # empty if it is unreadable or no benchmark
    sentences: tuple[str, ...]  # what a person needs to know, the verdict first


@dataclass(frozen=True)
class FoundFile:
    """A file of weights or features: its path below the root, and its size in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class DoctorReport:
    """All results of the checks."""

    data_root: str
    datasets: tuple[DatasetReport, ...]
    data_sentences: tuple[str, ...]  # remarks on the data root itself
    weights_root: str
    weights: tuple[FoundFile, ...]
    shipped: tuple[FoundFile, ...]  # those that come with fsbench, unless the weights root is where they are
    features_root: str
    features: tuple[FoundFile, ...]
    environment: Environment
    deep_sentences: tuple[str, ...] = ()  # what reading everything shows, if that was asked for

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)


def diagnose(
    data: Path, weights: Path, features: Path, deep: Reporter | None = None, own: Path | None = None
) -> DoctorReport:
    """Check everything below the roots of data, weights and features, which need not exist.

    A folder of `own` images takes the place of the data sets. The reporter `deep` shows progress while every image and
    every feature file is read; without it, none is.
    """
    if own is None:
        found = find_datasets(data)
        datasets = tuple(report_dataset(item) for item in found)
        listings = [item.listing for item in found if item.listing is not None]
        sentences = _data_sentences(data, datasets, deep is not None)
    else:
        listings = [scan_folder(own, None, undivided=True)]
        datasets = (report_own(listings[0]),)
        sentences = () if deep else (_NOT_READ,)
    feature_files = list_features(features)
    paths = [features / file.path for file in feature_files]
    return DoctorReport(
        data_root=str(own or data),
        datasets=datasets,
        data_sentences=sentences,
        weights_root=str(weights),
        weights=list_weights(weights),
        shipped=() if weights.resolve() == shipped_weights().resolve() else list_weights(shipped_weights()),
        features_root=str(features),
        features=feature_files,
        environment=probe_environment(),
        deep_sentences=read_everything(listings, paths, deep) if deep is not None else (),
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
    state = _state({difference.kind for difference in differences})
    remarks = (*(difference.sentence for difference in differences), *listing.notes, *listing.ignored)
    sentences = (*_verdict(found, state, splits), *remarks)
    return DatasetReport(info.name, str(found.path), listing.layout, state, splits, sentences)


def report_own(listing: Listing) -> DatasetReport:
    """Say what is used and what is ignored of a folder of own images."""
    dataset = build_dataset(drop_small(listing, 1), listing.root.resolve().name)
    sentences = [*preflight(dataset), *dataset.notes]
    sentences += [feasible_settings(split) for name, split in dataset.splits.items() if name == "novel"]
    return DatasetReport(dataset.name, str(dataset.root), dataset.layout, "own images", (), tuple(sentences))


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


def _state(kinds: set[str]) -> str:
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
    if not datasets and not any(root.iterdir()):
        return (f"The folder {root} is empty. Copy a data set into it, for example as {root / 'mini'}.",)
    sentences = []
    if not datasets:
        known = ", ".join(dataset_names())
        sentences.append(f"No folder in {root} has the name of a known data set. Known: {known}.")
    if others := other_folders(root):
        sentences.append(f"Other folders: {first_names(others, 5)}. Check your own images with --data FOLDER.")
    if kept := _files(root / PIXEL_FOLDER, "*.npy"):
        size = sum(file.size for file in kept) / 1e6
        sentences.append(f"Decoded images in {root / PIXEL_FOLDER}: {size:,.0f} MB, which may be deleted at any time.")
    if datasets and not deep:
        sentences.append(_NOT_READ)
    return tuple(sentences)
