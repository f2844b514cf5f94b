"""docs/statistics.md: what each method is told, and small versions of its simulations."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsbench.methods.base import Context, Learnable
from fsbench.methods.registry import METHODS, method_class, split_variant
from fsbench.results.statistics import interval_over_classes
from tests.statistics.simulate import coverage, false_alarms, few_tasks, truncation
from tests.synthetic import make_features


def test_the_interval_over_classes_is_the_jackknife() -> None:
    rng = np.random.default_rng(0)
    classes = np.stack([rng.permutation(7)[:3] for _ in range(50)])
    values = rng.normal(60, 9, size=50)
    means = np.array([np.mean([v for v, held in zip(values, classes, strict=True) if c not in held]) for c in range(7)])
    error = np.sqrt(6 / 7 * np.sum((means - means.mean()) ** 2))
    found = interval_over_classes(values, classes)
    assert found is not None
    assert found.mean == pytest.approx(values.mean())
    assert found.half_width == pytest.approx(2.446912 * error, rel=1e-6)  # Student's quantile of 6 degrees of freedom
    assert interval_over_classes(np.ones(9), np.tile(np.arange(5), (9, 1))) is None  # no class can be left out


def test_intervals_cover_what_they_say() -> None:
    found = coverage(20, 60, repeats=10, tasks=100, worlds=4)
    assert min(found["classes"]) >= 0.7
    assert min(found["tasks"]) < 0.8  # they are about more tasks from the same images


def test_few_tasks_need_students_quantile() -> None:
    student, normal = few_tasks(2, 4000)
    assert student == pytest.approx(0.95, abs=0.02)
    assert normal == pytest.approx(0.70, abs=0.03)


def test_redraws_truncate_only_where_classes_are_small() -> None:
    redrawn, change = truncation(0.5, 60, tasks=20_000)
    assert 8 < redrawn < 10
    assert -16 < change < -12
    assert abs(truncation(2.0, 60, tasks=20_000)[1]) < 0.5
    assert truncation(0.5, 600, tasks=2000) == (0.0, 0.0)


def test_of_equal_methods_few_are_called_worse() -> None:
    worse, other, _ = false_alarms(3, 60)
    assert max(worse, other) <= 0.1


PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
BASE = make_features().statistics
METHOD_LABELS = [*METHODS, "bavardage:transport", "bavardage:weighted"]


def row(label: str) -> str:
    """The line of a method in the table of who is told what."""
    name, options = split_variant(label)
    method = method_class(name)

    def params(**setting: Any) -> dict[str, Any]:
        context = Context(**{"balanced": False, "shots": 1, "alpha": 2.0, "base": BASE, **setting})
        return method.configure(context, **options).values()

    usual, balanced, told = params(), params(balanced=True), params(alpha=5.0)
    assert told == usual  # nobody is told α unless asked for
    by_setting, by_shots = (
        ", ".join(f"`{key}`" for key in usual if other[key] != usual[key]) or "–"
        for other in (balanced, params(shots=5))
    )
    assumed = list(dict.fromkeys([method.info.assumes(usual, 2.0), method.info.assumes(balanced)]))
    grid = method.info.grid
    cells = math.prod(map(len, grid.values())) if grid else "learned" if issubclass(method, Learnable) else "–"
    base = "yes" if method_class(name).info.needs_base_for(options) else "–"
    return f"| `{label}` | {base} | {by_setting} | {by_shots} | {' / '.join(assumed)} | {cells} |"


@pytest.mark.parametrize("label", METHOD_LABELS)
def test_the_page_says_what_a_method_is_told(label: str) -> None:
    assert row(label) in PAGE.read_text(encoding="utf-8").splitlines(), f"write: {row(label)}"
