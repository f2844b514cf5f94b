from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fsbench.bench import arithmetic, in_turns, mini_like
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.soft_kmeans import SoftKMeans
from tests.cli import run

if TYPE_CHECKING:
    from pathlib import Path


def test_the_benchmark_runs_and_writes_what_it_shows(tmp_path: Path) -> None:
    done = run("bench", "--quick", "--cases", "scatter,start", "--out", str(tmp_path / "bench.json"))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "bench.json").read_text())
    assert [row["case"] for row in rows] == ["scatter, from disk", "fsbench --help"]
    assert all(row["value"] > 0 for row in rows)
    assert "scatter, from disk" in done.stdout


def test_an_unknown_case_is_named() -> None:
    done = run("bench", "--cases", "solve")
    assert done.returncode == 1
    assert "Did you mean 'solver'" in done.stderr


def test_the_arithmetic_of_a_method_is_counted() -> None:
    material = mini_like(96)
    gram, gathered = 2 * 80 * 80 * 96, 2 * 5 * 75 * 75
    counted = arithmetic(SoftKMeans(km_steps=5), material)
    assert gram + 5 * gathered <= counted <= gram + 5 * gathered + 2 * 5 * 5 * 80 * 2
    assert arithmetic(SoftKMeans(km_steps=6), material) - counted == gathered
    assert arithmetic(Bavardage(variant="transport"), material) > arithmetic(Bavardage(), material) > 2 * gram


def test_actions_take_turns_after_one_to_warm_up() -> None:
    order: list[str] = []
    times = in_turns(2, a=lambda: order.append("a"), b=lambda: order.append("b"))
    assert order == ["a", "b"] * 3
    assert set(times) == {"a", "b"}
