"""An interval over the data: tasks that share no image.

Tasks drawn with replacement tell how well the mean over *sampled tasks* is known; draw more and it shrinks at will.
Tasks that share no image are few, and their spread tells how the result would vary with other images of the same kind
(Lafargue et al.: "Oops, I Sampled it Again: Reinterpreting Confidence Intervals in Few-Shot Learning", TMLR 2024).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from fsbench.evaluation.engine import BlockSize, embed_split, solve_rows
from fsbench.results.statistics import Interval, accuracies, interval
from fsbench.tasks.sampling import TaskRows, apportion

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from fsbench.evaluation.source import Source
    from fsbench.methods.base import Method
    from fsbench.tasks.protocol import TaskProtocol

_DRAWS = 200  # of the class counts, before the images are taken to be used up


def interval_over_data(
    method: Method, source: Source, protocol: TaskProtocol, seed: int, device: torch.device
) -> Interval | None:
    """Mean accuracy and Student's interval over tasks that share no image; None if fewer than two fit."""
    rows = tasks_without_shared_images(protocol, source.split.offsets, seed)
    if rows is None or len(rows.classes) < 2:
        return None
    table = embed_split(method, source.split, source.base, device)
    correct, queries = solve_rows(method, table, rows, BlockSize(64))
    return interval(accuracies(correct, queries))


def tasks_without_shared_images(protocol: TaskProtocol, offsets: NDArray[np.int64], seed: int) -> TaskRows | None:
    """Draw tasks until the images left do not make another one. Always disjoint, whatever the protocol's name."""
    rng = np.random.default_rng(seed)
    left = [rng.permutation(np.arange(first, last)) for first, last in itertools.pairwise(offsets)]
    drawn: list[tuple[NDArray[np.int64], ...]] = []
    while (task := _next_task(protocol, left, rng)) is not None:
        drawn.append(task)
    if not drawn:
        return None
    classes, support, query, labels = (np.stack(part) for part in zip(*drawn, strict=True))
    return TaskRows(classes, support, query, labels)


def _next_task(
    protocol: TaskProtocol, left: list[NDArray[np.int64]], rng: np.random.Generator
) -> tuple[NDArray[np.int64], ...] | None:
    """One task from the images that are left, which are then gone; None if there is no room for one."""
    ways, shots, queries = protocol.ways, protocol.shots, protocol.queries
    for _ in range(_DRAWS):
        usable = [c for c, images in enumerate(left) if len(images) > shots]
        if len(usable) < ways:
            return None
        classes = rng.permutation(usable)[:ways]
        shares = np.full(ways, 1 / ways) if protocol.alpha is None else rng.dirichlet(np.full(ways, protocol.alpha))
        counts = apportion(shares[None], queries)[0]
        if all(len(left[c]) >= shots + count for c, count in zip(classes, counts, strict=True)):
            return _take(protocol, left, classes, counts, rng)
    return None


def _take(
    protocol: TaskProtocol,
    left: list[NDArray[np.int64]],
    classes: NDArray[np.int64],
    counts: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], ...]:
    shots = protocol.shots
    taken = []
    for c, count in zip(classes, counts, strict=True):
        taken.append(left[c][: shots + count])
        left[c] = left[c][shots + count :]
    support = np.stack([images[:shots] for images in taken], axis=1).reshape(-1)  # shot by shot
    query = np.concatenate([images[shots:] for images in taken])
    labels = np.repeat(np.arange(protocol.ways), counts)
    order = rng.permutation(len(query))
    return classes, support, query[order], labels[order]
