"""docs/statistics.md lists what the code does: what each method is told, and the size of its grid."""

import math
from pathlib import Path
from typing import Any

import pytest

from fsbench.methods.base import Context, Learnable
from fsbench.methods.registry import METHODS, method_class, split_variant
from tests.synthetic import make_features

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
