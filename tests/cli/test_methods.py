"""`fsbench methods`: every list is complete, and a method is described as it runs."""

from __future__ import annotations

import json

import pytest

from fsbench.backbones.families import FAMILIES
from fsbench.data.catalog import dataset_names
from fsbench.methods.registry import METHODS, method_class, told
from fsbench.tasks.protocol import PROTOCOL_NAMES
from tests.cli import run


@pytest.mark.parametrize(
    ("option", "names"),
    [
        ((), METHODS),
        (("all",), METHODS),
        (("--protocols",), PROTOCOL_NAMES),
        (("--datasets",), dataset_names()),
        (("--backbones",), FAMILIES),
    ],
)
def test_lists_are_complete(option: tuple[str, ...], names: object) -> None:
    done = run("methods", *option, "--json")
    assert done.exit_code == 0, done.output
    assert [next(iter(row.values())) for row in json.loads(done.stdout)] == [*names]  # type: ignore[misc]
    shown = run("methods", *option).stdout
    assert max(map(len, shown.splitlines())) <= 100
    assert all(f" {name} " in shown for name in names)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_described(name: str) -> None:
    described = json.loads(run("methods", name, "--json").stdout)
    assert described["source"]
    assert described["assumes"]
    grid = {one["name"]: one["tuning grid"] for one in described["parameters"] if one["tuning grid"]}
    known = {parameter: [*values] for parameter, values in method_class(name).info.grid.items()}
    assert grid == (dict.fromkeys(grid, "learned") if method_class(name).learns() else known)
    assert described["told"] == (told(name) or {"beside the task": "nothing"})
    assert described["title"] in run("methods", name).stdout


def test_the_page_has_defaults_by_setting_and_says_who_is_told_what() -> None:
    shown = run("methods", "bavardage").stdout
    assert "t_km         50          50          10        10        10, 50" in shown
    assert "balanced or not: sets t_km, mixing; with --blind as if unbalanced" in " ".join(shown.split())
    assert shown.count("sampler's α: only with --prior-alpha sampler") == 1
    assert "fsbench tune" in run("methods", "unem-gaussian").stdout


def test_variants_are_described_as_they_run() -> None:
    described = json.loads(run("methods", "bavardage:transport", "--json").stdout)
    assert described["assumes"] == "uniform prior"
    assert json.loads(run("methods", "simpleshot:L2N", "--json").stdout)["needs base classes"] == "no"


def test_one_thing_at_a_time_and_known_names() -> None:
    both = run("methods", "ncm", "--protocols")
    assert both.exit_code == 2
    assert "choose one" in both.stderr
    assert "Did you mean 'paddle'" in run("methods", "padle").stderr
