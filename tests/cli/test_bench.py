from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fsbench import bench
from fsbench.bench import stages
from fsbench.bench.measure import BOUNDS, NOISE, Measure, in_turns
from fsbench.bench.solver import (
    CPU,
    GROWTH,
    USUAL,
    arithmetic,
    each_method,
    embedding,
    mini_like,
    shared_by_all_tasks,
    solve_in_a_loop,
)
from fsbench.evaluation.engine import TaskList, solve_tasks
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.soft_kmeans import SoftKMeans
from fsbench.tasks.protocol import TaskProtocol
from tests.cli import run


def test_the_benchmark_runs_and_writes_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "FIRST_ANSWERS", stages.FIRST_ANSWERS[:1])
    done = run("bench", "--quick", "--cases", "scatter,train,start", "--out", str(tmp_path / "bench.json"))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "bench.json").read_text())
    assert [row["case"] for row in rows] == [
        "scatter, from disk",
        "train",
        "train, not in a plain loop",
        "fsbench --help",
    ]
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
    assert gram + 4 * gathered <= counted <= gram + 4 * gathered + 2 * 5 * 5 * 80 * 2  # the first step needs no product
    assert arithmetic(SoftKMeans(km_steps=6), material) - counted == gathered
    assert arithmetic(Bavardage(variant="transport"), material) > arithmetic(Bavardage(), material) > 2 * gram


def test_actions_take_turns_after_one_to_warm_up() -> None:
    order: list[str] = []
    times = in_turns(2, a=lambda: order.append("a"), b=lambda: order.append("b"))
    assert order == ["a", "b"] * 3
    assert set(times) == {"a", "b"}


def test_the_arithmetic_grows_with_the_protocol_and_the_images() -> None:
    material, gram = mini_like(192), 2 * 155 * 155 * 192
    twice = arithmetic(SoftKMeans(), material, TaskProtocol(queries=150))
    assert gram < twice < 2 * gram
    assert embedding(SoftKMeans(), material) == 0  # element-wise work alone
    assert embedding(Bavardage(), material) == 2 * 192 * 192 * 12_000


@pytest.mark.parametrize("variant", ["article", "released"])
def test_the_loop_that_is_raced_gives_the_same_answers(variant: str) -> None:
    material, method = mini_like(160), Bavardage(variant=variant)  # type: ignore[arg-type]
    tasks = TaskList(TaskProtocol(), 0, 40)
    outcome = solve_tasks(method, material.novel, material.base, tasks, device=CPU)
    right = solve_in_a_loop(method, shared_by_all_tasks(method, material), material.novel.offsets, range(40))
    assert abs(np.array(right) - outcome.correct).max() <= 1  # but for ties in float32


def test_a_bound_is_missed_beyond_noise_only() -> None:
    case, least = "solve bavardage", "scatter, from disk"
    limit, floor = BOUNDS[case].limit, BOUNDS[least].limit
    values = {case: (limit, limit * NOISE * 1.01), least: (floor, floor / NOISE / 1.01)}
    for name, (kept, missed) in values.items():
        assert not Measure(name, "", kept, "ratio").missed
        assert Measure(name, "", missed, "ratio").missed
    assert not Measure("something without a bound", "", 1e9, "ratio").missed


def test_the_command_fails_where_a_bound_is_missed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = [Measure("growth", "the usual task", 99.0, "ratio")]
    grown = [Measure("solve", "arithmetic", 1.0, "ratio", axis, x) for axis, values in GROWTH.items() for x in values]
    monkeypatch.setitem(bench.CASES, "growth", lambda quick: [*grown, *slow])
    arguments = ("bench", "--cases", "growth", "--figure", str(tmp_path / "growth.svg"))
    assert run(*arguments).returncode == 0
    failed = run(*arguments, "--check")
    assert failed.returncode == 1
    assert "Slower than allowed: growth." in failed.stderr
    assert "≤" in failed.stdout
    assert (tmp_path / "growth.svg").stat().st_size < 100_000


def test_every_bound_is_of_something_that_is_measured() -> None:
    sources = "".join(
        path.read_text() for path in Path(bench.__file__).parent.glob("*.py") if path.name != "measure.py"
    )
    unmeasured = [case for case in BOUNDS if f'"{case}"' not in sources and not case.startswith("memory of")]
    assert unmeasured == []
    assert all(value in GROWTH[axis] for axis, value in USUAL.items())


def test_bounds_are_of_cases_that_have_one_line_each() -> None:
    """The lines of `--cases methods` have names of their own, so that no bound falls on them."""
    measured = each_method(8, 1)
    assert not [measure for measure in measured if measure.bound]
    assert {measure.case for measure in measured} >= {"speed of bavardage", "speed of entropy-min:head"}
    assert not [measure for measure in measured if "maml" in measure.case]  # methods on images have no features
