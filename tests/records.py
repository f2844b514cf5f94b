"""Records made up for tests: as a run would leave them, without running anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from fsbench.results.record import RunKey, RunRecord, record_path, save_record
from fsbench.results.statistics import accuracies, interval
from fsbench.tasks.protocol import TaskProtocol

QUERIES = 75


def make_record(method: str = "ncm", right: float = 0.7, *, draw: int = 0, **changes: Any) -> RunRecord:
    """A record whose tasks are answered with a given probability.

    Args:
        method: Name.
        right: Probability of a right answer.
        draw: Seed of the answers.
        changes: Fields of the protocol, the key or the record.
    """
    protocol = TaskProtocol(
        **{
            name: changes.pop(name)
            for name in ("name", "ways", "shots", "queries", "alpha", "present", "pooled")
            if name in changes
        }
    )
    tasks = changes.pop("tasks", 40)
    rng = np.random.default_rng([draw, protocol.shots, protocol.alpha is None, *method.encode()])
    asked = np.full(tasks, protocol.queries)
    correct = np.asarray(changes.pop("correct", rng.binomial(asked, right)))
    mean = interval(accuracies(correct, asked))
    key = RunKey(
        features_sha256=changes.pop("features", "f" * 64),
        base_sha256=changes.pop("base", "b" * 64),
        split=changes.pop("split", "novel"),
        protocol=protocol.as_dict(),
        seed=changes.pop("seed", 0),
        tasks=tasks,
        method=method,
        params=changes.pop("params", {}),
    )
    fields: dict[str, Any] = {
        "dataset": "glyphs",
        "backbone": "rn12",
        "params_from": "default",
        "seconds": 0.5,
        "peak_memory": 3 * 2**20,
        "device": "cpu:1 threads",
        "signature": f"fsbench:0.1.0|{method}|{protocol.signature()}",
        "created": "2026-11-16T10:00:00+00:00",
        "versions": {"fsbench": "0.1.0", "torch": "2.15.0", "python": "3.11.7"},
        **changes,
    }
    width = mean.half_width if tasks > 1 else None
    return RunRecord(
        key=key, accuracy=mean.mean, ci95=width, correct=correct.tolist(), queries=asked.tolist(), **fields
    )


def store(folder: Any, *records: RunRecord) -> list[Any]:
    """Write records as a run does; their paths."""
    paths = [record_path(folder, record.key, record.dataset, record.backbone) for record in records]
    for path, record in zip(paths, records, strict=True):
        save_record(path, record)
    return paths


def four_settings(method: str, right: float, **changes: Any) -> list[RunRecord]:
    """The same method unbalanced and balanced, with one and five shots."""
    return [
        make_record(method, right + 0.02 * shots, shots=shots, alpha=alpha, **changes)
        for alpha in (2.0, None)
        for shots in (1, 5)
    ]
