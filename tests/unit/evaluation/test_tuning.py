import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsbench.errors import FsbenchError
from fsbench.evaluation.spec import Axis, parse_methods, with_options
from fsbench.evaluation.tuning import Search, grid_of, tune, validation_source
from fsbench.features.scatter import base_statistics
from fsbench.features.store import FeatureFile
from fsbench.methods import unem
from fsbench.methods.base import Context
from fsbench.methods.registry import METHODS, method_class
from fsbench.reporter import Reporter
from fsbench.results.studies import read_memory, tuning_path
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import compared, job, runner
from tests.synthetic import Features, feature_file

SMALL = [Axis("tau", (0.001, 0.3)), Axis("sigma", (10.0, 20.0))]


@pytest.fixture
def file(features: Features, tmp_path: Path) -> FeatureFile:
    return FeatureFile.open(features.write(tmp_path / "features" / "synthetic-none.h5"))


def search_of(file: FeatureFile, method: str = "bavardage", **options: Any) -> Search:
    choice = with_options(parse_methods(method)[0], options)
    base = base_statistics(file, Reporter(quiet=True))
    return Search(choice, validation_source(file, base), TaskProtocol(), tuning_path(file.path))


@pytest.fixture
def search(file: FeatureFile) -> Search:
    return search_of(file)


@pytest.fixture
def small_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    set_grid(monkeypatch, "bavardage", {axis.name: axis.values for axis in SMALL})
    set_grid(monkeypatch, "soft-kmeans", {"t_km": (0.01, 20.0)})


def set_grid(monkeypatch: pytest.MonkeyPatch, name: str, grid: dict[str, Any]) -> None:
    monkeypatch.setattr(method_class(name), "info", replace(method_class(name).info, grid=grid))


def test_the_best_cell_is_the_best_by_hand(search: Search) -> None:
    tuned = tune(search, SMALL, runner(), tasks=40)
    by_hand = {}
    for tau, sigma in itertools.product((0.001, 0.3), (10.0, 20.0)):
        options = {"tau": tau, "sigma": sigma}
        by_hand[tau, sigma] = runner().run(job(search.source, "bavardage", 40, options=options)).accuracy
    assert {tuple(trial.params.values()): trial.accuracy for trial in tuned.trials} == by_hand
    assert tuple(tuned.params.values()) == max(by_hand, key=by_hand.__getitem__)
    assert search.stored() == tuned


@pytest.mark.usefixtures("small_grid")
def test_a_table_tunes_its_methods_and_the_baseline_if_they_have_a_grid(file: FeatureFile, tmp_path: Path) -> None:
    options: dict[str, Any] = {"tasks": 20, "tune": True, "results": tmp_path / "results"}
    tune(search_of(file).for_confidence(), [Axis("calibration", (1.0, 2.0))], runner(), tasks=5)  # of other parameters
    table = compared("ncm,bavardage", [file], [TaskProtocol()], **options)
    records = {record.run.method: record for record in table.records}
    assert {name: str(record.origins) for name, record in records.items()} == {
        "ncm": "default", "soft-kmeans": "tuned:val:grid:2x500", "bavardage": "tuned:val:grid:4x500",
    }  # fmt: skip
    assert (records["bavardage"].run.params["tau"], records["soft-kmeans"].run.params["t_km"]) == (0.3, 20.0)
    assert records["bavardage"].origins.params == {"tau": "tuned", "sigma": "tuned", "calibration": "tuned"}
    assert "--set tau=0.3 --set sigma=" in records["bavardage"].command
    assert len(read_memory(tuning_path(file.path))) == 4  # also of the temperature with the new parameters
    with pytest.raises(FsbenchError, match="no grid to tune ncm"):
        compared("ncm", [file], [TaskProtocol()], tasks=3, tune=True, baseline="ncm")


def test_a_damaged_memory_of_tuning_is_named(search: Search) -> None:
    empty = '{"a": {"method":"m","setting":"s","how":"grid","tasks":1,"trials":[]}}'
    for text in ('{"a": 3}', "no JSON", empty):
        search.memory.write_text(text)
        with pytest.raises(FsbenchError, match=r"tuned parameters in|memory of tuning") as caught:
            search.stored()
        assert "Delete the file" in caught.value.hint


