"""What `fsbench doctor --deep` adds: everything is read, pictures are compared, digests are checked."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fsbench.data.dataset import first_names
from fsbench.data.scan import find_datasets
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fsbench.data.dataset import Listing, Source
    from fsbench.data.scan import FoundDataset
    from fsbench.doctor.diagnose import DoctorReport
    from fsbench.reporter import Reporter


def look_deeper(report: DoctorReport, data: Path, features: Path, reporter: Reporter) -> DoctorReport:
    """Add to a report what only reading everything shows.

    Args:
        report: Of the first look.
        data: The data root.
        features: The features root.
        reporter: Shows progress.
    """
    sentences = [sentence for found in find_datasets(data) for sentence in _on_dataset(found, reporter)]
    for file in report.features:
        sentences += _on_features(features / file.path, reporter)
    return replace(report, deep_sentences=tuple(sentences) or ("There is nothing to look into.",))


def _on_dataset(found: FoundDataset, reporter: Reporter) -> list[str]:
    if found.listing is None:
        return []
    pictures = sum(len(sources) for classes in found.listing.splits.values() for sources in classes.values())
    with reporter.bar(f"comparing pictures of {found.path.name}", pictures) as advance:
        try:
            told = find_doubles(found.listing, advance).sentences()
        except FsbenchError as error:
            told = (error.message,)
    return [f"{found.path}: {sentence}" for sentence in told or (f"all {pictures:,} pictures differ.",)]


def _on_features(path: Path, reporter: Reporter) -> list[str]:
    from fsbench.features.overlap import overlap
    from fsbench.features.store import FeatureFile

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
    shared = [f"{path}: {found.sentence}: the same pictures in both?" for found in pairs if found.rows]
    return [f"{path}: whole, as its SHA-256 says.", *shared]


Place = tuple[str, str, "Source"]  # split, class, picture


@dataclass(frozen=True)
class Doubles:
    """Groups of equal pictures, by how much harm they do.

    Attributes:
        across_splits: The same picture in two splits: a novel picture was seen before.
        across_classes: In two classes of one split: one of the labels is wrong.
        within_class: Twice in a class: support and queries may hold the same picture.
    """

    across_splits: tuple[tuple[str, ...], ...] = ()
    across_classes: tuple[tuple[str, ...], ...] = ()
    within_class: tuple[tuple[str, ...], ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """One per kind that occurs, with the first examples."""
        kinds = (
            (self.across_splits, "occur in more than one split, so that novel pictures were seen before"),
            (self.across_classes, "occur in more than one class, so that labels contradict each other"),
            (self.within_class, "occur more than once in a class, so that a query may equal a support picture"),
        )
        return tuple(
            f"{len(groups):,} pictures {told}: {first_names(' = '.join(group) for group in groups)}."
            for groups, told in kinds
            if groups
        )


def find_doubles(listing: Listing, progress: Callable[[int], None] = lambda done: None) -> Doubles:
    """Compare all pictures of a data set by the SHA-256 of their bytes; only those of equal size are read.

    Args:
        listing: The data set.
        progress: Called with the number of pictures just looked at.
    """
    groups: dict[object, list[Place]] = {}
    for split, classes in listing.splits.items():
        for label, sources in classes.items():
            for source in sources:
                groups.setdefault(listing.pictures.mark(source), []).append((split, label, source))
    equal: dict[tuple[object, str], list[Place]] = {}
    for mark, places in groups.items():
        for place in places if len(places) > 1 else ():
            equal.setdefault((mark, _digest(listing, place[2])), []).append(place)
        progress(len(places))
    found: tuple[list[tuple[str, ...]], ...] = ([], [], [])
    for places in equal.values():
        if len(places) > 1:
            kind = 0 if len({split for split, _, _ in places}) > 1 else 1 if len({c for _, c, _ in places}) > 1 else 2
            found[kind].append(tuple(f"{split} {listing.pictures.name(source)}" for split, _, source in places))
    return Doubles(*(tuple(sorted(kind)) for kind in found))


def _digest(listing: Listing, source: Source) -> str:
    try:
        return hashlib.sha256(listing.pictures.content(source)).hexdigest()
    except OSError as error:
        raise FsbenchError(
            f"Could not read {listing.pictures.name(source)} in {listing.root}: {error.strerror or error}.",
            "Check its rights, or copy it again.",
        ) from error
