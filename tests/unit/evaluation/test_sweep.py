from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fsbench
from fsbench.errors import FsbenchError
from fsbench.evaluation.engine import TaskList, solve_tasks
from fsbench.evaluation.spec import Axis, at, parse_methods
from fsbench.evaluation.sweep import figure, plan_sweep, run_sweep
from fsbench.features.store import FeatureFile
from fsbench.methods.base import Context
from fsbench.methods.registry import method_class
from fsbench.report.plots.studies import draw_sweep
from fsbench.report.plots.style import save
from fsbench.report.tables import panel_table, stdout_console
from fsbench.results.curves import Curve, Panel, Point, Sweep, load_sweep, save_sweep
from fsbench.results.published import published_curve
from fsbench.results.record import load_record, save_record
from fsbench.results.statistics import accuracies
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import CPU, runner
from tests.records import make_record
from tests.synthetic import make_features

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.results.record import RunRecord
    from tests.synthetic import Features

ONE, FIVE = TaskProtocol(), TaskProtocol(shots=5)


@pytest.fixture(scope="module")
def mini(features: Features, tmp_path_factory: pytest.TempPathFactory) -> FeatureFile:
    return FeatureFile.open(features.write(tmp_path_factory.mktemp("sweep") / "mini-wrn.h5", "mini", "wrn"))


def sweep(file: FeatureFile, axes: list[Axis], **options: Any) -> Sweep:
    plans = plan_sweep(
        parse_methods(options.pop("methods", "bavardage")), axes, options.pop("splits", ["novel"]),
        options.pop("protocols", [ONE]), options.pop("parameters", {}),
    )  # fmt: skip
    made = runner(options.pop("results", None), force=options.pop("force", False))
    return run_sweep(plans, file, made, **{"name": "test", "tasks": 12, "seed": 0, **options})


def test_a_point_is_what_the_solver_gives_there(mini: FeatureFile, features: Features) -> None:
    found = sweep(mini, [Axis("tau", (0.1, 0.5)), Axis("alpha", (1.0, 4.0))], splits=["val", "novel"])
    (panel,) = found.panels
    assert panel.axis == "τ"
    assert panel.title == "5-way, 1-shot, 75 queries"
    assert [curve.label for curve in panel.curves] == ["α* = 1, val", "α* = 1, novel", "α* = 4, val", "α* = 4, novel"]
    for curve, (alpha, split) in zip(panel.curves, itertools.product((1.0, 4.0), ("val", "novel")), strict=True):
        protocol = TaskProtocol(alpha=alpha)
        for point, tau in zip(curve.points, (0.1, 0.5), strict=True):
            context = Context(False, 1, "", alpha, features.statistics)
            method = method_class("bavardage").configure(context, tau=tau)
            outcome = solve_tasks(
                method, getattr(features, split), features.statistics, TaskList(protocol, 0, 12), device=CPU
            )
            assert point.x == tau
            assert point.accuracy == pytest.approx(float(accuracies(outcome.correct, outcome.queries).mean()))


