"""Blocks of drawn tasks: their features and inner products, which methods share, and the answers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from fsbench.devices import out_of_memory
from fsbench.errors import FsbenchError
from fsbench.methods.centroids import CentredRows
from fsbench.results.predictions import in_half_precision
from fsbench.tasks.batch import TaskBatch, gram

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from fsbench.features.scatter import BaseStatistics
    from fsbench.features.store import Split
    from fsbench.methods.base import Method
    from fsbench.tasks.sampling import TaskRows

PIXELS = torch.uint8  # dtype of the rows of methods on images; features are floating point
_CACHED_ON_CPU = 8  # tasks whose rows stay in the cache while their Gram matrices are computed
_EMBEDDED_AT_ONCE = 1024  # rows that stay in the cache of a CPU


@dataclass
class BlockSize:
    """Tasks per block; halved for all threads when memory runs out."""

    tasks: int

    def halve(self, tried: int, error: Exception) -> None:
        """Make blocks smaller than the one that failed, or give up at a single task."""
        if tried <= 1:
            raise FsbenchError("Not even a single task fits into memory.", "Use fewer --queries or --ways.") from error
        self.tasks = min(self.tasks, tried // 2)


class Embedded(NamedTuple):
    """A method with its embedding of a split: one table (M, E), or the spaces that it puts side by side."""

    method: Method
    spaces: tuple[Tensor, ...]


def embed_split(method: Method, split: Split, base: BaseStatistics | None, device: torch.device) -> tuple[Tensor, ...]:
    """The method's row-wise embedding of all features of a split, on the device: a table (M, E) for every space."""
    features = torch.from_numpy(split.features)
    if features.dtype == PIXELS:  # mapped from a file, and not copied
        return (features.to(device),)
    tables: tuple[Tensor, ...] = ()
    for done in range(0, len(features), _EMBEDDED_AT_ONCE):
        rows = method.embed(features[done : done + _EMBEDDED_AT_ONCE].to(device), base)
        spaces = rows.split(features.shape[1], dim=1) if isinstance(method, CentredRows) else (rows,)
        tables = tables or tuple(rows.new_empty(len(features), space.shape[1]) for space in spaces)
        for table, space in zip(tables, spaces, strict=True):
            table[done : done + len(space)] = space
    return tables


def embed_together(
    methods: Sequence[Method], split: Split, base: BaseStatistics | None, device: torch.device
) -> list[Embedded]:
    """The embeddings of several methods; those that have a space in common hold it once."""
    known: list[Tensor] = []
    found = []
    for method in methods:
        spaces = []
        for space in embed_split(method, split, base, device):
            # Most that differ do so in their first row.
            same = (one for one in known if torch.equal(one[:1], space[:1]) and torch.equal(one, space))
            spaces.append(next(same, space))
            if spaces[-1] is space:
                known.append(space)
        found.append(Embedded(method, tuple(spaces)))
    return found


class _Block:
    """Tasks that are solved at once; what several methods ask for is computed once, and its seconds are kept."""

    def __init__(self, index: Tensor, support_labels: Tensor, ways: int, rooms: dict[int, Tensor]) -> None:
        self.index, self.support_labels, self.ways = index, support_labels, ways
        self.rooms = rooms  # for the rows of a block; kept, as fresh memory is slow to touch
        self.kept: dict[tuple[Callable[[Tensor], Tensor], int], Tensor] = {}
        self.seconds: dict[tuple[Callable[[Tensor], Tensor], int], float] = {}

    def rows(self, space: Tensor) -> Tensor:
        """(B, N, D) the rows of the tasks."""
        room = self.rooms.get(id(space))
        if room is None or len(room) != self.index.numel():
            room = self.rooms[id(space)] = space.new_empty(self.index.numel(), space.shape[1])
        return torch.index_select(space, 0, self.index.reshape(-1), out=room).view(*self.index.shape, -1)

    def gram(self, space: Tensor) -> Tensor:
        """(B, N, N) their inner products; on the CPU for few tasks at a time, whose rows stay in the cache."""
        if space.device.type != "cpu":
            return gram(self.rows(space))
        tasks, samples = self.index.shape
        found = space.new_empty(tasks, samples, samples)
        table, room = space.numpy(), space.new_empty(min(tasks, _CACHED_ON_CPU), samples, space.shape[1])
        for first in range(0, tasks, _CACHED_ON_CPU):
            index = self.index[first : first + _CACHED_ON_CPU]
            rows = room[: len(index)]
            table.take(index.numpy(), axis=0, out=rows.numpy(), mode="clip")  # other modes copy once more
            gram(rows, found[first : first + len(index)])
        return found


class _Tasks(TaskBatch):
    """The tasks of a block as one method sees them; rows are gathered when they are asked for."""

    def __init__(self, block: _Block, spaces: tuple[Tensor, ...]) -> None:
        self.support_labels, self.ways = block.support_labels, block.ways
        self.block, self.spaces = block, spaces
        self.used: set[tuple[Callable[[Tensor], Tensor], int]] = set()

    @property
    def rows(self) -> Tensor:
        parts = [self._once(self.block.rows, space) for space in self.spaces]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)

    @property
    def shape(self) -> tuple[int, ...]:
        return *self.block.index.shape, sum(space.shape[1] for space in self.spaces)

    @property
    def dtype(self) -> torch.dtype:
        return self.spaces[0].dtype

    def space(self, number: int, count: int) -> Tensor:
        if count != len(self.spaces):
            return super().space(number, count)
        return self._once(self.block.rows, self.spaces[number])

    def gram(self, number: int = 0, count: int = 1) -> Tensor:
        if count != len(self.spaces):
            return super().gram(number, count)
        return self._once(self.block.gram, self.spaces[number])

    def _once(self, compute: Callable[[Tensor], Tensor], space: Tensor) -> Tensor:
        key, block = (compute, id(space)), self.block
        if key not in block.kept:
            started = time.perf_counter()
            block.kept[key] = compute(space)
            block.seconds[key] = time.perf_counter() - started
        self.used.add(key)
        return block.kept[key]


