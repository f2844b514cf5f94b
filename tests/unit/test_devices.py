"""Memory that runs out, TF32, and the cores that belong to a process."""

import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from fsbench.devices import cpu_share, float32_products, free_memory, out_of_memory, seconds_between, time_mark
from fsbench.errors import FsbenchError
from fsbench.features.extract import refuse_tf32


@pytest.mark.parametrize(
    ("message", "no_memory"),
    [
        ("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried to", True),
        ("cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`", True),
        ("MPS backend out of memory (MPS allocated: 8.0 GB, max allowed: 9.0 GB).", True),
        ("CUDA error: an illegal memory access", False),
    ],
)
def test_every_librarys_words_for_no_memory_are_known(message: str, no_memory: bool) -> None:
    assert out_of_memory(RuntimeError(message)) is no_memory


def test_tf32_is_off_unless_named_and_what_was_set_comes_back() -> None:
    places: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [place.allow_tf32 for place in places]
    with float32_products():
        assert [place.allow_tf32 for place in places] == [False, False]
        with float32_products(tf32=True):
            assert [place.allow_tf32 for place in places] == [True, True]
        assert [place.allow_tf32 for place in places] == [False, False]
    assert [place.allow_tf32 for place in places] == before
    with pytest.raises(FsbenchError, match="NVIDIA GPUs"):
        refuse_tf32("tf32", torch.device("cpu"))


def test_time_on_a_gpu_is_that_of_its_stream_not_of_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    class Event:
        """Passes in the stream half a second after the one before."""

        recorded: ClassVar[list[object]] = []

        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.recorded.append(self)

        def elapsed_time(self, end: object) -> float:
            return 500.0 * (self.recorded.index(end) - self.recorded.index(self))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    marks = [time_mark(torch.device("cuda")) for _ in range(3)]
    assert seconds_between(marks[0], marks[2]) == 1.0
    assert 0 <= seconds_between(time_mark(torch.device("cpu")), time_mark(torch.device("cpu"))) < 0.5


@pytest.mark.parametrize(
    ("quota", "processes", "cores"), [(None, 1, 12), (None, 4, 3), ("250000 100000\n", 1, 2), ("nonsense", 1, 12)]
)
def test_cores_are_those_of_the_affinity_and_the_container_shared_by_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str | None, processes: int, cores: int
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(12)), raising=False)
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota)
    assert cpu_share(tmp_path) == cores


def test_free_memory_is_what_container_and_processes_leave(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    system = tmp_path / "meminfo"
    assert free_memory(torch.device("cpu"), system, tmp_path) is None
    system.write_text("MemTotal:  9000 kB\nMemAvailable:  8000 kB\n")
    assert free_memory(torch.device("cpu"), system, tmp_path) == 8_192_000
    (tmp_path / "memory.current").write_text("6000000\n")
    (tmp_path / "memory.stat").write_text("anon 5000000\ninactive_file 500000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(torch.device("cpu"), system, tmp_path) == 8_192_000
    (tmp_path / "memory.max").write_text("7000000\n")
    assert free_memory(torch.device("cpu"), system, tmp_path) == 1_500_000
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert free_memory(torch.device("cpu"), system, tmp_path) == 500_000
