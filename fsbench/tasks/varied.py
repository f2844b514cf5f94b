"""Tasks of unequal size, drawn one by one: varying classes and shots, all images, unknown classes.

A task takes memory in proportion to the images of its classes. Axes: K classes of a task, M images of these.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fsbench.errors import FsbenchError
from fsbench.tasks import random
from fsbench.tasks.protocol import ALL, TaskProtocol, ends

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
UNKNOWN = -2  # label of a query of an unknown class
META_SUPPORT = 500  # most support images of a task of Meta-Dataset, at most 100 of a class counted
_META_CLASS = 100


class Task(NamedTuple):
    """One task; the fields are those of `TaskRows`."""

    classes: Ints
    support: Ints
    support_labels: Ints
    query: Ints
    query_labels: Ints
    ways: int
    redraws: int


def draw_task(protocol: TaskProtocol, offsets: Ints, sizes: Ints, seed: int, number: int) -> Task:
    """Draw one task of a split whose classes begin at `offsets` and have `sizes` images to choose from."""

    def words(stream: int, count: int) -> Words:
        (row,) = random.words(seed, np.array([number]), stream, count)
        return row  # type: ignore[no-any-return]

    def between(low: int, high: int, word: Words) -> int:
        return low + int(random.below(word, np.array(high - low + 1)))

    size_words = words(random.SIZES, 2)
    ways = between(*ends(protocol.ways, len(sizes) - protocol.unknown), size_words[0])
    chosen = _in_random_order(words(random.CLASSES, len(sizes)))[: ways + protocol.unknown]
    per_class = protocol.queries_of(1) if protocol.equal else 1
    if protocol.support == "meta":
        per_class = min(per_class, int(sizes[chosen].min()) // 2)
    shots = _shots(protocol, sizes[chosen[:ways]], per_class, words(random.SHOTS, ways + 1))
    without = np.argsort(shots == 0, kind="stable")  # classes without support are the last labels
    shots = np.append(shots[without], np.zeros(protocol.unknown, dtype=np.int64))
    chosen[:ways] = chosen[:ways][without]

    pool = _Pool.of(offsets[chosen], sizes[chosen], words(random.SUPPORT, int(sizes[chosen].sum())))
    is_support = pool.place < shots[pool.label]
    held = between(*ends(protocol.present or ALL, ways), size_words[1])
    present = np.ones(len(chosen), dtype=bool)  # of the classes; those without support always are
    present[_in_random_order(words(random.PRESENT, ways))[held:]] = False
    if protocol.preset.overlap:
        free = _Pool.of(offsets[chosen], sizes[chosen], words(random.QUERY, len(pool.row)))
    else:
        free = pool.without(is_support, shots)
    if protocol.pooled:
        (places,) = np.nonzero(present[free.label])
        order = _in_random_order(words(random.ORDER, len(places)))
        query, redraws = places[order][: protocol.queries_of(held)], 0
    else:
        drawn_from = held + protocol.unknown
        total = per_class * drawn_from if protocol.support == "meta" else protocol.queries_of(drawn_from)
        room = np.bincount(free.label, minlength=len(chosen)) - protocol.preset.smallest
        counts, redraws = _counts(protocol, total, np.where(present, room, 0), present, (seed, number))
        query = np.flatnonzero(free.place < counts[free.label])
        query = query[_in_random_order(words(random.ORDER, len(query)))]
    labels = free.label[query]
    return Task(
        chosen[:ways],
        pool.row[is_support],
        pool.label[is_support],
        free.row[query],
        np.where(labels >= ways, UNKNOWN, labels),
        int((shots > 0).sum()) or ways,
        redraws,
    )


class _Pool(NamedTuple):
    """The images of some classes, class by class, in random order within a class."""

    row: Ints  # (M,) of the split
    label: Ints  # (M,) which of the classes it belongs to
    place: Ints  # (M,) in the order of its class, from 0

    @classmethod
    def of(cls, first: Ints, sizes: Ints, words: Words) -> _Pool:
        label = np.repeat(np.arange(len(sizes)), sizes)
        place = np.arange(len(label)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return cls((first[label] + place)[np.lexsort((words, label))], label, place)

    def without(self, taken: NDArray[np.bool_], shots: Ints) -> _Pool:
        """The images that are not taken, where those taken are the first of every class, so many of each."""
        return _Pool(self.row[~taken], self.label[~taken], (self.place - shots[self.label])[~taken])


def _in_random_order(words: Words) -> Ints:
    """The numbers from 0, as many as there are random words, in the order of these."""
    return np.argsort(words, kind="stable")


def _shots(protocol: TaskProtocol, sizes: Ints, queries: int, words: Words) -> Ints:
    """(K,) support images of every class, from K + 1 random words.

    `meta` is the law of Meta-Dataset (Triantafillou et al., ICLR 2020, appendix A): the size of the support from one
    uniform number β, shared out in proportion to class sizes, each times a number between 1/2 and 2. `realistic` and
    `relaxed` share K · shots out in proportion to class sizes (Silva-Rodríguez et al., MICCAI 2025).
    """
    ways = len(sizes)
    if protocol.support == "equal":
        return np.full(ways, protocol.shots, dtype=np.int64)
    if protocol.support == "meta":
        beta, *others = random.uniform(words)
        left = sizes - queries
        total = min(META_SUPPORT, int(np.floor(beta * np.minimum(_META_CLASS, left) + 1).sum()))
        weights = sizes * np.exp(np.log(0.5) + np.log(4.0) * np.array(others))
        wanted: Ints = np.floor(weights / weights.sum() * (total - ways)).astype(np.int64) + 1
        return np.minimum(wanted, left)
    shots: Ints = np.round(ways * protocol.shots * sizes / sizes.sum()).astype(np.int64)
    shots = np.minimum(np.maximum(shots, 1), sizes) if protocol.support == "relaxed" else np.minimum(shots, sizes)
    while shots.sum() > ways * protocol.shots:
        shots[np.argmax(shots)] -= 1
    return shots


def _counts(
    protocol: TaskProtocol, total: int, room: Ints, present: NDArray[np.bool_], task: tuple[int, int]
) -> tuple[Ints, int]:
    """Queries of every class, in equal or Dirichlet proportions over those present; and redraws of the latter."""
    held, counts, (seed, number) = int(present.sum()), np.zeros_like(room), task
    for attempt in range(random.MOST_REDRAWS):
        if protocol.alpha is None:
            (counts[present],) = random.apportion(np.full((1, held), 1.0 / held), total)
        else:
            (counts[present],) = random.dirichlet_counts(protocol.alpha, held, total, seed, np.array([number]), attempt)
        if protocol.preset.short:
            counts = np.minimum(counts, room)
        of_known = counts[: len(counts) - protocol.unknown].sum()
        both = of_known > 0 and (of_known < counts.sum() or not protocol.unknown)  # known and unknown queries
        if both and (counts <= room).all():
            return counts, attempt
        if protocol.alpha is None:
            break
    if not both and protocol.unknown:
        raise FsbenchError(
            f"{total} queries are too few for {held} known and unknown classes: task {number} has none of one kind.",
            f"Use --queries {held} or more.",
        )
    raise FsbenchError(
        f"The classes of task {number} have too few images for {total} queries: {room[present].min()} to "
        f"{room[present].max()} beside their support.",
        "Use fewer --queries.",
    )
