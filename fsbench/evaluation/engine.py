"""Rows in, predictions out: methods over many tasks, in blocks that fit into memory.

A task's answers depend on the task alone, so blocks can have any size and be solved in any order, by any process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from fsbench.devices import (
    float32_products,
    free_memory,
    moved,
    out_of_memory,
    peak_memory,
    reset_peak_memory,
    seconds_between,
    solves_in_threads,
    time_mark,
)  # fmt: skip
from fsbench.errors import FsbenchError
from fsbench.features.preprocess import unit_norm
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import Split
from fsbench.methods.base import Method
from fsbench.methods.pool import POOL, Statistics, check_pool, on_pool
from fsbench.ranks import ALONE, Ranks
from fsbench.results.record import Answers
from fsbench.tasks.batch import TaskBatch, by_name, gathered_gram
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import TaskRows, feasible_sizes, largest, sample_tasks

_EMBEDDED_AT_ONCE = 1024  # rows that stay in the cache of a CPU
_EMBEDDING_SHARE = 64  # of free memory on a GPU: what features may take that are embedded at once, beside many copies
_MOST_PER_BLOCK_CPU = 64  # tasks per block on a CPU: enough for small operations to cost little
_FEW = 8  # tasks: fewer take hardly less time
_MOST_PER_BLOCK_GPU = 2048  # tasks per block on a GPU
_MOST_DRAWING = 4  # threads that draw while a GPU solves, two at least; docs/speed.md has the budget
_MOST_DRAWN = 512  # tasks that are drawn at once
_DRAWING_BYTES = 256 << 20  # that drawing may take
_OFF_BY_ROUNDING = 1e-3  # of sums of probabilities, on any device


@dataclass(frozen=True)
class TaskList:
    """Tasks of a protocol and a random seed, by their numbers."""

    protocol: TaskProtocol
    seed: int
    numbers: NDArray[np.int64]


class MethodError(FsbenchError):
    """A method that fails on its tasks; `number` is its place in the list."""

    def __init__(self, number: int, error: FsbenchError) -> None:
        super().__init__(error.message, error.hint)
        self.number = number


@contextmanager
def _naming(number: int) -> Iterator[None]:
    """Turn an error within the block into one of the method with that number."""
    try:
        yield
    except FsbenchError as error:
        raise MethodError(number, error) from error


@dataclass(frozen=True)
class Outcome:
    """What came out of one method over a list of tasks, and what it took."""

    answers: Answers  # to all queries, in the order of the list
    seconds: float  # wall time from drawing the tasks to the answers, as if the method had been alone
    peak_memory: int  # bytes: of the process on the CPU, of the allocator on a GPU
    redrawn: float  # share of the drawn class proportions that were refused for lack of images


class Embedded(NamedTuple):
    """A method with its embedding of a split: a table (M, E) for each of its spaces."""

    method: Method
    spaces: Mapping[str, Tensor]
    pooled: bool = False  # whether these are raw features, which each task embeds with the statistics of its own pool


def solve(
    methods: Sequence[Method],
    split: Split,
    base: Statistics,
    tasks: TaskList,
    *,
    device: torch.device,
    batch: int | None = None,
    ranks: Ranks = ALONE,
    progress: Callable[..., None] = lambda *told: None,
) -> list[Outcome]:
    """Draw the tasks once and solve them by every method; what several methods need of a task is computed once.

    Embedding all images is not counted in the seconds, or few tasks would look slow. Progress is told as tasks that are
    done; before the first, with a note if a task needs more than half of the free memory.
    """
    offsets, numbers, protocol = split.offsets, tasks.numbers, tasks.protocol
    sizes = feasible_sizes(protocol, offsets)
    ways, support, most_queries = task = largest(protocol, sizes)
    if base == POOL:
        check_pool(support + most_queries)
    reset_peak_memory(device)
    with torch.no_grad(), float32_products():
        embedded = embed_all(methods, split, base, device)
        text = None if split.text is None else unit_norm(torch.from_numpy(split.text).to(device))  # (C, D)
    work = _plan(embedded, task, int(sizes.max()), len(numbers), device, batch, ranks)
    if work.note:
        progress(0, work.note)
    labels, queries = np.min_scalar_type(-ways), (len(numbers), most_queries)
    answers = _Sheets(
        np.zeros((len(methods), *queries), labels),
        np.zeros((len(methods), *queries), np.float16),
        np.zeros((len(methods), len(numbers), most_queries if protocol.unknown else 0), np.float32),
        np.zeros(queries, labels),
        np.zeros((len(numbers), ways), np.min_scalar_type(-len(sizes))),
        np.zeros(len(numbers), np.int64),
    )
    busy = np.zeros(len(methods) + 1)  # seconds: of all together, and of each method if it were alone
    adding = threading.Lock()

    def draw(chunk: range) -> tuple[range, TaskRows, float]:
        started = time.perf_counter()
        rows = sample_tasks(protocol, offsets, tasks.seed, numbers[chunk.start : chunk.stop])
        return chunk, rows, time.perf_counter() - started

    def answer(chunk: range, rows: TaskRows, drawing: float) -> int:
        seconds = _solve_chunk(embedded, text, rows, work, answers, slice(chunk.start, chunk.stop))
        with adding:
            busy[:] += drawing + seconds
        return len(chunk)

    started = time.perf_counter()
    starts = range(ranks.number * work.chunk, len(numbers), ranks.count * work.chunk)  # every R-th chunk
    chunks = [range(start, min(start + work.chunk, len(numbers))) for start in starts]
    stage = (lambda chunk: answer(*draw(chunk))) if work.in_threads else draw
    with float32_products(), closing(_in_threads(work, stage, chunks)) as results:
        for result in results:
            done = result if work.in_threads else answer(*result)
            progress(done * ranks.count)  # as if every process had done as much as this one
    elapsed = time.perf_counter() - started
    if ranks.count > 1:
        answers = _gathered(answers, ranks)
    everything, *alone = busy
    shares = [own / everything if everything else 1.0 for own in alone]
    peak = peak_memory(device)
    seconds = [max(float(elapsed * share), 1e-9) for share in shares]
    redrawn = float(answers.redraws.sum() / (answers.redraws.sum() + len(numbers)))
    pages = zip(answers.predicted, answers.confidence, answers.outlier, strict=True)
    sheets = [Answers(predicted, answers.labels, sure, answers.classes, strange) for predicted, sure, strange in pages]
    return [Outcome(own, spent, peak, redrawn) for own, spent in zip(sheets, seconds, strict=True)]


def embed_all(methods: Sequence[Method], split: Split, base: Statistics, device: torch.device) -> list[Embedded]:
    """The embeddings of several methods; equal tables are held once."""
    features = torch.from_numpy(split.features)
    # Pixels are mapped from a file. Features go over in one copy for all methods.
    features = moved(features, device) if features.is_floating_point() else features.to(device)
    tables: list[Tensor] = []
    embedded = []
    for number, method in enumerate(methods):
        spaces, pooled = {}, base == POOL and method.info.needs_base_for(method.params())
        known = base if isinstance(base, BaseStatistics) else None
        with _naming(number):
            raw = pooled or not features.is_floating_point()
            own_tables = {"rows": features} if raw else _embed(method, features, known)
        for name, table in own_tables.items():
            # Most that differ do so in their first row.
            same = (one for one in tables if torch.equal(one[:1], table[:1]) and torch.equal(one, table))
            spaces[name] = next(same, table)
            if spaces[name] is table:
                tables.append(table)
        embedded.append(Embedded(method, spaces, pooled))
    return embedded


def _embed(method: Method, features: Tensor, base: BaseStatistics | None) -> dict[str, Tensor]:
    """The method's row-wise embedding of all features of a split, on their device: a table (M, E) for every space."""
    tables: dict[str, Tensor] = {}
    done, at_once = 0, _EMBEDDED_AT_ONCE
    if not solves_in_threads(features.device):  # a GPU, which needs the sphering for each part anew: as memory allows
        row = features.shape[1] * features.element_size()
        at_once = max(at_once, (free_memory(features.device) or 0) // (_EMBEDDING_SHARE * row))
    for part in features.split(at_once):
        for name, rows in by_name(method.embed(part, base)).items():
            if not done:
                tables[name] = rows.new_empty(len(features), rows.shape[1])
            tables[name][done : done + len(rows)] = rows
        done += len(part)
    return tables


@dataclass
class _Work:
    """How the tasks are divided."""

    block: int  # tasks that are solved at once; halved when memory runs out
    chunk: int  # tasks that are drawn at once, a multiple of the block where there are enough
    threads: int  # that work on chunks
    in_threads: bool  # whether these solve what they draw, as on the CPU; on a GPU they only draw
    cores: int  # of the CPU, for each thread
    note: str = ""  # about the memory that a task takes, if it is much

    def halve(self, tried: int, error: Exception) -> None:
        """Make blocks smaller than the one that failed, or give up at a single task."""
        if tried <= 1:
            raise FsbenchError("Not even a single task fits into memory.", "Use fewer --queries or --ways.") from error
        self.block = min(self.block, tried // 2)


def _plan(
    embedded: Sequence[Embedded], task: tuple[int, int, int], largest_class: int, tasks: int, device: torch.device,
    batch: int | None, ranks: Ranks,
) -> _Work:  # fmt: skip
    """Sizes from the classes, support images and queries of a task, its features, and the memory that is free."""
    ways, samples = task[0], task[1] + task[2]
    cores = torch.get_num_threads()
    in_threads = solves_in_threads(device)
    free = free_memory(device)
    one = task_bytes(embedded, samples, ways)
    for number, each in enumerate(embedded):
        own = max(each.method.memory_per_task(samples), task_bytes([each], samples, ways))
        one = max(one, own)
        if free is not None and own > free:
            with _naming(number):
                message = f"{each.method.info.title} takes {_memory(own, samples, free)}"
                raise FsbenchError(message, "Use fewer --queries, --shots or --ways.")
    note = f"Solving takes {_memory(one, samples, free)}" if free is not None and 2 * one > free else ""
    by_network = any(each.method.info.cost == "network" for each in embedded)
    most = 1 if by_network else _MOST_PER_BLOCK_CPU if in_threads else _MOST_PER_BLOCK_GPU
    fitting = most * cores if free is None else free // (2 * one)  # half is left to others
    threads = max(1, min(cores, fitting, tasks)) if in_threads else max(2, min(cores, _MOST_DRAWING))
    block = batch or max(1, min(most, fitting // threads if in_threads else fitting))
    drawing = 4 * ways * largest_class + 64 * samples
    drawn = max(1, min(_MOST_DRAWN, _DRAWING_BYTES // (threads * drawing)))
    chunk = max(block, drawn // block * block) if in_threads or block < drawn else block
    if in_threads:  # up to four per thread, so that none waits long for the others, but not of a few tasks
        rounds = max(1, min(4, tasks // (_FEW * threads * ranks.count)))
        chunk = max(1, min(chunk, -(-tasks // (rounds * threads * ranks.count))))
        chunk = chunk // block * block or chunk
    chunk = ranks.agree(lambda: chunk)
    return _Work(block, chunk, threads, in_threads, max(1, cores // threads), note)


def _memory(task: int, samples: int, free: int) -> str:
    return f"about {task / 1e9:,.1f} GB of memory for a task of {samples:,} images, and {free / 1e9:,.1f} GB are free."


def task_bytes(embedded: Sequence[Embedded], samples: int, ways: int) -> int:
    """Bytes that one task takes: its rows in all spaces, inner products, and what is derived from them."""
    tables = {id(table): table for one in embedded for table in one.spaces.values()}.values()
    rows = sum(table.element_size() * table.shape[1] for table in tables) * samples
    square = 64 * samples**2 if any(samples <= table.shape[1] for table in tables) else 0  # some in double
    return rows + square + 48 * ways * samples


class _Sheets(NamedTuple):
    """The answers of all methods to all tasks; every task is filled in by one process."""

    predicted: NDArray[Any]  # (methods, T, Q)
    confidence: NDArray[np.float16]  # (methods, T, Q)
    outlier: NDArray[np.float32]  # (methods, T, Q), or without queries where no class is unknown
    labels: NDArray[Any]  # (T, Q)
    classes: NDArray[Any]  # (T, K)
    redraws: NDArray[np.int64]  # (T,)


def _gathered(sheets: _Sheets, ranks: Ranks) -> _Sheets:
    """Add what other processes filled in; floats by their bits."""

    def summed(sheet: NDArray[Any]) -> NDArray[Any]:
        bits = sheet.view(f"i{sheet.itemsize}") if sheet.dtype.kind == "f" else sheet
        return ranks.sum(bits.astype(np.int64)).astype(bits.dtype).view(sheet.dtype)

    return _Sheets(*map(summed, sheets))


def _solve_chunk(
    embedded: Sequence[Embedded], text: Tensor | None, drawn: TaskRows, work: _Work, sheets: _Sheets, part: slice
) -> NDArray[np.float64]:
    """Fill in the answers to drawn tasks; returns seconds: of all methods together, and of each alone.

    Tasks of another size are solved apart, so that shapes agree.
    """
    sheets.labels[part], sheets.classes[part], sheets.redraws[part] = drawn.query_labels, drawn.classes, drawn.redraws
    shapes = np.stack([drawn.ways, (drawn.support >= 0).sum(axis=1), (drawn.query >= 0).sum(axis=1)], axis=1)
    seconds = np.zeros(len(embedded) + 1)
    filled: list[tuple[NDArray[Any], float]] = [(sheets.predicted, -1), (sheets.confidence, np.nan)]
    filled += [(sheets.outlier, np.nan)] if sheets.outlier.size else []
    for sheet, absent in filled:
        sheet[:, part] = absent
    for ways, support, queries in np.unique(shapes, axis=0):
        chosen = np.flatnonzero((shapes == (ways, support, queries)).all(axis=1))
        query, known = drawn.query[chosen], drawn.support[chosen, :support]
        present = np.argsort(query < 0, axis=1, kind="stable")[:, :queries]
        rows = np.concatenate([known, np.take_along_axis(query, present, axis=1)], axis=1)
        support_labels, classes = drawn.support_labels[chosen, :support], drawn.classes[chosen, :ways]
        of_classes = None if text is None else text[torch.from_numpy(classes).to(text.device, non_blocking=True)]
        solved, spent = _solve_alike(
            embedded, rows, support_labels, int(ways), of_classes, work, outliers=len(filled) == 3
        )
        seconds += spent
        for (sheet, _), answers in zip(filled, solved, strict=True):
            sheet[:, part][:, chosen[:, None], present] = answers
    return seconds


def _solve_alike(
    embedded: Sequence[Embedded], index: NDArray[np.int64], support_labels: NDArray[np.int64], ways: int,
    text: Tensor | None, work: _Work, *, outliers: bool,
) -> tuple[list[NDArray[Any]], NDArray[np.float64]]:  # fmt: skip
    """Predictions, confidences and, if asked for, outlier scores (methods, B, Q) of tasks of equal shape; and seconds.

    Tasks are solved block by block; a block that does not fit into memory is tried again in halves.
    """
    device = next(iter(embedded[0].spaces.values())).device
    rows, labels = (moved(torch.from_numpy(array), device) for array in (index, support_labels))
    shape = len(embedded), len(rows), rows.shape[1] - labels.shape[1]
    predicted = torch.zeros(shape, dtype=torch.int32, device=device)
    confidence = torch.zeros(shape, dtype=torch.float16, device=device)
    outlier = torch.zeros(shape if outliers else (0,), device=device)
    laps: list[tuple[int, bool, Any, Any]] = []  # method, whether the time passed there, and the marks around it
    buffers: dict[int, Tensor] = {}
    done = 0
    while done < len(rows):
        part = slice(done, done + work.block)
        block = _Block(rows[part], labels[part].clone(), None if text is None else text[part].clone(), buffers, {})
        timed = []
        try:
            for number, (method, spaces, pooled) in enumerate(embedded):
                tasks = _BlockTasks(block, spaces, ways)
                start = time_mark(device)
                with _naming(number), torch.no_grad():  # not inference_mode, in which no method could differentiate
                    solved = on_pool(method, tasks) if pooled else tasks
                    probabilities = method.classify(solved)  # (B, Q, K)
                    best = probabilities.mT.max(dim=1)  # as argmax, which is slow along the last axis
                    valid = _are_probabilities(probabilities, method, (*predicted[number, part].shape, ways))
                    predicted[number, part] = torch.where(valid, best.indices, -1).int()
                    sure = best.values if method.calibration == 1 else method.calibrated(probabilities).amax(dim=2)
                    confidence[number, part] = sure.half()
                    if outliers:
                        outlier[number, part] = method.outlier_scores(solved, probabilities).float()
                    block.refuse_changes(method)
                timed += [(number, True, start, time_mark(device)), *((number, False, *lap) for lap in tasks.reused)]
        except RuntimeError as error:
            if isinstance(error, NotImplementedError) and device != torch.device("cpu"):
                message = f"{method.info.title} cannot run on {device}: {error}".partition("\n")[0]
                raise FsbenchError(message, "Use --device cpu.") from error
            if not out_of_memory(error):
                raise
            work.halve(len(rows[part]), error)
            torch.cuda.empty_cache()  # cuBLAS and cuSOLVER allocate beside what torch reserves
            continue
        laps += timed
        done += len(rows[part])
    answers, *others = (part.cpu().numpy() for part in (predicted, confidence, *([outlier] if outliers else [])))
    if (answers < 0).any():
        number = int(np.argwhere(answers < 0)[0, 0])
        with _naming(number):
            raise FsbenchError(
                f"The probabilities of {embedded[number].method.info.title} are NaN, negative, or do not add up to 1.",
                "Check its parameters and the features; a method of your own with fsbench.testing.check_method.",
            )
    seconds = np.zeros(len(embedded) + 1)
    for number, here, *marks in laps:
        lap = seconds_between(*marks)
        seconds[number + 1] += lap
        seconds[0] += lap if here else 0.0
    return [answers, *others], seconds


def _are_probabilities(values: Tensor, method: Method, expected: tuple[int, ...]) -> Tensor:
    """(B, Q) whether those of a query add up to 1 and none of its task is negative; NaN does neither."""
    if values.shape != expected:
        message = f"{method.info.title} gave a tensor {tuple(values.shape)}, not (B, Q, K) = {expected}."
        raise FsbenchError(message, "Check the method with fsbench.testing.check_method.")
    return ((values.sum(dim=2) - 1).abs() < _OFF_BY_ROUNDING) & (values.amin(dim=(1, 2)) >= 0)[:, None]


@dataclass(frozen=True)
class _Block:
    """Tasks that are solved at once, and what methods have asked for: it is made once for all of them."""

    index: Tensor  # (B, N) rows of the split
    support_labels: Tensor  # (B, S)
    text: Tensor | None  # (B, K, D)
    buffers: dict[int, Tensor]  # of rows, reused: allocating is slow
    made: dict[tuple[str, int], tuple[Tensor, int, Any]]  # tensor, its version, and marks around the making

    def refuse_changes(self, method: Method) -> None:
        """Refuse a method that has written into what others see."""
        untouched = (self.support_labels._version, self.text is not None and self.text._version)
        if any(untouched) or any(tensor._version != version for tensor, version, _ in self.made.values()):
            raise FsbenchError(
                f"{method.info.title} writes into the rows or labels of its tasks, which other methods see too.",
                "Work on a copy: rows = tasks.rows.clone().",
            )


class _BlockTasks(TaskBatch):
    """The tasks of a block as one method sees them: rows (B, N, E) and inner products of tables (M, E)."""

    def __init__(self, block: _Block, spaces: Mapping[str, Tensor], ways: int) -> None:
        super().__init__(spaces, block.support_labels, ways, block.text)
        self.block, self.shape = block, (*block.index.shape, self.shape[1])
        self.reused: list[Any] = []  # marks around the making of what other methods asked for before

    def space(self, name: str = "") -> Tensor:
        return self._get("rows", name)

    def gram(self, name: str = "") -> Tensor:
        return self._get("gram", name)

    def _get(self, what: Literal["rows", "gram"], name: str) -> Tensor:
        table = self.spaces[name or next(iter(self.spaces))]
        index, key = self.block.index, (what, id(table))
        if key in self.block.made:
            tensor, _, lap = self.block.made[key]
            self.reused += [] if lap in self.reused else [lap]
            return tensor
        start = time_mark(table.device)
        if what == "gram":
            tensor = gathered_gram(table, index)
        else:
            buffer = self.block.buffers.get(id(table))
            if buffer is None or len(buffer) != index.numel():
                buffer = self.block.buffers[id(table)] = table.new_empty(index.numel(), table.shape[1])
            tensor = torch.index_select(table, 0, index.reshape(-1), out=buffer).view(*index.shape, -1)
        self.block.made[key] = tensor, tensor._version, (start, time_mark(table.device))
        return tensor


def _in_threads(work: _Work, stage: Callable[[range], Any], chunks: Sequence[range]) -> Generator[Any]:
    """What a function gives for every chunk, as it is done; as many chunks are under way as there are threads.

    Nobody waits for the threads after an error or Ctrl-C.
    """
    threads, left = torch.get_num_threads(), iter(chunks)
    pool = ThreadPoolExecutor(work.threads, initializer=lambda: torch.set_num_threads(work.cores))
    try:
        with threadpool_limits(work.cores if work.in_threads else None, "blas"):  # of NumPy
            running = {pool.submit(stage, chunk) for chunk in islice(left, work.threads)}
            while running:
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                running |= {pool.submit(stage, chunk) for chunk in islice(left, len(finished))}
                for future in finished:
                    yield future.result()
        pool.shutdown()  # before the number of threads is restored: a thread that starts late would set it again
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    finally:
        torch.set_num_threads(threads)
