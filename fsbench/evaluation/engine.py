"""A method over many tasks: blocks, threads, back-off when memory runs out.

A task's result depends on the task alone, so blocks can have any size and be solved in any order.
"""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from fsbench.devices import available_memory, float32_products, out_of_memory, peak_memory
from fsbench.errors import FsbenchError
from fsbench.methods.base import Demanding
from fsbench.ranks import ALONE
from fsbench.results.predictions import in_half_precision
from fsbench.tasks.batch import TaskBatch
from fsbench.tasks.sampling import TaskRows, check_feasible, pool_sizes, sample_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from fsbench.features.scatter import BaseStatistics
    from fsbench.features.store import Split
    from fsbench.methods.base import Method
    from fsbench.ranks import Ranks
    from fsbench.tasks.protocol import TaskProtocol

PIXELS = torch.uint8  # dtype of the rows of methods on images; features are floating point
_SAMPLED_AT_ONCE = 512
_FIRST_TASKS = 8  # of a growing chunk
_BLOCK_ON_CPU = 64  # tasks whose features and Gram matrices stay in the cache
_BLOCK_AT_MOST = 2048
_EMBEDDED_AT_ONCE = 8192


@dataclass(frozen=True)
class Outcome:
    """What came out, per task in the order of the list, and what it took.

    Attributes:
        correct: (T,) right answers.
        queries: (T,) queries.
        seconds: Wall time from raw features to counts.
        peak_memory: Bytes: of the process on the CPU, of the allocator on a GPU.
        probabilities: (T, Q, K) class probabilities of the queries, if asked for; zeros where there is no query.
    """

    correct: NDArray[np.int64]
    queries: NDArray[np.int64]
    seconds: float
    peak_memory: int
    probabilities: NDArray[np.float16] | None = None


