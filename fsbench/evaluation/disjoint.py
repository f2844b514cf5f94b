"""Tasks that share no image, for intervals over the data."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from fsbench.devices import float32_products
from fsbench.evaluation.blocks import PIXELS, BlockSize, embed_together, solve_rows
from fsbench.results.statistics import accuracies
from fsbench.tasks.sampling import TaskRows, apportion

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from fsbench.evaluation.source import Source
    from fsbench.methods.base import Method
    from fsbench.tasks.protocol import TaskProtocol

_DRAWS = 200  # of the class counts, before the images are taken to be used up


def accuracies_over_data(
    method: Method, source: Source, protocol: TaskProtocol, seed: int, device: torch.device
) -> NDArray[np.float64] | None:
    """Accuracies on tasks that share no image, the same for every method; None if fewer than two fit."""
    rows = tasks_without_shared_images(protocol, source.split.offsets, seed)
    if rows is None or len(rows.classes) < 2:
        return None
    with float32_products():
        embedded = embed_together([method], source.split, source.base, device)
        right, asked, _ = solve_rows(embedded, rows, BlockSize(1 if embedded[0].spaces[0].dtype == PIXELS else 64))
        return accuracies(right[0], asked)


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
    protocol = protocol.within(len(left))
    ways, shots, queries = protocol.ways, protocol.shots, protocol.queries
    for _ in range(_DRAWS):
        usable = [c for c, images in enumerate(left) if len(images) > shots]
        if len(usable) < ways:
            return None
        classes = rng.permutation(usable)[:ways]
        present = np.arange(ways) if protocol.present is None else rng.permutation(ways)[: protocol.held]
        counts = np.zeros(ways, dtype=np.int64)
        counts[present] = _count_queries(protocol, np.array([len(left[c]) for c in classes[present]]), rng)
        if counts.sum() == queries and all(
            len(left[c]) >= shots + count for c, count in zip(classes, counts, strict=True)
        ):
            return _take(protocol, left, classes, counts, rng)
    return None


def _count_queries(protocol: TaskProtocol, room: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Queries per class, for classes that have these many images left; fewer than asked for if there are not enough."""
    held, queries = protocol.held, protocol.queries
    if protocol.pooled:
        spare = room - protocol.shots
        drawn: NDArray[np.int64] = rng.multivariate_hypergeometric(spare, min(queries, int(spare.sum())))
        return drawn
    shares = np.full(held, 1 / held) if protocol.alpha is None else rng.dirichlet(np.full(held, protocol.alpha))
    counts: NDArray[np.int64] = apportion(shares[None], queries)[0]
    return counts


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