def test_only_missing_points_are_computed(mini: FeatureFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sweep(mini, [Axis("beta", (0.0, 10.0))], results=tmp_path)
    computed: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        computed.append(1)
        return solve_tasks(*arguments, **options)

    monkeypatch.setattr("fsbench.evaluation.run.solve_tasks", counted)
    assert sweep(mini, [Axis("beta", (0.0, 10.0))], results=tmp_path) == first
    assert computed == []
    longer = sweep(mini, [Axis("beta", (0.0, 5.0, 10.0))], results=tmp_path)
    assert len(computed) == 1
    assert (longer.panels[0].curves[0].points[0], longer.panels[0].curves[0].points[2]) == first.panels[0].curves[
        0
    ].points
    assert longer.name != first.name
    assert not list(tmp_path.glob("*.json"))  # single points are not among the results that people collect


def test_a_wrong_value_is_named_before_anything_runs(mini: FeatureFile, tmp_path: Path) -> None:
    for axis, match in (
        (Axis("tau", (0.1, -1.0)), "tau must be a positive number"),
        (Axis("nonsense", (1.0,)), "nonsense"),
        (Axis("queries", (75, 100000)), "100000|100,000|queries"),
    ):
        with pytest.raises(FsbenchError, match=match):
            sweep(mini, [axis], results=tmp_path)
        if axis.name != "queries":
            assert not list(tmp_path.rglob("*.json"))


def test_axes_of_the_protocol_are_whole_numbers_where_they_count() -> None:
    with pytest.raises(FsbenchError, match="whole numbers"):
        Axis("shots", (1, 2.5))
    with pytest.raises(FsbenchError, match="numbers"):
        Axis("alpha", ("high",))
    with pytest.raises(FsbenchError, match="twice"):
        Axis("tau", (1.0, 1.0))
    protocol, options = at({"shots": 5, "tau": 0.1}, ONE, {"beta": 3.0})
    assert protocol == FIVE
    assert options == {"beta": 3.0, "tau": 0.1}


def test_methods_become_curves_and_shots_an_axis(mini: FeatureFile) -> None:
    (panel,) = sweep(mini, [Axis("shots", (1, 5))], methods="ncm,soft-kmeans").panels
    assert [curve.label for curve in panel.curves] == ["ncm", "soft-kmeans"]
    assert all(curve.points[1].accuracy > curve.points[0].accuracy for curve in panel.curves)


@pytest.mark.parametrize(("number", "panels", "points"), [(3, 2, 36), (4, 2, 18), (5, 8, 116)])
def test_a_figure_has_the_points_of_the_article_s(number: int, panels: int, points: int) -> None:
    plans = figure(number, "article")
    assert len(plans) == panels
    assert sum(len(plan.axis.values) * len(plan.lines) for plan in plans) == points
    for plan in plans:
        for line in plan.lines:
            known = published_curve(point(line.method, line.protocol, line.split), plan.axis.name)
            assert {x for x, _ in known} == set(plan.axis.values)


def point(method: str, protocol: TaskProtocol = ONE, split: str = "novel", **changes: Any) -> RunRecord:
    """A point of a sweep on mini-ImageNet's WRN."""
    known = {"shots": protocol.shots, "alpha": protocol.alpha, "dataset": "mini", "backbone": "wrn", "split": split}
    return make_record(method, **{**known, **changes})


def test_published_points_are_those_of_the_article() -> None:
    assert published_curve(point("bavardage", split="val"), "t_vb")[:2] == [(30.0, 75.81), (40.0, 78.36)]
    assert dict(published_curve(point("soft-kmeans"), "queries"))[150.0] == 72.64
    assert dict(published_curve(point("bavardage", TaskProtocol(alpha=4.0)), "prior_alpha"))[10.0] == 74.90
    assert published_curve(point("bavardage", split="val"), "tau") == []
    changes: list[dict[str, Any]] = [{"backbone": "rn18"}, {"dataset": "cub"}, {"crops": 30}, {"alpha": None}]
    for change in [*changes, {"family": "wrn-s2m2"}, {"base_dataset": "tiered"}]:
        assert published_curve(point("bavardage", split="val", **change), "t_vb") == []
    assert published_curve(point("ncm", split="val"), "t_vb") == []


def test_units_of_figure_5_are_the_article_s_only_where_it_has_a_preset() -> None:
    assert {plan.axis.name for plan in figure(5, "article")} == {"t_km", "t_vb", "s_max", "beta"}
    assert {plan.axis.name for plan in figure(5)} == {"t_km", "tau", "sigma", "beta"}
    with pytest.raises(FsbenchError, match="no sweep for figure 2"):
        figure(2, "article")


def test_a_sweep_is_drawn_printed_and_read_back(
    mini: FeatureFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = sweep(mini, [Axis("t_vb", (30.0, 50.0, 70.0))], splits=["val", "novel"])
    assert [len(curve.published) for curve in found.panels[0].curves] == [6, 6]
    save_sweep(tmp_path / "sweep.json", found)
    assert load_sweep(tmp_path / "sweep.json") == found
    stdout_console().print(panel_table(found.panels[0]))
    text = capsys.readouterr().out
    assert "(published 78.59)" in text
    assert max(map(len, text.splitlines())) <= 100
    drawn = draw_sweep(found).axes[0]
    assert drawn.get_xlabel() == "T_vb"
    measured, published = (list(np.asarray(line.get_xdata())) for line in drawn.get_lines()[:2])
    assert measured == [30.0, 50.0, 70.0]
    assert published == [30.0, 40.0, 50.0, 60.0, 80.0, 100.0]
    for name in ("a.png", "a.pdf", "a.svg"):
        save(draw_sweep(found), tmp_path / name)
        first = (tmp_path / name).read_bytes()
        save(draw_sweep(found), tmp_path / name)
        assert (tmp_path / name).read_bytes() == first
    with pytest.raises(FsbenchError, match="gif"):
        save(draw_sweep(found), tmp_path / "a.gif")


def test_words_along_an_axis_stand_side_by_side() -> None:
    curve = Curve("c", (Point("learned", 50.0, 1.0), Point("uniform", 60.0, 1.0)))
    axes = draw_sweep(Sweep("n", "t", "s", (Panel("mixing", "p", (curve,)),))).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["learned", "uniform"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"name": 1}',
        '{"name":"n","title":"t","signature":"s","panels":[{"axis":"a","title":"t","curves":[]}]}',
    ],
)
def test_a_file_that_is_no_sweep_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(FsbenchError, match=r"x\.json"):
        load_sweep(tmp_path / "x.json")
    with pytest.raises(FsbenchError, match="cannot be read"):
        load_sweep(tmp_path / "none.json")


