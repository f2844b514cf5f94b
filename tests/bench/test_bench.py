"""What the benchmark measures, and that it runs."""

from pathlib import Path

import pytest

from fsbench.methods.bavardage import Bavardage
from fsbench.methods.soft_kmeans import SoftKMeans
from tests.bench import __main__ as bench
from tests.bench.measure import BOUNDS, NOISE, Measure
from tests.bench.solver import arithmetic, embedding, mini_like


def test_it_runs_and_every_bound_is_of_something_that_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--quick", "--cases", "scatter,extract,answers"]) == 0
    shown = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["scatter, from disk", "extract", "hash images", "keep answers"]
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("s*.py"))
    assert [case for case in BOUNDS if f'"{case}"' not in sources] == []


def test_it_fails_where_a_bound_is_missed_beyond_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    for factor, status in ((NOISE * 0.99, 0), (NOISE * 1.01, 1)):
        slow = Measure("extract", "its forward pass", BOUNDS["extract"] * factor)
        monkeypatch.setitem(bench.CASES, "extract", lambda quick: [slow])  # noqa: B023 - used before the next
        assert bench.main(["--cases", "extract", "--check"]) == status


def test_the_arithmetic_of_a_method_is_counted() -> None:
    material = mini_like(192)
    gram, gathered = 2 * 80 * 80 * 192, 2 * 5 * 75 * 75
    counted = arithmetic(SoftKMeans(km_steps=5), material)
    assert gram + 4 * gathered <= counted <= gram + 4 * gathered + 2 * 5 * 5 * 80 * 2  # the first step needs no product
    assert arithmetic(SoftKMeans(km_steps=6), material) - counted == gathered
    assert embedding(SoftKMeans(), material) == 0  # element-wise work alone
    assert embedding(Bavardage(), material) == 2 * 192 * 192 * 12_000