def solve_rows(
    embedded: Sequence[Embedded], drawn: TaskRows, block: BlockSize, kept: NDArray[np.float16] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Right answers (methods, B), number of queries (B,), and seconds: of all together, and of each method alone.

    Shorter tasks are solved apart, so that shapes agree. `kept` (B, Q, K) takes the probabilities.
    """
    asked = (drawn.query_labels >= 0).sum(axis=1)
    right, seconds = np.zeros((len(embedded), len(asked)), dtype=np.int64), np.zeros(len(embedded) + 1)
    for size in np.unique(asked):
        chosen = np.flatnonzero(asked == size)
        rows, labels = drawn.query[chosen], drawn.query_labels[chosen]
        present = np.argsort(labels < 0, axis=1, kind="stable")[:, :size]
        if size < labels.shape[1]:
            rows, labels = np.take_along_axis(rows, present, axis=1), np.take_along_axis(labels, present, axis=1)
        support, support_labels = drawn.support[chosen], drawn.support_labels[chosen]
        tasks = _Alike(np.concatenate([support, rows], axis=1), support_labels, labels, drawn.classes.shape[1])
        found = None if kept is None else np.zeros((*labels.shape, tasks.ways), np.float16)
        right[:, chosen], spent = _count_right(embedded, tasks, block, found)
        seconds += spent
        if kept is not None:
            kept[chosen[:, None], present] = found
    return right, asked, seconds


class _Alike(NamedTuple):
    """Tasks of equal shape."""

    rows: NDArray[np.int64]  # (B, N)
    support_labels: NDArray[np.int64]  # (B, S)
    labels: NDArray[np.int64]  # (B, Q)
    ways: int


def _count_right(
    embedded: Sequence[Embedded], tasks: _Alike, block: BlockSize, kept: NDArray[np.float16] | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Solve tasks block by block; a block that does not fit into memory is tried again in halves."""
    device = embedded[0].spaces[0].device
    rows, support_labels, labels = (torch.from_numpy(array).to(device, non_blocking=True) for array in tasks[:3])
    counts = torch.zeros(len(embedded), len(rows), dtype=torch.int64, device=device)
    seconds = np.zeros(len(embedded) + 1)
    rooms: dict[int, Tensor] = {}
    done = 0
    while done < len(rows):
        part = slice(done, done + block.tasks)
        shared = _Block(rows[part], support_labels[part], tasks.ways, rooms)
        spent = np.zeros_like(seconds)
        try:
            for number, (method, spaces) in enumerate(embedded):
                started, before = time.perf_counter(), sum(shared.seconds.values())
                seen = _Tasks(shared, spaces)
                # Methods on images compute gradients, for which tensors of inference mode cannot be used.
                with torch.inference_mode(spaces[0].dtype != PIXELS), torch.no_grad():
                    answers = _right_answers(method, seen, labels[part], kept if kept is None else kept[part])
                counts[number, part] = answers
                own = time.perf_counter() - started - (sum(shared.seconds.values()) - before)
                spent[[0, number + 1]] += own, own + sum(shared.seconds[key] for key in seen.used)
        except RuntimeError as error:
            if isinstance(error, NotImplementedError) and device.type != "cpu":
                lacking = str(error).partition("\n")[0]
                raise FsbenchError(
                    f"{method.info.title} cannot run on {device.type}: {lacking}", "Use --device cpu."
                ) from error
            if not out_of_memory(error):
                raise
            block.halve(len(rows[part]), error)
            torch.cuda.empty_cache()  # cuBLAS and cuSOLVER allocate beside what torch reserves
            continue
        spent[0] += sum(shared.seconds.values())
        seconds += spent
        done += len(rows[part])
    found = counts.cpu().numpy()
    if (found < 0).any():
        title = embedded[int(np.flatnonzero((found < 0).any(axis=1))[0])].method.info.title
        raise FsbenchError(
            f"{title} gave NaN or infinity in place of probabilities.",
            "Check its parameters and the features. In a method of your own: roots and logarithms of negative numbers, "
            "which rows have after `embed` centres them, and divisions by zero.",
        )
    return found, seconds


def _right_answers(method: Method, tasks: TaskBatch, labels: Tensor, kept: NDArray[np.float16] | None) -> Tensor:
    """(B,) right answers; -1 where probabilities are not finite."""
    probabilities = method.classify(tasks)  # (B, Q, K)
    predicted = probabilities.mT.max(dim=1).indices  # (B, Q), as argmax, which is slow along this axis
    right = (predicted == labels).sum(dim=1)
    if kept is not None:
        kept[:] = in_half_precision(probabilities.cpu().numpy(), predicted.cpu().numpy())
    return torch.where(probabilities.sum(dim=(1, 2)).isfinite(), right, -1)
