"""Records, sweeps and memories of tuning from strangers: extremes are refused by name, never a traceback later."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from fsbench.errors import FsbenchError
from fsbench.results.curves import load_sweep
from fsbench.results.record import load_record
from fsbench.results.tuned import read_memory
from tests.records import make_record

if TYPE_CHECKING:
    from pathlib import Path

EXTREMES = {
    "a huge number": "1" + "0" * 400,
    "a number of many digits": "1" * 5000,
    "NaN": "NaN",
    "infinity": "-Infinity",
    "infinity in digits": "1e999",
    "half a character": '"\\ud800"',
    "depth": "[" * 900 + "]" * 900,
    "great depth": "[" * 100_000 + "]" * 100_000,
}
READERS = {"record": load_record, "sweep": load_sweep, "memory of tuning": read_memory}


@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("what", READERS)
def test_extremes_are_refused(what: str, extreme: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(f'{{"value": {EXTREMES[extreme]}}}')
    with pytest.raises(FsbenchError, match=f"The {what} .*file.json is damaged: it is not JSON as fsbench writes it"):
        READERS[what](path)  # type: ignore[operator]


@pytest.mark.parametrize("field", ["queries", "correct", "peak_memory", "signature", "seconds"])
def test_a_record_with_an_extreme_is_refused(field: str, tmp_path: Path) -> None:
    content: dict[str, Any] = asdict(make_record(tasks=1))
    for value in (10**400, "\ud800", -(10**30), [10**20]):
        (tmp_path / "record.json").write_text(json.dumps({**content, field: value}))
        with pytest.raises(FsbenchError, match=r"record.json is damaged"):
            load_record(tmp_path / "record.json")
