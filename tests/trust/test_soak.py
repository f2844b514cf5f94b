"""A million tasks in one run: memory stays flat and the rate steady."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from fsbench.evaluation.source import load_source
from fsbench.features.scatter import base_statistics
from fsbench.features.store import FeatureFile
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import job, runner
from tests.synthetic import make_features

PAGE = os.sysconf("SC_PAGE_SIZE")
PROTOCOL = TaskProtocol("disjoint", ways=5, shots=1, queries=15, alpha=2.0)


def memory() -> float:
    """Resident megabytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


def soak(tasks: int, tmp_path: Path) -> tuple[list[float], list[float]]:
    """Solve tasks; resident megabytes and seconds at every twentieth of the way."""
    file = FeatureFile.open(make_features(dimension=16).write(tmp_path / "f.h5"))
    source = load_source(file, "novel", base_statistics(file))
    done, sizes, moments = 0, [memory()], [time.perf_counter()]

    def progress(more: int, label: str) -> None:
        nonlocal done
        done += more
        if done >= len(sizes) * tasks / 20:
            sizes.append(memory())
            moments.append(time.perf_counter())

    record = runner().run(job(source, "bavardage", tasks, PROTOCOL), progress)
    assert record.tasks == tasks
    return sizes, moments


def test_memory_does_not_grow_with_tasks(tmp_path: Path) -> None:
    sizes, _ = soak(20_000, tmp_path)
    assert max(sizes[5:]) - sizes[5] < 40


@pytest.mark.slow
def test_a_million_tasks(tmp_path: Path) -> None:
    tasks = 1_000_000
    sizes, moments = soak(tasks, tmp_path)
    rates = tasks / 20 / np.diff(moments)  # tasks/s, one per twentieth
    assert max(sizes[2:]) - sizes[1] < 130  # the answers themselves are 65 MB
    assert np.median(rates[-5:]) > 0.6 * np.median(rates[:5])  # other programs run on this machine
