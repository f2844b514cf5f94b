"""Processes of unequal memory and threads solve every task once."""

from __future__ import annotations

import contextlib
import threading
import time
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
from tests.properties.test_methods import CONFIGURATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tests.synthetic import Features

TASKS = 90


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


@dataclass(frozen=True)
class Machine:
    """What a process has: bytes of free memory, threads, and seconds that each chunk takes longer."""

    memory: int
    threads: int = 1
    delay: float = 0.0


TWO = (Machine(1_250_000), Machine(1_050_000))  # nearly the same, and still blocks of 6 and of 5 tasks
THREE = (Machine(16 << 20), Machine(650_000, threads=3, delay=0.02), Machine(1, threads=2))  # 80 or more, 3, and 1
CASES = [
    *(pytest.param(name, params, THREE, id=f"{name} {params}") for name, params in CONFIGURATIONS),
    pytest.param("bavardage", {}, TWO, id="two"),
]


@pytest.mark.parametrize(("name", "params", "machines"), CASES)
def test_unequal_processes_give_what_one_gives(
    name: str,
    params: dict[str, Any],
    machines: tuple[Machine, ...],
    features: Features,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    statistics = features.statistics
    method = method_class(name).configure(Context(balanced=False, base=statistics), **params)
    tasks = TaskList(TaskProtocol(queries=20), 3, TASKS)
    expected = solve_tasks(method, features.novel, statistics, tasks, device=CPU)
    here, solved, blocks = threading.local(), [], []
    sample, at_once = sample_tasks, engine.tasks_at_once

    @contextlib.contextmanager
    def threads(device: object) -> Iterator[tuple[ThreadPoolExecutor, int]]:
        machine = machines[here.number]
        with ThreadPoolExecutor(machine.threads, initializer=setattr, initargs=(here, "number", here.number)) as pool:
            yield pool, machine.threads

    def counted(*arguments: Any) -> Any:
        solved.extend(arguments[-1].tolist())
        time.sleep(machines[here.number].delay)
        return sample(*arguments)

    def planned(*arguments: Any) -> int:
        blocks.append(at_once(*arguments))
        return blocks[-1]

    def process(ranks: Played) -> NDArray[np.int64]:
        here.number = ranks.number
        return solve_tasks(method, features.novel, statistics, tasks, device=CPU, ranks=ranks).correct

    monkeypatch.setattr(engine, "_pool", threads)
    monkeypatch.setattr(engine, "_free_memory", lambda device: machines[here.number].memory)
    monkeypatch.setattr(engine, "sample_tasks", counted)
    monkeypatch.setattr(engine, "tasks_at_once", planned)
    with ThreadPoolExecutor(len(machines)) as pool:
        for correct in pool.map(process, played(len(machines))):
            np.testing.assert_array_equal(correct, expected.correct)
    assert sorted(solved) == list(range(TASKS))
    assert len(set(blocks)) == len(machines)  # every process planned with blocks of its own


@pytest.mark.parametrize(("tasks", "workers", "block"), [(10_000, 16, 2048), (10_000, 2, 64), (300, 2, 64), (5, 8, 64)])
def test_there_is_work_for_every_worker(tasks: int, workers: int, block: int) -> None:
    chunks = list(engine._chunks(tasks, workers, block))
    assert [number for chunk in chunks for number in chunk] == list(range(tasks))
    assert len(chunks) >= min(tasks, 3 * workers)
