"""Processes of unequal memory and threads solve every task once."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from fsbench.evaluation import engine
from fsbench.evaluation.engine import TaskList, solve_tasks
from fsbench.methods.base import Context
from fsbench.methods.registry import method_class
from fsbench.ranks import Ranks
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.comparing import CPU

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tests.synthetic import Features

TASKS = 230


@dataclass
class Meeting:
    """Where processes, played by threads, put what they say."""

    barrier: threading.Barrier
    said: dict[int, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Played(Ranks):
    """One of several processes, played by a thread."""

    meeting: Meeting = field(default_factory=lambda: Meeting(threading.Barrier(1)))

    def gather(self, value: Any) -> list[Any]:
        self.meeting.said[self.number] = value
        self.meeting.barrier.wait(30)
        everybody = [self.meeting.said[number] for number in range(self.count)]
        self.meeting.barrier.wait(30)
        return everybody

    def sum(self, array: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.sum(self.gather(array.copy()), axis=0)


def played(count: int) -> list[Played]:
    store, meeting = HashStore(), Meeting(threading.Barrier(count))
    return [Played(number, count, store, meeting=meeting) for number in range(count)]


@pytest.mark.parametrize("name", ["ncm", "soft-kmeans", "bavardage", "pt-map", "tim-adm"])
@pytest.mark.parametrize(("blocks", "workers"), [((50, 45), (1, 1)), ((64, 7, 1), (1, 3, 2))])
def test_unequal_processes_give_what_one_gives(
    name: str, blocks: tuple[int, ...], workers: tuple[int, ...], features: Features, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = method_class(name).configure(Context(balanced=False, base=features.statistics))
    tasks = TaskList(TaskProtocol(queries=20), 3, TASKS)
    expected = solve_tasks(method, features.novel, features.statistics, tasks, device=CPU)
    here, solved = threading.local(), []
    real = sample_tasks

    @contextlib.contextmanager
    def threads(device: object) -> Iterator[tuple[ThreadPoolExecutor, int]]:
        with ThreadPoolExecutor(workers[here.number]) as pool:
            yield pool, workers[here.number]

    def counted(*arguments: Any) -> Any:
        solved.extend(arguments[-1].tolist())
        return real(*arguments)

    def process(ranks: Played) -> NDArray[np.int64]:
        here.number = ranks.number
        batch = blocks[ranks.number]
        outcome = solve_tasks(method, features.novel, features.statistics, tasks, device=CPU, batch=batch, ranks=ranks)
        return outcome.correct

    monkeypatch.setattr(engine, "_pool", threads)
    monkeypatch.setattr(engine, "sample_tasks", counted)
    with ThreadPoolExecutor(len(blocks)) as pool:
        for correct in pool.map(process, played(len(blocks))):
            np.testing.assert_array_equal(correct, expected.correct)
    assert sorted(solved) == list(range(TASKS))


@pytest.mark.parametrize(("tasks", "workers", "block"), [(10_000, 16, 2048), (10_000, 2, 64), (300, 2, 64), (5, 8, 64)])
def test_there_is_work_for_every_worker(tasks: int, workers: int, block: int) -> None:
    chunks = list(engine._chunks(tasks, workers, block))
    assert [number for chunk in chunks for number in chunk] == list(range(tasks))
    assert len(chunks) >= min(tasks, 3 * workers)