def test_different_sweeps_have_different_signatures(mini: FeatureFile) -> None:
    tau, shots = Axis("tau", (0.1,)), Axis("shots", (1, 5))
    found = [
        sweep(mini, [tau], tasks=3),
        sweep(mini, [Axis("tau", (0.2,))], tasks=3),
        sweep(mini, [tau], tasks=3, protocols=[FIVE]),
        sweep(mini, [tau], tasks=3, protocols=[ONE, FIVE]),
        sweep(mini, [tau], tasks=3, protocols=[TaskProtocol(name="veilleux")]),
        sweep(mini, [tau], tasks=3, protocols=[TaskProtocol(alpha=None)]),
        sweep(mini, [tau], tasks=3, parameters={"beta": 1}),
        sweep(mini, [tau], tasks=3, methods="bavardage:released"),
        sweep(mini, [tau, Axis("alpha", (1.0, 4.0))], tasks=3),
        sweep(mini, [shots], tasks=3),
        sweep(mini, [shots], tasks=3, protocols=[TaskProtocol(alpha=3.0)]),
        sweep(mini, [shots], tasks=3, methods="ncm"),
    ]
    signatures = [one.signature for one in found]
    assert len(set(signatures)) == len({one.name for one in found}) == len(found)
    assert "|disjoint:1|5w1s75q|dirichlet:2|bavardage|seed:0|tasks:3|over:tau=0.1|params:" in signatures[0]
    assert "|5w1s75q+5w5s75q|" in signatures[3]
    assert "|bavardage(beta:1)|" in signatures[6]
    assert "|dirichlet:1+dirichlet:4|" in signatures[8]
    assert "|5w*s75q|dirichlet:3|" in signatures[10]


def test_other_features_of_the_same_name_make_another_file(mini: FeatureFile, tmp_path: Path) -> None:
    other = FeatureFile.open(make_features(seed=3).write(tmp_path / "mini-wrn.h5", "mini", "wrn"))
    axes = [Axis("shots", (1, 5))]
    first, second = (sweep(file, axes, tasks=3, methods="ncm") for file in (mini, other))
    assert first.signature == second.signature
    assert first.name != second.name
    assert sweep(mini, axes, tasks=3, methods="ncm").name == first.name


def test_long_names_fit_into_the_file_system(features: Features, tmp_path: Path) -> None:
    name = 100 * "é"
    file = FeatureFile.open(features.write(tmp_path / "f.h5", name, name))
    found = sweep(file, [Axis("shots", (1,))], tasks=3, methods="ncm", results=tmp_path, name=", ".join(200 * ["ncm"]))
    save_sweep(tmp_path / f"{found.name}.json", found)
    (record,) = (tmp_path / "points").glob("*.json")
    assert load_record(record).dataset == load_record(record).backbone == name
    assert sweep(file, [Axis("shots", (1,))], tasks=3, methods="ncm", results=tmp_path).panels == found.panels


def test_points_say_which_version_computed_them(mini: FeatureFile, tmp_path: Path) -> None:
    sweep(mini, [Axis("shots", (1,))], tasks=3, methods="ncm", results=tmp_path)
    (path,) = (tmp_path / "points").glob("*.json")
    save_record(path, replace(load_record(path), versions={"fsbench": "0.0.9"}))
    found = sweep(mini, [Axis("shots", (1, 5))], tasks=3, methods="ncm", results=tmp_path)
    assert found.signature.startswith(f"fsbench:0.0.9+{fsbench.__version__}|")
