"""Checks of a folder: against the catalog's classes and counts, and before own images are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fsbench.data.catalog import SPLITS, variants
from fsbench.data.dataset import counted, first_names

if TYPE_CHECKING:
    from fsbench.data.catalog import DatasetInfo
    from fsbench.data.dataset import ImageDataset, Listing

_SMALL_CLASS = 20  # 5 shots and 15 queries


@dataclass(frozen=True)
class Difference:
    """One way in which a folder departs from the catalog."""

    # two splits, wrong split, files, empty, missing split, missing, extra, short, long or sizes
    kind: str
    names: tuple[str, ...]  # the classes or files concerned
    sentence: str


def compare_with_catalog(listing: Listing, info: DatasetInfo) -> tuple[Difference, ...]:
    """All departures of a folder from the catalog, the most serious first; none if it is complete."""
    shared, missing, empty = tuple(listing.shared_classes()), listing.missing, listing.empty_classes()
    found = [
        _if_any("two splits", shared, f"{_classes_are(shared)} in more than one split"),
        _wrong_split(listing, info),
        _if_any("files", missing, f"{counted(len(missing), 'file is', 'files are')} missing"),
        _if_any("empty", empty, f"{_classes_are(empty)} without any image"),
    ]
    if listing.anonymous:
        found.extend(_sizes(listing, info, split) for split in SPLITS)
    else:
        found.extend(_classes(listing, info))
        found.extend(_counts(listing, info))
    return tuple(difference for difference in found if difference is not None)


def preflight(dataset: ImageDataset) -> list[str]:
    """A few lines on a user's own data before anything is computed: its size, its smallest classes, what is ignored."""
    sizes = {
        f"{split.name} {name}": int(count)
        for split in dataset.splits.values()
        for name, count in zip(split.class_names, np.bincount(split.labels), strict=True)
    }
    splits = ", ".join(f"{len(split.class_names)} {split.name}" for split in dataset.splits.values())
    least, most = min(sizes.values()), max(sizes.values())
    lines = [
        f"{sum(sizes.values()):,} images of {len(sizes)} classes ({splits}), "
        f"{least if least == most else f'{least} to {most}'} per class; {dataset.layout}."
    ]
    small = sorted((count, name) for name, count in sizes.items() if count < _SMALL_CLASS)
    if small:
        named = first_names(f"{name} ({count})" for count, name in small)
        lines.append(
            f"{counted(len(small), 'class has', 'classes have')} fewer than {_SMALL_CLASS} images: {named}. "
            f"Leave small classes out with --min-images N: {_SMALL_CLASS} keeps {len(sizes) - len(small)} of "
            f"{len(sizes)} classes."
        )
    return [*lines, *dataset.ignored]


def nearest_variant(listing: Listing, info: DatasetInfo) -> DatasetInfo:
    """The split of the same images that a folder follows best; the given one in case of a tie."""
    found = [(name, split) for split in SPLITS for name in listing.counts(split)]
    return max(variants(info), key=lambda variant: sum(variant.split_of.get(name) == split for name, split in found))


def _if_any(kind: str, names: tuple[str, ...], what: str) -> Difference | None:
    return Difference(kind, names, f"{what}: {first_names(names)}.") if names else None


def _wrong_split(listing: Listing, info: DatasetInfo) -> Difference | None:
    split_of = info.split_of
    shared = listing.shared_classes()
    moved = [
        (name, split_of[name], split)
        for split in SPLITS
        for name in listing.counts(split)
        if split_of.get(name, split) != split and name not in shared
    ]
    if not moved:
        return None
    names = tuple(name for name, _, _ in moved)
    examples = first_names(f"{name} belongs to {right}, found in {wrong}" for name, right, wrong in moved)
    likely = nearest_variant(listing, info)
    advice = (
        f" This looks like {likely.split_title} split: use the name {likely.name}."
        if likely is not info
        else " Results on such a split cannot be compared with published ones."
    )
    sentence = f"{_classes_are(names)} in another split than {info.split_title}: {examples}.{advice}"
    return Difference("wrong split", names, sentence)


def _classes(listing: Listing, info: DatasetInfo) -> list[Difference | None]:
    present = {name for classes in listing.splits.values() for name in classes}
    found: list[Difference | None] = []
    for split in SPLITS:
        names = tuple(name for name in info.classes(split) if name not in present)
        if names and not listing.splits.get(split):
            found.append(Difference("missing split", names, f"The split {split} is missing."))
        else:
            found.append(_if_any("missing", names, f"{split}: {_classes_are(names)} missing"))
    unassigned = {name for name, count in listing.unassigned.items() if count}
    extra = tuple(sorted((present - set(info.split_of)) | unassigned))
    folders = counted(len(extra), "folder is not a class", "folders are not classes")
    return [*found, _if_any("extra", extra, f"{folders} of {info.title}")]


def _counts(listing: Listing, info: DatasetInfo) -> list[Difference]:
    expected = {name: count for split in SPLITS for name, count in info.splits[split].items()}
    counts = {name: count for split in SPLITS for name, count in listing.counts(split).items() if name in expected}
    found = []
    for kind, words, sign in (("short", "too few", -1), ("long", "too many", 1)):
        names = tuple(name for name, count in counts.items() if sign * (count - expected[name]) > 0)
        if names:
            examples = first_names(f"{name} ({counts[name]} of {expected[name]})" for name in names)
            sentence = f"{counted(len(names), 'class has', 'classes have')} {words} images: {examples}."
            found.append(Difference(kind, names, sentence))
    return found


def _sizes(listing: Listing, info: DatasetInfo, split: str) -> Difference | None:
    """Numbered classes can be compared by their sizes only."""
    sizes = sorted(listing.counts(split).values())
    if sizes == sorted(info.splits[split].values()):
        return None
    sentence = (
        f"{split}: expected {len(info.classes(split))} classes with {info.images(split):,} images, "
        f"found {len(sizes)} with {sum(sizes):,}."
    )
    return Difference("sizes", (split,), sentence)


def _classes_are(names: tuple[str, ...]) -> str:
    return counted(len(names), "class is", "classes are")