@dataclass
class BlockSize:
    """Tasks per block; halved for all threads when memory runs out."""

    tasks: int

    def halve(self, tried: int, error: Exception) -> None:
        """Make blocks smaller than the one that failed, or give up at a single task."""
        if tried <= 1:
            raise FsbenchError("Not even a single task fits into memory.", "Use fewer --queries or --ways.") from error
        self.tasks = min(self.tasks, tried // 2)


@dataclass(frozen=True)
class TaskList:
    """Tasks `first` to count − 1 of a protocol and a random seed, or those `chosen` of them.

    With a time budget (`seconds`), as many as fit into it; with `probabilities`, those of all queries are kept.
    """

    protocol: TaskProtocol
    seed: int
    count: int
    first: int = 0
    seconds: float | None = None
    chosen: NDArray[np.int64] | None = None
    probabilities: bool = False

    @property
    def numbers(self) -> NDArray[np.int64]:
        """(T,) the numbers of the tasks."""
        return np.arange(self.first, self.count) if self.chosen is None else self.chosen


def solve_tasks(
    method: Method,
    split: Split,
    base: BaseStatistics | None,
    tasks: TaskList,
    *,
    device: torch.device,
    batch: int | None = None,
    ranks: Ranks = ALONE,
    progress: Callable[[int], None] = lambda done: None,
) -> Outcome:
    """Draw the tasks, solve them, and count the right answers."""
    offsets = split.offsets
    protocol = tasks.protocol.within(len(offsets) - 1)
    check_feasible(protocol, pool_sizes(protocol, offsets))
    start = time.perf_counter()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    numbers = tasks.numbers
    correct, queries = np.zeros((2, len(numbers)), dtype=np.int64)
    kept = np.zeros((len(numbers), protocol.queries, protocol.ways), np.float16) if tasks.probabilities else None
    with torch.inference_mode(), float32_products():
        table = embed_split(method, split, base, device)
    samples = protocol.ways * protocol.shots + protocol.queries
    images = table.dtype == PIXELS
    block = BlockSize(batch or (1 if images else tasks_at_once(samples, table.shape[1], _free_memory(device))))
    fitting = tasks_that_fit(method, samples, device, ranks) if isinstance(method, Demanding) else None
    if fitting:
        block.tasks = min(block.tasks, fitting)

    def solve_chunk(chunk: range) -> range:
        rows = sample_tasks(protocol, offsets, tasks.seed, numbers[chunk.start : chunk.stop])
        part = None if kept is None else kept[chunk.start : chunk.stop]
        right, asked = solve_rows(method, table, rows, block, part)
        correct[chunk.start : chunk.stop], queries[chunk.start : chunk.stop] = right, asked
        return chunk

    report = ranks.counting(progress)
    with float32_products(), _pool(device) as (pool, threads):
        workers = min(threads, fitting // block.tasks) if fitting else threads
        # One list, agreed by all: processes differ in memory and threads, and so in what they would choose alone.
        together, smallest = sum(ranks.gather(workers)), min(ranks.gather(block.tasks))
        cost = method.info.cost_for(method.params())
        first = 1 if images else _FIRST_TASKS if tasks.seconds is not None or cost != "fast" else None
        at_once = smallest if cost == "network" else _SAMPLED_AT_ONCE
        chunks = ranks.hand_out(list(_chunks(len(correct), together, smallest, first, at_once)))
        if tasks.seconds is not None:
            chunks = _until(start + tasks.seconds, chunks)
        for chunk in _side_by_side(pool, workers, solve_chunk, chunks):
            report(len(chunk))
    correct, queries = ranks.sum(correct), ranks.sum(queries)
    solved = np.count_nonzero(queries)  # the first ones: chunks are handed out in order, and all are finished
    if kept is not None:  # by their bits: every task has zeros in all processes but one
        kept = ranks.sum(kept.view(np.int16).astype(np.int64)).astype(np.int16).view(np.float16)[:solved]
    return Outcome(correct[:solved], queries[:solved], time.perf_counter() - start, peak_memory(device), kept)


def tasks_at_once(samples: int, width: int, free: int | None) -> int:
    """Tasks per block: few that stay in the cache of a CPU, or as many as fit well into the memory of a GPU.

    Args:
        samples: N.
        width: E, length of an embedded row.
        free: Bytes free on a GPU; None on a CPU.
    """
    if free is None:
        return _BLOCK_ON_CPU
    one = 4 * samples * width + 64 * samples**2  # rows, Gram matrices, and what is derived from them, in double
    return max(1, min(_BLOCK_AT_MOST, free // (4 * one)))  # two blocks are under way, and half is left to others


def tasks_that_fit(method: Demanding, samples: int, device: torch.device, ranks: Ranks) -> int | None:
    """How many tasks of so many images fit into memory side by side, by the method's own estimate, in every process.

    None if nothing tells how much memory is free.

    Raises:
        FsbenchError: Not even one.
    """
    free = available_memory() if device.type == "cpu" else _free_memory(device)
    if free is None:
        return None
    free, one = min(ranks.gather(free)), max(1, method.memory_per_task(samples))
    if one > free:
        raise FsbenchError(
            f"{method.info.title} takes about {one / 1e9:,.1f} GB of memory for a task of {samples} images, and "
            f"{free / 1e9:,.1f} GB are free.",
            getattr(method, "memory_hint", "") or "Use fewer --queries, --shots or --ways.",
        )
    return free // one


def _free_memory(device: torch.device) -> int | None:
    """Bytes that a block may take on a GPU, those that torch holds in reserve included; None on a CPU."""
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        return 4 << 30
    reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + reserve


def embed_split(method: Method, split: Split, base: BaseStatistics | None, device: torch.device) -> Tensor:
    """The method's row-wise embedding of all features of a split, on the device, (M, E)."""
    features = torch.from_numpy(split.features)
    if features.dtype == PIXELS:  # mapped from a file, and not copied
        return features.to(device)
    pieces = (features[i : i + _EMBEDDED_AT_ONCE].to(device) for i in range(0, len(features), _EMBEDDED_AT_ONCE))
    first = method.embed(next(pieces), base)
    table = first.new_empty(len(features), first.shape[1])
    table[: len(first)] = first
    done = len(first)
    for piece in pieces:
        table[done : done + len(piece)] = method.embed(piece, base)
        done += len(piece)
    return table


def solve_rows(
    method: Method, table: Tensor, drawn: TaskRows, block: BlockSize, kept: NDArray[np.float16] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Right answers and number of queries of every task; shorter tasks are solved apart, so that shapes agree.

    `kept` (B, Q, K) takes the probabilities.
    """
    asked = (drawn.query_labels >= 0).sum(axis=1)
    right = np.zeros(len(asked), dtype=np.int64)
    for size in np.unique(asked):
        chosen = np.flatnonzero(asked == size)
        rows, labels = drawn.query[chosen], drawn.query_labels[chosen]
        present = np.argsort(labels < 0, axis=1, kind="stable")[:, :size]
        if size < labels.shape[1]:
            rows, labels = np.take_along_axis(rows, present, axis=1), np.take_along_axis(labels, present, axis=1)
        support, support_labels = drawn.support[chosen], drawn.support_labels[chosen]
        everything = np.concatenate([support, rows], axis=1)
        ways = drawn.classes.shape[1]
        found = None if kept is None else np.zeros((*labels.shape, ways), np.float16)
        right[chosen] = _count_right(method, table, everything, support_labels, labels, ways, block, found)
        if kept is not None:
            kept[chosen[:, None], present] = found
    return right, asked


def _count_right(
    method: Method,
    table: Tensor,
    rows: NDArray[np.int64],
    support_labels: NDArray[np.int64],
    labels: NDArray[np.int64],
    ways: int,
    block: BlockSize,
    kept: NDArray[np.float16] | None,
) -> NDArray[np.int64]:
    """Solve tasks block by block; a block that does not fit into memory is tried again in halves."""
    device = table.device
    rows_there, support_there, labels_there = (
        torch.from_numpy(array).to(device, non_blocking=True) for array in (rows, support_labels, labels)
    )
    counts = torch.zeros(len(rows), dtype=torch.int64, device=device)
    room = table.new_empty(0)  # for the features of a block; kept, as fresh memory is slow to touch
    done = 0
    while done < len(rows):
        part = slice(done, done + block.tasks)
        try:
            # Methods on images compute gradients, for which tensors of inference mode cannot be used.
            with torch.inference_mode(table.dtype != PIXELS), torch.no_grad():
                index = rows_there[part]
                if len(room) != index.numel():
                    room = table.new_empty(index.numel(), table.shape[1])
                features = torch.index_select(table, 0, index.reshape(-1), out=room).view(*index.shape, -1)  # (B, N, E)
                probabilities = method.classify(TaskBatch(features, support_there[part], ways))  # (B, Q, K)
                predicted = probabilities.mT.argmax(dim=1)  # (B, Q); fast, as most methods compute (B, K, Q)
                right = (predicted == labels_there[part]).sum(dim=1)
                if kept is not None:
                    kept[part] = in_half_precision(probabilities.cpu().numpy(), predicted.cpu().numpy())
                counts[part] = torch.where(probabilities.sum(dim=(1, 2)).isfinite(), right, -1)
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
        done += len(rows[part])
    found = counts.cpu().numpy()
    if (found < 0).any():
        raise FsbenchError(
            f"{method.info.title} gave NaN or infinity in place of probabilities.",
            "Check its parameters and the features. In a method of your own: roots and logarithms of negative numbers, "
            "which rows have after `embed` centres them, and divisions by zero.",
        )
    return found


@contextmanager
def _pool(device: torch.device) -> Iterator[tuple[ThreadPoolExecutor, int]]:
    """Threads for blocks, and their number; nobody waits for them after an error or Ctrl-C.

    On the CPU blocks run side by side, one thread each: small operations gain nothing from more. On a GPU there are
    two, so that tasks are drawn while others are solved.
    """
    threads = torch.get_num_threads()
    workers = threads if device.type == "cpu" else 2
    pool = ThreadPoolExecutor(workers, initializer=lambda: torch.set_num_threads(1))
    try:
        with threadpool_limits(1 if device.type == "cpu" else None, "blas"):  # of NumPy
            yield pool, workers
        pool.shutdown()  # before the number of threads is restored: a thread that starts late would set it to 1 again
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    finally:
        torch.set_num_threads(threads)


def _side_by_side(
    pool: ThreadPoolExecutor, workers: int, solve: Callable[[range], range], chunks: Iterator[range]
) -> Iterator[range]:
    """Chunks as they are solved. None is taken before a worker is free, as another process could solve it."""
    running: set[Future[range]] = {pool.submit(solve, chunk) for chunk in islice(chunks, workers)}
    while running:
        finished, running = wait(running, return_when=FIRST_COMPLETED)
        running |= {pool.submit(solve, chunk) for chunk in islice(chunks, len(finished))}
        for future in finished:
            yield future.result()


def _until(deadline: float, chunks: Iterator[range]) -> Iterator[range]:
    """Chunks until a time budget is spent, at least one. None is taken in vain, as no other process would solve it."""
    for chunk in chunks:
        yield chunk
        if time.perf_counter() > deadline:
            return


def _chunks(
    tasks: int, workers: int, block: int, first: int | None = None, at_once: int = _SAMPLED_AT_ONCE
) -> Iterator[range]:
    """Chunks that are drawn together: whole blocks where there are enough for all workers, else parts of one.

    There are at least four per worker while tasks last, so that none waits long for the others. Chunks that begin with
    a few tasks, `first`, and grow soon tell how fast a method is.
    """
    share = min(max(at_once, block), -(-tasks // (4 * workers)))
    size = share // block * block or share
    start = number = 0
    while start < tasks:
        stop = min(tasks, start + (min(size, first << number // workers) if first else size))
        yield range(start, stop)
        start, number = stop, number + 1
