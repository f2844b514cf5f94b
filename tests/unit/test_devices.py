"""Devices and processes: memory that runs out, TF32, the cores and GPUs of a process, and who speaks."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]

from fsbench import devices
from fsbench import ranks as module
from fsbench.devices import cpu_share, float32_products, free_memory, out_of_memory, seconds_between, time_mark
from fsbench.errors import FsbenchError
from fsbench.features.extract import refuse_tf32
from fsbench.ranks import first_to_report, join_ranks
from tests.comparing import CPU


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
        refuse_tf32("tf32", CPU)


def test_time_on_a_gpu_is_that_of_its_stream_not_of_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    event = mock.Mock(elapsed_time=lambda end: 500.0)  # milliseconds
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: event)
    mark = time_mark(torch.device("cuda"))
    assert (seconds_between(mark, mark), event.record.called) == (0.5, True)
    assert 0 <= seconds_between(time_mark(CPU), time_mark(CPU)) < 0.5


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
    assert free_memory(CPU, system, tmp_path) is None
    system.write_text("MemTotal:  9000 kB\nMemAvailable:  8000 kB\n")
    assert free_memory(CPU, system, tmp_path) == 8_192_000
    (tmp_path / "memory.current").write_text("6000000\n")
    (tmp_path / "memory.stat").write_text("anon 5000000\ninactive_file 500000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(CPU, system, tmp_path) == 8_192_000
    (tmp_path / "memory.max").write_text("7000000\n")
    assert free_memory(CPU, system, tmp_path) == 1_500_000
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert free_memory(CPU, system, tmp_path) == 500_000


def test_the_first_to_fail_speaks_and_the_others_wait_until_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(module, "_rendezvous", lambda: (store, 0, 2))
    monkeypatch.setattr(module, "_TIME_TO_REPORT", timedelta(seconds=0.2))
    with first_to_report() as first:
        assert first
        with first_to_report() as second:  # waits in vain, and ends all the same
            assert not second
        assert not store.check(["reported"])
    assert store.check(["reported"])
    monkeypatch.undo()
    module._rendezvous.cache_clear()  # who finds nobody to agree with speaks
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with first_to_report() as speaks:
        assert speaks
    with pytest.raises(FsbenchError, match=r"could not meet: .*MASTER_ADDR") as caught, join_ranks():
        pass
    assert "torchrun" in caught.value.hint


@pytest.mark.parametrize(
    ("device", "number", "expected"),
    [
        ("auto", 1, "cuda:1"),
        ("cpu", 3, "cpu"),
        ("cuda", 2, "4 processes were started where 2 GPU"),
        ("cuda:1", 0, "4 processes cannot share cuda:1"),
    ],
)
def test_every_process_has_its_gpu(device: str, number: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch, "empty", lambda size, device: None)
    monkeypatch.setenv("LOCAL_RANK", str(number))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    try:
        assert str(devices.choose_device(device)) == expected
    except FsbenchError as error:
        assert expected in error.message  # noqa: PT017 - some are refused
