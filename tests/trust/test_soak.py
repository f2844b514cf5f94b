"""A million tasks in one run: memory stays flat and the rate steady."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from fsbench.evaluation.run import Job, Runner, configure
from fsbench.evaluation.source import load_source
from fsbench.features.scatter import base_statistics
from fsbench.features.store import FeatureFile
from fsbench.tasks.protocol import TaskProtocol
from tests.synthetic import make_features

if TYPE_CHECKING:
    from collections import Counter

PAGE = os.sysconf("SC_PAGE_SIZE")
PROTOCOL = TaskProtocol("disjoint", ways=5, shots=1, queries=15, alpha=2.0)


def memory() -> float:
    """Resident megabytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


def soak(tasks: int, tmp_path: Path) -> tuple[list[float], list[float]]:
    """Solve tasks; resident megabytes and seconds at every twentieth of the way."""
    file = FeatureFile.open(make_features(dimension=16).write(tmp_path / "f.h5"))
    source = load_source(file, "novel", base_statistics(file))
    method, origin = configure("bavardage", source, PROTOCOL, {})
    done, sizes, moments = 0, [memory()], [time.perf_counter()]

    def progress(more: int) -> None:
        nonlocal done
        done += more
        if done >= len(sizes) * tasks / 20:
            sizes.append(memory())
            moments.append(time.perf_counter())

    record = Runner(torch.device("cpu")).run(Job(method, PROTOCOL, 0, tasks, origin), source, progress)
    assert len(record.correct) == tasks
    return sizes, moments


def test_memory_does_not_grow_with_tasks(tmp_path: Path) -> None:
    sizes, _ = soak(20_000, tmp_path)
    assert max(sizes[5:]) - sizes[5] < 40


@pytest.mark.slow
def test_a_million_tasks(tmp_path: Path, tally: Counter[str]) -> None:
    tasks = 1_000_000
    sizes, moments = soak(tasks, tmp_path)
    rates = tasks / 20 / np.diff(moments)  # tasks/s, one per twentieth
    print(f"\nMB {[round(size) for size in sizes]}\ntasks/s {[round(rate) for rate in rates.tolist()]}")
    tally["soak: tasks"] += tasks
    tally["soak: tasks per second"] += int(np.median(rates))
    tally["soak: MB gained after the first twentieth"] += round(max(sizes[1:]) - sizes[1])
    assert max(sizes[2:]) - sizes[1] < 60  # the outcomes themselves are 16 MB
    assert np.median(rates[-5:]) > 0.6 * np.median(rates[:5])  # other programs run on this machine
