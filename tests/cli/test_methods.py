"""`fsbench methods`: every list is complete, and a method is described as it runs."""

import json
from collections.abc import Iterable

import pytest

from fsbench.methods.base import Learnable
from fsbench.methods.registry import METHODS, method_class
from fsbench.tasks.protocol import PRESETS
from tests.cli import run


@pytest.mark.parametrize(("words", "names"), [("all", METHODS), ("--protocols", tuple(PRESETS))])
def test_lists_are_complete(words: str, names: Iterable[str]) -> None:
    listed = json.loads(run("methods", words, "--json").stdout)
    assert [next(iter(row.values())) for row in listed] == [*names]
    shown = run("methods", words).stdout
    assert max(map(len, shown.splitlines())) <= 100
    assert all(f" {name} " in shown for name in names)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_described(name: str) -> None:
    described = json.loads(run("methods", name, "--json").stdout)
    assert described["source"]
    assert described["assumes"]
    grid = {one["name"]: one["tuning grid"] for one in described["parameters"] if one["tuning grid"]}
    known = {parameter: [*values] for parameter, values in method_class(name).info.grid.items()}
    assert grid == (dict.fromkeys(grid, "learned") if issubclass(method_class(name), Learnable) else known)
    assert described["title"] in run("methods", name).stdout


def test_variants_are_described_as_they_run() -> None:
    described = json.loads(run("methods", "bavardage:transport", "--json").stdout)
    assert described["assumes"] == "uniform prior"
    assert json.loads(run("methods", "simpleshot:L2N", "--json").stdout)["needs base classes"] == "no"
