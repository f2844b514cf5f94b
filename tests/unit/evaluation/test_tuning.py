from __future__ import annotations

import itertools
import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fsbench.errors import FsbenchError
from fsbench.evaluation.engine import TaskList, solve_tasks
from fsbench.evaluation.source import Source
from fsbench.evaluation.spec import Axis
from fsbench.evaluation.tuning import Search, grid_of, tune, validation_source
from fsbench.features.scatter import base_statistics
from fsbench.features.store import FeatureFile, Provenance, write_features
from fsbench.methods import unem
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.registry import METHODS, method_class
from fsbench.report.plots.studies import draw_surface
from fsbench.report.plots.style import save
from fsbench.report.tables import stdout_console, surface_tables
from fsbench.results.statistics import accuracies
from fsbench.results.tuned import read_memory, tuning_path
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import CPU, compared, runner, solved

if TYPE_CHECKING:
    from pathlib import Path

    from tests.synthetic import Features

SMALL = [Axis("tau", (0.001, 0.3)), Axis("sigma", (10.0, 20.0))]


@pytest.fixture
def path(features: Features, tmp_path: Path) -> Path:
    return features.write(tmp_path / "features" / "synthetic-none.h5")


@pytest.fixture
def file(path: Path) -> FeatureFile:
    return FeatureFile.open(path)


@pytest.fixture
def search(file: FeatureFile) -> Search:
    return Search(
        "bavardage", {}, validation_source(file, base_statistics(file)), TaskProtocol(), tuning_path(file.path)
    )


@pytest.fixture
def small_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    set_grid(monkeypatch, "bavardage", {axis.name: axis.values for axis in SMALL})
    set_grid(monkeypatch, "soft-kmeans", {"t_km": (0.01, 20.0)})


def set_grid(monkeypatch: pytest.MonkeyPatch, name: str, grid: dict[str, Any]) -> None:
    monkeypatch.setattr(method_class(name), "info", replace(method_class(name).info, grid=grid))


def test_the_best_cell_is_the_best_by_hand(search: Search) -> None:
    found = tune(search, SMALL, runner(), tasks=40)
    by_hand = {}
    for tau, sigma in itertools.product((0.001, 0.3), (10.0, 20.0)):
        context = search.source.context(search.protocol)
        method = method_class("bavardage").configure(context, tau=tau, sigma=sigma)
        outcome = solve_tasks(
            method, search.source.split, search.source.base, TaskList(search.protocol, 0, 40), device=CPU
        )
        by_hand[tau, sigma] = float(accuracies(outcome.correct, outcome.queries).mean())
    assert {tuple(trial.params.values()): trial.accuracy for trial in found.trials} == by_hand
    assert tuple(found.params.values()) == max(by_hand, key=by_hand.__getitem__)
    assert found.origin() == "tuned:val:grid:4x40"


@pytest.mark.usefixtures("small_grid")
def test_solve_uses_what_was_found_and_tunes_the_baseline_too(file: FeatureFile, tmp_path: Path) -> None:
    (row,) = solved("bavardage", file, tasks=50, tune=True, results=tmp_path / "results")
    assert row.record.key.params["tau"] == 0.3
    assert "tuned:val:grid:4x500" in row.record.signature
    assert row.baseline is not None
    assert row.baseline.key.params["t_km"] == 20.0
    assert row.baseline.params_from == "tuned:val:grid:2x500"
    assert len(read_memory(tuning_path(file.path))) == 2


def test_a_later_search_takes_the_place_of_the_earlier(search: Search, file: FeatureFile, tmp_path: Path) -> None:
    tune(search, SMALL, runner(), tasks=10)
    found = tune(search, [Axis("tau", (0.7,))], runner(), tasks=10)
    assert search.remembered() == found
    assert len(read_memory(search.memory)) == 1
    (row,) = solved("bavardage", file, tasks=5, tune=True)
    assert row.record.key.params["tau"] == 0.7
    assert row.record.params_from == "tuned:val:grid:1x10"


def test_other_settings_and_fixed_parameters_have_parameters_of_their_own(search: Search, file: FeatureFile) -> None:
    keys = {
        replace(search, fixed=fixed, protocol=protocol).key
        for fixed in ({}, {"variant": "released"})
        for protocol in (TaskProtocol(), TaskProtocol(shots=5), TaskProtocol(alpha=None))
    }
    assert len(keys) == 6


