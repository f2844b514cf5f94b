"""Sweeps, and the tables and figures of the article."""

import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsbench.errors import FsbenchError
from fsbench.evaluation import run as running
from fsbench.evaluation.options import Comparing
from fsbench.evaluation.reproduce import TABLES, Reproduction, reproduce
from fsbench.evaluation.spec import Axis, at, parse_methods, protocols_of
from fsbench.evaluation.sweep import FIGURES, plan_sweep, run_sweep
from fsbench.features.store import FeatureFile, Provenance, Split
from fsbench.reporter import Reporter
from fsbench.results.collect import read_sweeps
from fsbench.results.published import article_number, published_curve
from fsbench.results.studies import SWEEPS, Sweep, load_sweep, save_sweep
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import compared, job, runner, source_in_memory
from tests.records import make_record
from tests.synthetic import Features, feature_file, make_features
from tests.watching import watch

ONE, FIVE = TaskProtocol(), TaskProtocol(shots=5)


@pytest.fixture(scope="module")
def mini(features: Features, tmp_path_factory: pytest.TempPathFactory) -> FeatureFile:
    return FeatureFile.open(features.write(tmp_path_factory.mktemp("sweep") / "mini-wrn.h5", "mini", "wrn"))


def sweep(file: FeatureFile, axes: list[Axis], **options: Any) -> Sweep:
    plans = plan_sweep(
        parse_methods(options.pop("methods", "bavardage")), axes, options.pop("splits", ["novel"]),
        options.pop("protocols", [ONE]),
    )  # fmt: skip
    made = runner(options.pop("results", None), force=options.pop("force", False))
    return run_sweep(plans, file, made, **{"name": "test", "tasks": 12, "seed": 0, **options})


def test_a_point_is_what_a_run_gives_there(mini: FeatureFile, features: Features) -> None:
    (panel,) = sweep(mini, [Axis("tau", (0.1, 0.5)), Axis("alpha", (1.0, 4.0))], splits=["val", "novel"]).panels
    assert (panel.axis, panel.title) == ("τ", "5-way, 1-shot, 75 queries")
    assert [curve.label for curve in panel.curves] == ["α* = 1, val", "α* = 1, novel", "α* = 4, val", "α* = 4, novel"]
    for curve, (alpha, split) in zip(panel.curves, itertools.product((1.0, 4.0), ("val", "novel")), strict=True):
        source = source_in_memory(features, split)
        for point, tau in zip(curve.points, (0.1, 0.5), strict=True):
            record = runner().run(job(source, "bavardage", 12, TaskProtocol(alpha=alpha), options={"tau": tau}))
            assert (point.x, point.accuracy, point.ci95) == (tau, record.accuracy, record.ci95)