def test_all_that_matters_is_in_the_key(search: Search, file: FeatureFile, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [TaskProtocol(), TaskProtocol(shots=5), TaskProtocol(alpha=None)]
    searches = [search, search_of(file, "bavardage:released"), search_of(file, beta=3.0)]
    keys = {replace(one, protocol=protocol).key for one in searches for protocol in rules}
    set_grid(monkeypatch, "bavardage", {"tau": (0.1, 0.3)})
    keys.add(search.key)
    bavardage = method_class("bavardage")
    monkeypatch.setattr(bavardage, "info", replace(bavardage.info, version=99))
    keys.add(search.key)
    monkeypatch.setattr(bavardage, "params", lambda self: {"weights": "other"})
    assert len({*keys, search.key}) == 12


def test_a_file_without_val_classes_is_refused(features: Features, tmp_path: Path) -> None:
    file = feature_file(tmp_path / "f.h5", base=features.base, novel=features.novel)
    with pytest.raises(FsbenchError, match="no split val") as caught:
        validation_source(file, None)
    assert "Extract val images" in caught.value.hint
    named = replace(features.val, class_names=("owl", *features.val.class_names[1:]))
    both = replace(features.novel, class_names=(*features.novel.class_names[1:], "owl"))
    with pytest.raises(FsbenchError, match=r"1 val classes of .* have the names of novel ones, such as owl"):
        validation_source(feature_file(tmp_path / "both.h5", base=features.base, val=named, novel=both), None)


def test_what_the_user_fixed_is_not_tuned() -> None:
    def names(method: str, **options: Any) -> set[str]:
        return {axis.name for axis in grid_of(with_options(parse_methods(method)[0], options))}

    assert names("bavardage") == {"t_km", "tau", "sigma"}
    assert names("bavardage", t_vb=3.0, sigma=1.0) == {"t_km"}
    assert names("unem-gaussian") == set()  # it learns
    with pytest.raises(FsbenchError, match="nothing to tune"):
        names("unem-gaussian", scale=0.5, balance=1.0, temperature=2.0)


@pytest.mark.parametrize("name", METHODS)
def test_grids_have_the_defaults_and_no_number_of_steps(name: str, features: Features) -> None:
    grid = method_class(name).info.grid
    assert not any("steps" in axis or axis in {"epochs", "passes"} for axis in grid)
    context = Context(balanced=False, alpha=2.0, base=features.statistics)
    defaults = method_class(name).configure(context).params() if grid else {}
    assert all(defaults[axis] in values for axis, values in grid.items())


def test_a_method_that_learns_is_tuned_by_gradient(file: FeatureFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unem, "ROUNDS", 4)
    search = search_of(file, "unem-gaussian")
    tuned = tune(search, [], runner(), tasks=10)
    start, learned = tuned.trials
    assert start.params == method_class("unem-gaussian")().params()
    assert len(str(learned.params["balance"]).split(",")) == len(str(learned.params["temperature"]).split(",")) == 10
    assert tuned.best.accuracy == max(start.accuracy, learned.accuracy)
    assert "gradient, 2 trials × 10 tasks" in tuned.describe()
    table = compared("unem-gaussian", [file], [TaskProtocol()], tasks=5, tune=True, baseline="unem-gaussian")
    (record,) = table.records
    assert (record.run.params, str(record.origins)) == (tuned.params, "tuned:val:gradient:2x10")
    partly = search_of(file, "unem-gaussian", scale=0.5)
    trials = tune(replace(partly, protocol=TaskProtocol("veilleux")), [], runner(), tasks=4).trials
    assert [set(trial.params) for trial in trials] == [{"balance", "temperature"}] * 2
    with pytest.raises(FsbenchError, match="learns from tasks of one size"):
        tune(replace(partly, protocol=TaskProtocol("open-set", 3, unknown=3, queries=30)), [], runner(), tasks=4)


@pytest.mark.usefixtures("small_grid")
@pytest.mark.parametrize("method", ["ncm", "soft-kmeans"])
def test_the_temperature_with_the_smallest_calibration_error_is_used(file: FeatureFile, method: str) -> None:
    """Answers stay the same; those of `ncm` are far too unsure, those of Soft-KMEANS too sure."""
    search = search_of(file, method).for_confidence()
    tuned = tune(search, [Axis("calibration", (0.1, 1.0, 4.0))], runner(), tasks=40)
    assert tuned.params["calibration"] == (0.1 if method == "ncm" else 4.0)
    errors = {trial.params["calibration"]: trial.score for trial in tuned.trials}
    assert tuned.best.score == min(errors.values()) < errors[1.0]
    assert len({trial.accuracy for trial in tuned.trials}) == 1
    before, after = (
        compared(method, [file], [TaskProtocol()], tune=tuning, tasks=30, baseline="").records[0]
        for tuning in (False, True)
    )
    assert after.interval("ece").mean < before.interval("ece").mean
    if method == "ncm":  # which has no other parameters
        assert (before.answers.predicted == after.answers.predicted).all()
        assert after.run.params == {**before.run.params, "calibration": tuned.params["calibration"]}
    else:
        assert after.origins.params == {"t_km": "tuned", "calibration": "tuned"}


def test_confidence_is_fitted_for_tuned_parameters(search: Search, small_grid: None) -> None:
    tuned = tune(search, grid_of(search.choice), runner(), tasks=10)
    assert search.for_confidence().choice.options == tuned.params
