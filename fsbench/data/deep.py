"""What `fsbench doctor --deep` adds: everything is read, pictures are compared, digests are checked."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from fsbench.data.duplicates import find_doubles
from fsbench.data.find import find_datasets
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.data.doctor import DoctorReport
    from fsbench.data.find import FoundDataset
    from fsbench.report.progress import Reporter


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