def test_only_missing_points_are_computed(mini: FeatureFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sweep(mini, [Axis("beta", (0.0, 10.0))], results=tmp_path)
    computed = watch(monkeypatch, running, "solve", lambda *arguments, **options: 1)
    assert sweep(mini, [Axis("beta", (0.0, 10.0))], results=tmp_path) == first
    assert computed == []
    longer = sweep(mini, [Axis("beta", (0.0, 5.0, 10.0))], results=tmp_path)
    assert len(computed) == 1
    assert longer.panels[0].curves[0].points[::2] == first.panels[0].curves[0].points
    assert longer.name != first.name
    assert not list(tmp_path.glob("*.h5"))  # single points are not among the results that people collect


def test_axes_of_the_protocol_are_whole_numbers_where_they_count() -> None:
    wrong: list[tuple[str, Any, str]] = [
        ("shots", (1, 2.5), "whole numbers"), ("alpha", ("high",), "numbers"), ("tau", (1.0, 1.0), "twice"),
    ]  # fmt: skip
    for name, values, words in wrong:
        with pytest.raises(FsbenchError, match=words):
            Axis(name, values)
    assert at({"shots": 5, "tau": 0.1}, ONE, {"beta": 3.0}) == (FIVE, {"beta": 3.0, "tau": 0.1})


@pytest.mark.parametrize(("number", "panels", "points"), [(3, 2, 36), (4, 2, 18), (5, 8, 116)])
def test_a_figure_has_the_points_of_the_article_s(number: int, panels: int, points: int) -> None:
    plans = FIGURES[number]("article")
    assert len(plans) == panels
    assert sum(len(plan.axis.values) * len(plan.lines) for plan in plans) == points
    for plan in plans:
        for line in plan.lines:
            rules: dict[str, Any] = {"shots": line.protocol.shots, "alpha": line.protocol.alpha, "split": line.split}
            rules |= {"dataset": "mini", "backbone": "wrn", "family": "wrn-simpleshot"}
            record = make_record(line.choice.method, **rules)
            assert {x for x, _ in published_curve(record, plan.axis.name)} == set(plan.axis.values)
    if number == 5:  # whose units are the article's only where it has a preset
        assert {plan.axis.name for plan in plans} == {"t_km", "t_vb", "s_max", "beta"}
        assert {plan.axis.name for plan in FIGURES[5]("")} == {"t_km", "tau", "sigma", "beta"}


def test_a_sweep_is_read_as_it_was_written_and_what_is_none_is_named(mini: FeatureFile, tmp_path: Path) -> None:
    made, path = sweep(mini, [Axis("t_vb", (30.0, 50.0))], splits=["val", "novel"]), tmp_path / "x.json"
    assert not any(curve.published for curve in made.panels[0].curves)  # beside other images than the benchmark's
    save_sweep(path, made)
    assert load_sweep(path) == made
    empty = '{"name":"n","title":"t","signature":"s","panels":[{"axis":"a","title":"t","curves":[]}]}'
    for text in ("", "[]", '{"name": 1}', empty):
        path.write_text(text)
        with pytest.raises(FsbenchError, match=r"x\.json"):
            load_sweep(path)


def test_different_sweeps_have_different_signatures(mini: FeatureFile, tmp_path: Path) -> None:
    tau, alpha = Axis("tau", (0.1,)), Axis("alpha", (1.0, 4.0))
    asked: list[dict[str, Any]] = [{}, {"protocols": [ONE, FIVE]}, {"methods": "ncm,soft-kmeans", "axes": [alpha]}]
    made = [sweep(mini, **{"axes": [tau], "tasks": 3, **one}) for one in asked]
    first, second, third = [one.signature for one in made]
    assert len({first, second, third}) == len({one.name for one in made}) == 3
    assert "|disjoint:1|5w1s75q|dirichlet:2|seed:0|tasks:3|params:default+given@" in first
    assert first.endswith("|over:tau=0.1")
    assert ("|5w1+5s75q|" in second, "|dirichlet:1+dirichlet:4|" in third) == (True, True)
    assert [curve.label for curve in made[2].panels[0].curves] == ["ncm", "soft-kmeans"]
    other = FeatureFile.open(make_features(seed=3).write(tmp_path / "mini-wrn.h5", "mini", "wrn"))
    there = sweep(other, [tau], tasks=3)
    assert (there.signature != first, there.name != made[0].name) == (True, True)
    on_val = sweep(mini, [tau], tasks=3, splits=["val"], seed=4, protocols=[replace(ONE, name="veilleux")])
    assert on_val.title.endswith("3 tasks per point, seed 4, val, veilleux")
    for number, one in enumerate([made[0], on_val, there]):  # of one title, the last written counts
        save_sweep(path := tmp_path / SWEEPS / f"{-number}.json", one)
        os.utime(path, (number, number))
    assert read_sweeps(tmp_path, Reporter(silent=True)) == [there, on_val]


PUBLISHED = Provenance("mini", "wrn", family="wrn-simpleshot", weights="wrn.pth.tar", architecture="")
CROPS = Provenance("cifarfs", "rn12", family="rn12-easy", crops=2)
NARROW = Provenance("cifarfs", "rn12", family="rn12-easy", weights="rn12.safetensors", trained_by="fsbench")


def store(folder: Path, made: Provenance, features: Features, dimension: int) -> FeatureFile:
    """A file of that many features per image: those of the tests, padded with zeros."""

    def padded(split: Split) -> Split:
        return replace(split, features=np.pad(split.features, ((0, 0), (0, dimension - split.features.shape[1]))))

    path = folder / "features" / f"{made.dataset}-{made.backbone}.h5"
    path.parent.mkdir(exist_ok=True)
    return feature_file(path, made, **{name: padded(getattr(features, name)) for name in ("base", "val", "novel")})


@pytest.fixture(scope="module")
def files(features: Features, tmp_path_factory: pytest.TempPathFactory) -> list[FeatureFile]:
    folder = tmp_path_factory.mktemp("tables")
    return [store(folder, PUBLISHED, features, 640), store(folder, NARROW, features, 48)]


def table_of(name: str, files: list[FeatureFile]) -> Reproduction:
    return reproduce(name, files, runner(), tasks=20, seed=0, weights=Path("weights"))


@pytest.fixture(scope="module")
def table2(files: list[FeatureFile]) -> Reproduction:
    return table_of("table2", files)


def test_every_number_of_the_articles_tables_has_a_cell() -> None:
    counts = {}
    for name, layout in TABLES.items():
        columns = protocols_of(Comparing(settings=layout.settings))
        numbers = [
            article_number(dataset, backbone, method, column)
            for dataset, networks in layout.blocks
            for backbone, methods in networks
            for method in methods
            for column in columns
        ]
        counts[name] = sum(number is not None for number in numbers)
    # Counted in the article: Table 1 has no α-TIM on balanced tasks; its BAVARDAGE rows are those of Table 3.
    assert counts == {"table1": 150, "table2": 12, "table3": 120}


def test_ours_is_what_compare_gives_with_the_articles_preset(files: list[FeatureFile], table2: Reproduction) -> None:
    mini = dict(table2.blocks)["mini"]
    assert [row.method for row in mini] == ["Soft-KMEANS", "Soft-KMEANS+VB", "BAVARDAGE"]
    columns = protocols_of(Comparing(settings=("unbalanced",)))
    expected = compared("soft-kmeans,bavardage", [files[0]], columns, tasks=20, preset="article")
    digests = {record.run.digest for record in expected.records}
    assert all(cell.ours and cell.ours.run.digest in digests for row in (mini[0], mini[2]) for cell in row.cells)
    cell = mini[2].cells[0]
    assert cell.published == 74.10
    assert cell.ours
    assert cell.gap == pytest.approx(cell.ours.accuracy - 74.10)
    assert table2.notes[0].startswith("20 tasks per cell, seed 0; 95 % intervals are at most ± ")


def test_other_networks_get_the_scale_free_defaults_and_a_note(files: list[FeatureFile], table2: Reproduction) -> None:
    rows = dict(table2.blocks)["cifarfs"]  # which Table 2 of the article does not have
    assert all(cell.ours and cell.published is None for row in rows for cell in row.cells)
    table = table_of("table3", files)
    ours = [cell.ours for row in dict(table.blocks)["cifarfs"] if row.backbone == "RN12" for cell in row.cells]
    assert all(record and record.origins.kind == "default" for record in ours)
    parameters, network, images = [note for note in table.notes if note.startswith("cifarfs RN12:")]
    assert "scale-free" in parameters
    assert "not as published: trained by fsbench" in network
    assert "novel has 520 images of 10 classes instead of" in images


def test_missing_cells_say_what_to_put_where(features: Features, tmp_path: Path) -> None:
    table = table_of("table1", [store(tmp_path, replace(PUBLISHED, dataset="mini-vinyals"), features, 640)])
    assert not any(cell.ours for _, rows in table.blocks for row in rows for cell in row.cells)
    assert not any(
        cell.ours
        for _, rows in table_of("table3", [store(tmp_path, CROPS, features, 48)]).blocks
        for row in rows
        for cell in row.cells
    )
    (note,) = [note for note in table.notes if note.startswith("cub RN18 is missing")]
    assert "weights/cub/rn18.pth.tar" in note
    assert "fsbench extract --dataset cub --backbone rn18" in note
