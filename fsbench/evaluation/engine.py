"""Methods over many tasks: blocks, threads, back-off when memory runs out.

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

from fsbench.devices import available_memory, float32_products, peak_memory
from fsbench.errors import FsbenchError
from fsbench.evaluation.blocks import PIXELS, BlockSize, embed_together, solve_rows
from fsbench.methods.base import Demanding
from fsbench.ranks import ALONE
from fsbench.tasks.sampling import check_feasible, pool_sizes, sample_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from fsbench.features.scatter import BaseStatistics
    from fsbench.features.store import Split
    from fsbench.methods.base import Method
    from fsbench.ranks import Ranks
    from fsbench.tasks.protocol import TaskProtocol

_SAMPLED_AT_ONCE = 512
_FIRST_TASKS = 8  # of a growing chunk
_BLOCK_ON_CPU = 64  # tasks, enough for small operations to cost little
_BLOCK_AT_MOST = 2048


@dataclass(frozen=True)
class Outcome:
    """What came out, per task in the order of the list, and what it took.

    Attributes:
        correct: (T,) right answers.
        queries: (T,) queries.
        seconds: Wall time from drawing the tasks to the counts.
        peak_memory: Bytes: of the process on the CPU, of the allocator on a GPU.
        probabilities: (T, Q, K) class probabilities of the queries, if asked for; zeros where there is no query.
    """

    correct: NDArray[np.int64]
    queries: NDArray[np.int64]
    seconds: float
    peak_memory: int
    probabilities: NDArray[np.float16] | None = None


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
    (outcome,) = solve_together(
        [method], split, base, tasks, device=device, batch=batch, ranks=ranks, progress=progress
    )
    return outcome


def solve_together(
    methods: Sequence[Method],
    split: Split,
    base: BaseStatistics | None,
    tasks: TaskList,
    *,
    device: torch.device,
    batch: int | None = None,
    ranks: Ranks = ALONE,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Outcome]:
    """Draw the tasks once, and solve them by several methods that share what they need of the features.

    The seconds of a method are those that it would take alone for the tasks, as far as the clock can tell. What is done
    once for all tasks, the embedding, is not counted, or few tasks would look slow. Probabilities are kept for a single
    method only.
    """
    offsets = split.offsets
    protocol = tasks.protocol.within(len(offsets) - 1)
    check_feasible(protocol, pool_sizes(protocol, offsets))
    start = time.perf_counter()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    numbers = tasks.numbers
    correct, queries = np.zeros((len(methods), len(numbers)), dtype=np.int64), np.zeros(len(numbers), dtype=np.int64)
    busy = np.zeros((len(methods) + 1, len(numbers)))  # seconds of a chunk, at its first task: all, and by method
    kept = np.zeros((len(numbers), protocol.queries, protocol.ways), np.float16) if tasks.probabilities else None
    with torch.inference_mode(), float32_products():
        embedded = embed_together(methods, split, base, device)
    samples = protocol.ways * protocol.shots + protocol.queries
    width = sum(space.shape[1] for space in {id(space): space for _, spaces in embedded for space in spaces}.values())
    images = embedded[0].spaces[0].dtype == PIXELS
    block = BlockSize(batch or (1 if images else tasks_at_once(samples, width, _free_memory(device))))
    demanding = next((method for method in methods if isinstance(method, Demanding)), None)
    fitting = tasks_that_fit(demanding, samples, device, ranks) if demanding else None
    if fitting:
        block.tasks = min(block.tasks, fitting)

    def solve_chunk(chunk: range) -> range:
        started = time.perf_counter()
        rows = sample_tasks(protocol, offsets, tasks.seed, numbers[chunk.start : chunk.stop])
        drawing = time.perf_counter() - started
        part = None if kept is None else kept[chunk.start : chunk.stop]
        right, asked, solving = solve_rows(embedded, rows, block, part)
        correct[:, chunk.start : chunk.stop], queries[chunk.start : chunk.stop] = right, asked
        busy[:, chunk.start] = drawing + solving
        return chunk

    report = ranks.counting(progress)
    with float32_products(), _pool(device) as (pool, threads):
        workers = min(threads, fitting // block.tasks) if fitting else threads
        # One list, agreed by all: processes differ in memory and threads, and so in what they would choose alone.
        together, smallest = sum(ranks.gather(workers)), min(ranks.gather(block.tasks))
        costs = {method.info.cost for method in methods}
        first = 1 if images else _FIRST_TASKS if tasks.seconds is not None or costs != {"fast"} else None
        at_once = _SAMPLED_AT_ONCE if costs == {"fast"} else smallest
        chunks = ranks.hand_out(list(_chunks(len(numbers), together, smallest, first, at_once)))
        solving = time.perf_counter()
        if tasks.seconds is not None:
            chunks = _until(start + tasks.seconds, chunks)
        for chunk in _side_by_side(pool, workers, solve_chunk, chunks):
            report(len(chunk))
    correct, queries = ranks.sum(correct), ranks.sum(queries)
    solved = np.count_nonzero(queries)  # the first ones: chunks are handed out in order, and all are finished
    if kept is not None:  # by their bits: every task has zeros in all processes but one
        kept = ranks.sum(kept.view(np.int16).astype(np.int64)).astype(np.int16).view(np.float16)[:solved]
    everything, *alone = busy.sum(axis=1)
    elapsed = time.perf_counter() - solving
    return [
        Outcome(counts[:solved], queries[:solved], elapsed * share, peak_memory(device), kept)
        for counts, share in zip(correct, np.divide(alone, everything) if everything else alone, strict=True)
    ]


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
