"""What is left to compute, and how long that takes by the speed of earlier records."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fsbench.errors import FsbenchError
from fsbench.evaluation.run import POINTS, key_of
from fsbench.results.record import load_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from fsbench.evaluation.run import Job, Runner
    from fsbench.evaluation.source import Source
    from fsbench.results.record import RunKey, RunRecord


@dataclass(frozen=True)
class Forecast:
    """The cells of a step: one method over one list of tasks each.

    Attributes:
        cells: All.
        recorded: Those with a record, which are read.
        seconds: Expected for those of methods whose speed is known.
        untimed: Cells of other methods.
    """

    cells: int = 0
    recorded: int = 0
    seconds: float = 0.0
    untimed: int = 0

    def __add__(self, other: Forecast) -> Forecast:
        return Forecast(
            self.cells + other.cells,
            self.recorded + other.recorded,
            self.seconds + other.seconds,
            self.untimed + other.untimed,
        )

    def __str__(self) -> str:
        left = self.cells - self.recorded
        text = f"{self.cells:,} cells: {self.recorded:,} recorded, {left:,} to compute"
        if self.untimed == left:
            return f"{text}, ? minutes" if left else text
        timed = f"{text}, {_minutes(self.seconds)}"
        return f"{timed} and ? for {self.untimed:,} of them" if self.untimed else timed


def _minutes(seconds: float) -> str:
    return f"about {seconds / 60:,.0f} minutes" if seconds >= 90 else "about a minute" if seconds > 20 else "seconds"


def read_speeds(results: Path) -> list[RunRecord]:
    """All records of a folder of results that can be read, those of sweeps and searches too."""
    records = []
    for path in [*results.glob("*.json"), *(results / POINTS).glob("*.json")]:
        with suppress(FsbenchError):
            records.append(load_record(path))
    return records


def forecast(
    cells: Iterable[tuple[Job, Source]], runner: Runner, results: Path, known: Sequence[RunRecord]
) -> Forecast:
    """What the cells of a step need, with records in `results`; `known` are records that tell the speed."""
    total = Forecast()
    for job, source in cells:
        key = key_of(job, source)
        stored = replace(runner, results=results).stored(key, source)
        missing = job.tasks - (stored.key.tasks if stored else 0)
        if missing <= 0:
            total += Forecast(1, recorded=1)
        elif speed := _speed(key, known):
            total += Forecast(1, seconds=missing / speed)
        else:
            total += Forecast(1, untimed=1)
    return total


def _speed(key: RunKey, known: Sequence[RunRecord]) -> float | None:
    """Tasks per second of the record that is most like a run: same method, then tasks, features, and the most tasks."""
    of_method = [record for record in known if record.key.method == key.method]
    if not of_method:
        return None

    def likeness(record: RunRecord) -> tuple[int, bool, int]:
        same = sum(record.key.protocol[name] == key.protocol[name] for name in ("ways", "queries", "shots"))
        return same, record.key.features_sha256 == key.features_sha256, record.key.tasks

    return max(of_method, key=likeness).tasks_per_second