def test_compare_tunes_what_can_be_tuned(file: FeatureFile, monkeypatch: pytest.MonkeyPatch) -> None:
    set_grid(monkeypatch, "soft-kmeans", {"t_km": (0.01, 20.0)})
    cells = compared("ncm,soft-kmeans", [file], [TaskProtocol()], tasks=20, tune=True).groups[0].cells
    origins = {label: cell.record.params_from for (label, _), cell in cells.items() if cell.record}
    assert origins == {"ncm": "default", "soft-kmeans": "tuned:val:grid:2x500"}


def test_a_broken_search_goes_on(search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tune(search, SMALL, runner(tmp_path / "whole"), tasks=10)
    search.memory.unlink()

    computed: list[int] = []

    def stopped(*arguments: Any, **options: Any) -> Any:
        if len(computed) == 2:
            raise KeyboardInterrupt
        return counted(*arguments, **options)

    monkeypatch.setattr("fsbench.evaluation.run.solve_tasks", stopped)

    def counted(*arguments: Any, **options: Any) -> Any:
        computed.append(1)
        return solve_tasks(*arguments, **options)

    with pytest.raises(KeyboardInterrupt):
        tune(search, SMALL, runner(tmp_path / "broken"), tasks=10)
    assert search.remembered() is None
    computed.clear()
    monkeypatch.setattr("fsbench.evaluation.run.solve_tasks", counted)
    assert tune(search, SMALL, runner(tmp_path / "broken"), tasks=10) == whole
    assert len(computed) == 2


def test_optuna_repeats_itself_stays_in_range_and_finds_a_better_place_than_the_worst(search: Search) -> None:
    axes = [Axis("tau", (0.001, 1.0)), Axis("km_steps", (2, 8)), Axis("mixing", ("learned", "uniform"))]
    found = tune(search, axes, runner(), trials=6, tasks=10, seed=3)
    assert found == tune(search, axes, runner(), trials=6, tasks=10, seed=3)
    assert found.origin() == "tuned:val:optuna:6x10"
    for trial in found.trials:
        assert 0.001 <= float(trial.params["tau"]) <= 1.0
        assert trial.params["km_steps"] in range(2, 9)
        assert trial.params["mixing"] in {"learned", "uniform"}
    assert found.best.accuracy > min(trial.accuracy for trial in found.trials)


def test_without_optuna_the_extra_is_named(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(FsbenchError, match="optuna is not installed") as caught:
        tune(search, SMALL, runner(), trials=2)
    assert "fsbench[tune]" in caught.value.hint


def test_tuning_never_looks_at_novel_classes(features: Features, file: FeatureFile, tmp_path: Path) -> None:
    source = Source("synthetic", "none", "novel", file.read("novel"), features.statistics)
    with pytest.raises(FsbenchError, match="never on novel"):
        Search("bavardage", {}, source, TaskProtocol(), tmp_path / "t.json")


def test_what_the_tasks_give_is_not_tuned(search: Search) -> None:
    with pytest.raises(FsbenchError, match="shots belongs to the tasks"):
        tune(search, [Axis("shots", (1, 5))], runner())


def test_tuning_without_val_says_what_to_do(features: Features, tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    write_features(path, Provenance("x", "y"), {"base": features.base, "novel": features.novel})
    with pytest.raises(FsbenchError, match="no split val") as caught:
        solved("bavardage", FeatureFile.open(path), tune=True)
    assert "Extract val images" in caught.value.hint


def test_what_the_user_fixed_is_not_tuned() -> None:
    assert {axis.name for axis in grid_of("bavardage", {})} == {"t_km", "tau", "sigma"}
    assert {axis.name for axis in grid_of("bavardage", {"t_vb": 3.0, "sigma": 1.0})} == {"t_km"}
    with pytest.raises(FsbenchError, match="no grid to tune ncm"):
        grid_of("ncm", {})


def test_another_grid_or_version_has_parameters_of_its_own(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {search.key}
    set_grid(monkeypatch, "bavardage", {"tau": (0.1, 0.3)})
    keys.add(search.key)
    monkeypatch.setattr(Bavardage, "info", replace(Bavardage.info, version=2))
    keys.add(search.key)
    assert len(keys) == 3


@pytest.mark.parametrize("name", METHODS)
def test_grids_are_of_comparable_size(name: str) -> None:
    grid = method_class(name).info.grid
    cells = math.prod(map(len, grid.values())) if grid else 0
    # NCM has no parameter, SimpleShot only a variant, MAML and VERSA those of their training; UNEM learns its own.
    if name in {"ncm", "simpleshot", "unem-gaussian", "maml", "versa"}:
        assert cells == 0
    elif len(grid) == 1 or name in {"am", "alpha-am", "ilpc"}:  # which take minutes per cell
        assert cells == 12
    else:
        assert 48 <= cells <= 50
    assert not any("steps" in axis or axis in {"epochs", "passes"} for axis in grid)


@pytest.mark.parametrize("name", [name for name in METHODS if method_class(name).info.grid])
def test_every_grid_is_one_of_its_method_and_has_its_default(name: str, search: Search) -> None:
    context = search.source.context(TaskProtocol())
    defaults = method_class(name).configure(context).params()
    for axis in grid_of(name, {}):
        assert defaults[axis.name] in axis.values
        for value in axis.values:
            assert method_class(name).configure(context, **{axis.name: value}).params()[axis.name] == value


@pytest.mark.parametrize(
    "text", ['{"a": 3}', "no JSON", '{"a": {"method":"m","setting":"s","how":"grid","tasks":1,"trials":[]}}']
)
def test_a_damaged_memory_of_tuning_is_named(path: Path, text: str) -> None:
    tuning_path(path).write_text(text)
    with pytest.raises(FsbenchError, match=r"tuned parameters in|memory of tuning") as caught:
        solved("bavardage", FeatureFile.open(path), tune=True)
    assert "Delete the file" in caught.value.hint


def test_the_surface_is_shown_with_every_cell(
    search: Search, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    axes = [Axis("t_km", (10.0, 50.0)), Axis("tau", (0.1, 0.2, 0.3)), Axis("sigma", (10.0, 20.0))]
    found = tune(search, axes, runner(), tasks=10)
    tables = surface_tables(found)
    assert len(tables) == 2
    for table in tables:
        stdout_console().print(table)
    text = capsys.readouterr().out
    for trial in found.trials:
        assert f"{trial.accuracy:.2f}" in text
    assert text.count("▲") == 1
    for name, tuned in (("map.svg", found), ("line.svg", tune(search, axes[:1], runner(), trials=3, tasks=5))):
        save(draw_surface(tuned), tmp_path / name)
        drawn = (tmp_path / name).read_bytes()
        save(draw_surface(tuned), tmp_path / name)
        assert (tmp_path / name).read_bytes() == drawn


def test_a_method_that_learns_is_tuned_by_gradient_and_used_by_tune(
    search: Search, file: FeatureFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unem, "ROUNDS", 10)
    search = replace(search, method="unem-gaussian")
    assert grid_of("unem-gaussian", {}) == []
    found = tune(search, [], runner(tmp_path), tasks=20)
    start, learned = found.trials
    assert start.params == method_class("unem-gaussian")().params()
    assert len(str(learned.params["balance"]).split(",")) == len(str(learned.params["temperature"]).split(",")) == 10
    assert found.origin() == "tuned:val:gradient:2x20"
    assert found.best.accuracy == max(start.accuracy, learned.accuracy)
    table = compared("unem-gaussian", [file], [TaskProtocol()], tasks=5, tune=True, baseline="unem-gaussian")
    (record,) = table.records
    assert record.key.params == found.params
    assert record.params_from == found.origin()
    assert search.remembered() == tune(search, [], runner(tmp_path), tasks=20)


def test_what_is_given_is_not_learned(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unem, "ROUNDS", 2)
    val = validation_source(FeatureFile.open(path), None)
    search = Search("unem-gaussian", {"scale": 0.5}, val, TaskProtocol("veilleux"), tuning_path(path))
    found = tune(search, grid_of("unem-gaussian", {"scale": 0.5}), runner(), tasks=8)
    assert [set(trial.params) for trial in found.trials] == [{"balance", "temperature"}] * 2
    with pytest.raises(FsbenchError, match="nothing to tune"):
        grid_of("unem-gaussian", {"scale": 0.5, "balance": 1.0, "temperature": 2.0})
    with pytest.raises(FsbenchError, match="learns its parameters by gradient"):
        tune(search, [], runner(), trials=3)


def test_a_search_names_the_variant(file: FeatureFile, features: Features, tmp_path: Path) -> None:
    val = validation_source(file, features.statistics)
    for fixed, name in (({"variant": "released"}, "bavardage:released"), ({}, "bavardage")):
        search = Search("bavardage", fixed, val, TaskProtocol(), tmp_path / "tuned.json")
        assert tune(search, [Axis("tau", (0.2, 0.3))], runner(), tasks=2).method == name
