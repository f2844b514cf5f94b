"""Pictures that a data set holds more than once, told by their content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbench.data.listing import first_names
from fsbench.errors import FsbenchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsbench.data.listing import Listing, Source

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
