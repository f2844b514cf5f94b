"""Memory stays flat however many tasks a run has."""

import os
from pathlib import Path

from fsbench.evaluation.source import load_source
from fsbench.features.scatter import base_statistics
from fsbench.features.store import FeatureFile
from fsbench.reporter import Reporter
from tests.comparing import job, runner
from tests.synthetic import make_features


def resident() -> float:
    """Megabytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_memory_does_not_grow_with_tasks(tmp_path: Path) -> None:
    file = FeatureFile.open(make_features(dimension=16).write(tmp_path / "f.h5"))
    source, tasks = load_source(file, "novel", base_statistics(file, Reporter(quiet=True))), 20_000
    done, sizes = 0, [resident()]

    def progress(more: int, label: str) -> None:
        nonlocal done
        done += more
        if done >= len(sizes) * tasks / 20:
            sizes.append(resident())

    record = runner().run(job(source, "bavardage", tasks), progress)
    assert record.tasks == tasks
    assert max(sizes[5:]) - sizes[5] < 40
