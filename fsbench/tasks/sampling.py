"""(protocol, seed, index) → rows of a split.

Tasks of the same size are drawn together, vectorised over tasks; others one by one, in `varied`.
Axes: B tasks, K classes of a task, S support rows and Q queries of a task.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fsbench.data.dataset import ImageSplit
from fsbench.errors import FsbenchError
from fsbench.tasks import random, varied
from fsbench.tasks.protocol import ALL, ALPHA, TaskProtocol, ends

Ints = NDArray[np.int64]
_DRAWN_AT_ONCE = 512
_DRAWS = 4096  # of class proportions, by which feasible numbers of queries are judged
_FITTING = 0.02  # of them that must fit the smallest classes: a thousand redraws are then enough


@dataclass(frozen=True)
class TaskRows:
    """Tasks as row numbers of one split; where a task is smaller than others, -1 fills its lines."""

    classes: Ints  # (B, K) class number in the split of every label 0..K-1, those without support last
    support: Ints  # (B, S) rows
    support_labels: Ints  # (B, S) labels in 0..K-1
    query: Ints  # (B, Q) rows in random order
    query_labels: Ints  # (B, Q) labels in 0..K-1; UNKNOWN for a query of an unknown class
    ways: Ints  # (B,) classes with support, which are the labels that a query can get
    redraws: Ints  # (B,) class proportions that were refused before, as a class had too few images


def sample_tasks(protocol: TaskProtocol, offsets: Ints, seed: int, tasks: Ints) -> TaskRows:
    """Draw the tasks with the given numbers. Task i is the same whatever else is drawn with it.

    Args:
        protocol: The rules.
        offsets: (C + 1,) first row of every class, and the number of rows: the split is sorted by class.
        seed: Any integer in [0, 2⁶⁴).
        tasks: (B,) task numbers.
    """
    if not 0 <= seed < 2**64:
        raise FsbenchError(f"A seed is a whole number from 0 to 2⁶⁴ − 1, got {seed}.")
    offsets = np.asarray(offsets, dtype=np.int64)
    tasks = np.asarray(tasks, dtype=np.int64)
    sizes = feasible_sizes(protocol, offsets)
    if not protocol.same_size:
        return _one_by_one(protocol, offsets, sizes, seed, tasks)
    ways, _, queries = largest(protocol, sizes)
    keys = random.words(seed, tasks, random.CLASSES, len(sizes))
    keys[:, sizes == 0] = np.iinfo(keys.dtype).max  # classes that are left out come last
    classes = np.argsort(keys, axis=1, kind="stable")[:, :ways]  # (B, K)
    room = sizes[classes]  # (B, K) images to choose from
    counts, redraws = _draw_counts(protocol, seed, tasks, room)  # (B, K) queries per class
    labels = _labels_of_slots(counts, queries)  # (B, Q), -1 past the last query
    keys = random.words(seed, tasks, random.ORDER, queries).astype(np.uint32)
    order = np.argsort(keys, axis=1, kind="stable")
    labels = np.take_along_axis(labels, order, axis=1)

    support_labels = np.tile(np.arange(ways), (len(tasks), protocol.shots))
    first = offsets[classes]  # (B, K)
    if protocol.preset.overlap:
        support = _draw_distinct(seed, tasks, random.SUPPORT, support_labels, room)
        query = _draw_distinct(seed, tasks, random.QUERY, labels, room)
    else:
        together = _draw_distinct(seed, tasks, random.SUPPORT, np.concatenate([support_labels, labels], axis=1), room)
        support, query = np.split(together, [support_labels.shape[1]], axis=1)
    support = support + np.take_along_axis(first, support_labels, axis=1)
    query = np.where(labels < 0, -1, query + np.take_along_axis(first, np.maximum(labels, 0), axis=1))
    return TaskRows(classes, support, support_labels, query, labels, np.full_like(tasks, ways), redraws)


def _one_by_one(protocol: TaskProtocol, offsets: Ints, sizes: Ints, seed: int, tasks: Ints) -> TaskRows:
    """Tasks of unequal size, in lines that have room for the largest."""
    ways, support, queries = largest(protocol, sizes)
    widths = (ways, support, support, queries, queries)
    lines = [np.full((len(tasks), width), -1, dtype=np.int64) for width in widths]
    numbers = np.zeros((2, len(tasks)), dtype=np.int64)  # ways and redraws
    for place, task in enumerate(tasks):
        *parts, numbers[0, place], numbers[1, place] = varied.draw_task(protocol, offsets, sizes, seed, task)
        for line, part in zip(lines, parts, strict=True):
            line[place, : len(part)] = part
    return TaskRows(*lines, *numbers)


def largest(protocol: TaskProtocol, sizes: Ints) -> tuple[int, int, int]:
    """The most classes, support rows and queries that a task of a split with classes of these sizes can have."""
    ways = ends(protocol.ways, len(sizes))[1]
    support = varied.META_SUPPORT if protocol.support == "meta" else ways * protocol.shots
    held = ends(protocol.present or ALL, ways)[1] + protocol.unknown
    queries = protocol.queries_of(held)
    if not protocol.same_size:
        left_out = 0 if protocol.preset.overlap or protocol.support != "equal" else held - protocol.unknown
        queries = min(queries, int(np.sort(sizes)[-held:].sum()) - left_out * protocol.shots)
    return ways, support, queries


def sample_list(protocol: TaskProtocol, offsets: Ints, seed: int, count: int) -> Iterator[TaskRows]:
    """Tasks 0 to count − 1, in parts that take little memory."""
    for part in np.array_split(np.arange(count), -(-count // _DRAWN_AT_ONCE)):
        yield sample_tasks(protocol, offsets, seed, part)


def feasible_sizes(protocol: TaskProtocol, offsets: Ints) -> Ints:
    """(C,) number of images of every class that the protocol may use: the first ones of the class.

    Classes that are too small have 0 and are left out: as few as possible, at most half of them. Requests that no draw
    can satisfy are refused, with the numbers.
    """
    sizes = np.diff(offsets)
    try:
        return _checked(protocol, sizes)
    except FsbenchError:
        order = np.argsort(sizes, kind="stable")
        fixed = protocol.same_size and isinstance(protocol.ways, int)
        most = min(len(sizes) - int(protocol.ways), len(sizes) // 2) if fixed else 0
        few = bisect.bisect_left(range(1, most + 1), True, key=lambda few: _is_feasible(protocol, sizes[order[few:]]))
        if few >= most:
            raise
    kept, usable = np.sort(order[few + 1 :]), np.zeros_like(sizes)
    usable[kept] = _checked(protocol, sizes[kept])
    return usable


def _is_feasible(protocol: TaskProtocol, sizes: Ints) -> bool:
    try:
        return bool(len(_checked(protocol, sizes)))
    except FsbenchError:
        return False


def _checked(protocol: TaskProtocol, sizes: Ints) -> Ints:
    """The sizes of classes that can all be used."""
    if protocol.preset.smallest:
        sizes = np.full_like(sizes, sizes.min())
    shots, classes, smallest = protocol.shots, len(sizes), int(sizes.min())
    ways = ends(protocol.ways, classes)[0]
    if ways + protocol.unknown > classes:
        asked = f"{ways} ways" + (f" and {protocol.unknown} unknown classes" if protocol.unknown else "")
        most = classes - protocol.unknown
        hint = f"Use --ways {most} or fewer." if most > 1 else "Use a split with more classes, or fewer --unknown ones."
        raise FsbenchError(f"{asked} asked for, but the split has {classes} classes.", hint)
    held = ends(protocol.present or ALL, ways)[1] + protocol.unknown
    if held - protocol.unknown > ways:
        raise FsbenchError(f"The classes among the queries must be 1 to {ways}, got {protocol.present}.")
    queries = protocol.queries_of(held)
    most = -(-queries // held) if protocol.equal else 0
    need = shots if protocol.preset.overlap else shots + most
    if not protocol.same_size and (protocol.pooled or protocol.support != "equal"):
        need = 2 if protocol.support != "equal" else shots + 1  # other numbers follow from the sizes of the classes
        most = need - shots
    if need > smallest:
        raise FsbenchError(
            f"A task needs {need} images of every class ({shots} support"
            + (f" + {most} queries" if need > shots else "")
            + f"), but the smallest class has {smallest}.",
            _instead(protocol, sizes),
        )
    if not protocol.equal and not protocol.preset.short and protocol.queries != ALL:
        spare = np.sort(_most_queries(protocol, sizes))[:held]
        if spare.sum() < queries:
            beside = "" if protocol.preset.overlap else f" beside their {shots} support images each"
            raise FsbenchError(
                f"{queries} queries asked for, but the {held} smallest classes have only {int(spare.sum())} images"
                f"{beside}.",
                _instead(protocol, sizes),
            )
        if protocol.alpha is not None and _share_fitting(protocol.alpha, queries, tuple(spare.tolist())) < _FITTING:
            raise FsbenchError(
                f"Hardly any class proportions fit: the {held} smallest classes have {spare[0]} to {spare[-1]} images "
                f"for {queries} queries beside {shots} support images each.",
                _instead(protocol, sizes),
            )
    return sizes


@cache
def _share_fitting(alpha: float, queries: int, spare: tuple[int, ...]) -> float:
    """The share of drawn class proportions that classes with so many images allow."""
    shares = np.random.default_rng(0).dirichlet(np.full(len(spare), alpha), _DRAWS)
    return float((random.apportion(shares, queries) <= spare).all(axis=1).mean())


def feasible_queries(protocol: TaskProtocol, sizes: Ints) -> int:
    """The largest number of queries up to the protocol's own that its tasks can have; 0 if there can be no task.

    Unbalanced tasks are drawn again while a class is too small: at least half of the draws fit the smallest classes.
    """
    held = ends(protocol.present or ALL, ends(protocol.ways, len(sizes))[1])[1] + protocol.unknown
    asked = protocol.queries_of(held)
    spare = np.sort(_most_queries(protocol, sizes))[:held]
    if protocol.preset.short or protocol.equal:
        smallest = int(sizes.min()) - protocol.shots
        most = asked if protocol.preset.overlap and smallest >= 0 else held * max(0, smallest)
        return min(asked, most)
    if protocol.pooled:
        return min(asked, int(spare.clip(min=0).sum()))
    alpha, few = protocol.alpha or ALPHA, tuple(spare.tolist())
    # The more queries, the fewer draws fit.
    return bisect.bisect_left(range(1, asked + 1), True, key=lambda queries: _share_fitting(alpha, queries, few) < 0.5)


def feasible_settings(split: ImageSplit) -> str:
    """Which of the usual settings a split of images allows, in one sentence, with the numbers to use instead."""
    sizes = np.bincount(split.labels)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if len(sizes) < 2:
        return f"no tasks, as there is one {split.name} class."
    ways = min(TaskProtocol().ways, len(sizes))
    allowed: dict[str, list[str]] = {}
    for protocol in (TaskProtocol(ways=ways, shots=shots, alpha=alpha) for alpha in (ALPHA, None) for shots in (1, 5)):
        try:
            used = np.count_nonzero(feasible_sizes(protocol, offsets))
            limit = f"with {protocol.queries} queries" + (
                f" of the {used} largest classes" if used < len(sizes) else ""
            )
        except FsbenchError:
            most = feasible_queries(protocol, sizes)
            limit = f"with --queries {most} or fewer" if most else "not at all"
        allowed.setdefault(limit, []).append(f"{protocol.setting} {protocol.shots}-shot")
    texts = [f"{', '.join(names)} {limit}" for limit, names in allowed.items()]
    return f"{ways}-way tasks of its {split.name} classes: {'; '.join(texts)} (smallest class: {sizes.min()} images)."


def _instead(protocol: TaskProtocol, sizes: Ints) -> str:
    """What to ask for instead of tasks that are not feasible."""
    fewer = range(protocol.shots - 1, 0, -1)
    others = (dataclasses.replace(protocol, shots=shots) for shots in fewer)
    asked = protocol.queries_of(ends(protocol.present or ALL, ends(protocol.ways, len(sizes))[1])[1] + protocol.unknown)
    shots = next((other.shots for other in others if feasible_queries(other, sizes) == asked), None)
    queries = feasible_queries(protocol, sizes)
    ways = [f"--queries {queries} or fewer"] if queries and protocol.support == "equal" else []
    ways += [f"--shots {shots}"] if shots else []
    return f"Use {', or '.join(ways)}." if ways else "Leave small classes out with --min-images when you extract."


def _draw_counts(protocol: TaskProtocol, seed: int, tasks: Ints, room: Ints) -> tuple[Ints, Ints]:
    """(B, K) number of queries per class, those that are not present have none; and (B,) redraws."""
    if protocol.present is None:
        return _counts_of_present(protocol, seed, tasks, room)
    ways = room.shape[1]
    keys = random.words(seed, tasks, random.PRESENT, ways)
    present = np.argsort(keys, axis=1, kind="stable")[:, : ends(protocol.present or ALL, ways)[1]]  # (B, k_eff)
    counts = np.zeros_like(room)
    drawn, redraws = _counts_of_present(protocol, seed, tasks, np.take_along_axis(room, present, axis=1))
    np.put_along_axis(counts, present, drawn, axis=1)
    return counts, redraws


def _counts_of_present(protocol: TaskProtocol, seed: int, tasks: Ints, room: Ints) -> tuple[Ints, Ints]:
    """(B, K) number of queries per class, redrawn while a class is too small, or cut where the protocol cuts.

    Redraws leave out what the classes cannot give, so the law is a truncated one: with 60 images per class, 1 shot and
    75 queries the counts have 14 % less variance at α = 0.5, 3 % less at 1, and the same to 0.1 % from 2 on.
    """
    held, limit, redraws = room.shape[1], _most_queries(protocol, room), np.zeros_like(tasks)
    queries = protocol.queries_of(held)
    if protocol.pooled:
        return _counts_by_image(seed, tasks, limit, queries), redraws
    if protocol.alpha is None:
        shares = np.full(room.shape, 1.0 / held)
        return np.minimum(random.apportion(shares, queries), room), redraws
    counts = random.dirichlet_counts(protocol.alpha, held, queries, seed, tasks, attempt=0)
    if protocol.preset.short:
        return np.minimum(counts, room), redraws
    for attempt in range(1, random.MOST_REDRAWS):
        bad = np.flatnonzero((counts > limit).any(axis=1))
        if not bad.size:
            return counts, redraws
        redraws[bad] += 1
        counts[bad] = random.dirichlet_counts(protocol.alpha, held, queries, seed, tasks[bad], attempt)
    raise FsbenchError(
        f"Task {int(tasks[bad[0]])} was redrawn {random.MOST_REDRAWS} times and its classes were always too small: "
        f"{room[bad[0]].min()} to {room[bad[0]].max()} images for {protocol.shots} shots and {queries} queries.",
        f"Use --queries {feasible_queries(protocol, room[bad[0]])} or fewer, or a larger --alpha.",
    )


def _counts_by_image(seed: int, tasks: Ints, available: Ints, queries: int) -> Ints:
    """(B, K) number of queries per class, if they are drawn from all available images (B, K) of the classes alike."""
    pool = available.sum(axis=1, keepdims=True)  # (B, 1)
    drawn = _draw_distinct(seed, tasks, random.COUNTS, np.zeros((len(tasks), queries), dtype=np.int64), pool)  # (B, Q)
    ends_of_classes = np.cumsum(available, axis=1)  # (B, K)
    counts = [
        np.bincount(np.searchsorted(one, images, side="right"), minlength=len(one))
        for one, images in zip(ends_of_classes, drawn, strict=True)
    ]
    return np.array(counts)


def _most_queries(protocol: TaskProtocol, sizes: Ints) -> Ints:
    """The most queries that classes of these sizes can give; `released` also redraws when a class is used up."""
    return sizes - (0 if protocol.preset.overlap else protocol.shots) - protocol.preset.smallest


def _labels_of_slots(counts: Ints, queries: int) -> Ints:
    """(B, Q) label of every query slot: counts[:, 0] times 0, then counts[:, 1] times 1, …; -1 for the rest."""
    tasks, ways = counts.shape
    rest = queries - counts.sum(axis=1, keepdims=True)  # (B, 1)
    labels = np.tile(np.append(np.arange(ways), -1), tasks)
    return np.repeat(labels, np.concatenate([counts, rest], axis=1).ravel()).reshape(tasks, queries)


def _draw_distinct(seed: int, tasks: Ints, stream: int, labels: Ints, room: Ints) -> Ints:
    """(B, M) image numbers within the class, distinct among the slots of a task that share a label.

    Every slot draws; a slot that finds its image taken draws again. The procedure treats all images of a class
    alike, so every ordered choice of distinct images is equally likely. A table tells who holds an image, so a round
    costs one write and one read per slot.
    """
    ways, width = room.shape[1], int(room.max())
    holder = np.full(len(tasks) * ways * width, -1, dtype=np.int32)  # slot that holds an image of a class of a task
    entry = np.flatnonzero(labels >= 0)  # the slots of all tasks, one after the other
    task, slot = np.divmod(entry, labels.shape[1])
    line = task * ways + labels.ravel()[entry]  # class of a task
    bound = room.ravel()[line]
    line *= width  # where the images of this class of this task begin in the table
    drawn = random.words(seed, tasks, stream, labels.shape[1]).ravel()[entry]
    chosen = np.zeros(labels.shape, dtype=np.int64)
    attempt = 0
    while entry.size:
        image = random.below(drawn, bound)
        chosen.ravel()[entry] = image
        place = line + image
        free = slice(None) if attempt == 0 else holder[place] < 0
        holder[place[free]] = slot[free]
        again = np.flatnonzero(holder[place] != slot)
        entry, task, slot, line, bound = entry[again], task[again], slot[again], line[again], bound[again]
        attempt += 1
        drawn = random.words_at(seed, tasks[task], stream + attempt * random.ATTEMPT, slot)
    return chosen
