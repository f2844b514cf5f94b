"""What `fsbench doctor --deep` adds: every image is decoded, images are compared, feature files are read."""

from __future__ import annotations

import hashlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.data.dataset import first_names
from fsbench.errors import FsbenchError
from fsbench.features.overlap import overlap
from fsbench.features.store import FeatureFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from fsbench.data.dataset import Listing, Source
    from fsbench.data.scan import FoundDataset
    from fsbench.reporter import Reporter

_IMAGES_AT_ONCE = 256  # per call of the threads that decode


def read_everything(datasets: Iterable[FoundDataset], features: Iterable[Path], reporter: Reporter) -> tuple[str, ...]:
    """What only reading every image and every feature file shows, in sentences.

    Args:
        datasets: The known data sets.
        features: The feature files.
        reporter: Shows progress.
    """
    sentences = [sentence for found in datasets for sentence in _on_dataset(found, reporter)]
    for path in features:
        sentences += _on_features(path, reporter)
    return tuple(sentences) or ("There are neither data sets nor feature files to read.",)


def _on_dataset(found: FoundDataset, reporter: Reporter) -> list[str]:
    if found.listing is None:
        return []
    count = sum(len(sources) for classes in found.listing.splits.values() for sources in classes.values())
    with reporter.bar(f"decoding images of {found.path.name}", count) as advance:
        broken = find_broken(found.listing, advance)
    readable = [f"{len(broken):,} of {count:,} images cannot be read:", *broken] if broken else []
    with reporter.bar(f"comparing images of {found.path.name}", count) as advance:
        try:
            equal = find_doubles(found.listing, advance).sentences()
        except FsbenchError as error:
            equal = (error.message,)
    sentences = [*(readable or [f"all {count:,} images can be read."]), *(equal or ("no two images are the same.",))]
    return [f"{found.path}: {sentence}" for sentence in sentences]


def find_broken(listing: Listing, progress: Callable[[int], None] = lambda done: None) -> list[str]:
    """The errors of all images of a data set that cannot be decoded.

    Args:
        listing: The data set.
        progress: Called with the number of images just decoded.
    """

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
    """Groups of equal images, by how much harm they do.

    Attributes:
        across_splits: The same image in two splits: a novel image was seen before.
        across_classes: In two classes of one split: one of the labels is wrong.
        within_class: Twice in a class: support and queries may hold the same image.
    """

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
    """Compare all images of a data set by the SHA-256 of their bytes; only those of equal size are read.

    Args:
        listing: The data set.
        progress: Called with the number of images just looked at.
    """
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
