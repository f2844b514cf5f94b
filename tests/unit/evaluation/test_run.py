from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fsbench.errors import FsbenchError
from fsbench.evaluation.engine import Outcome, solve_tasks
from fsbench.evaluation.run import Job
from fsbench.evaluation.source import Source
from fsbench.features.store import FeatureFile, Provenance, write_features
from fsbench.methods.base import Context
from fsbench.methods.bavardage import Bavardage
from fsbench.methods.ncm import NearestClassMean
from fsbench.methods.registry import method_class
from fsbench.methods.soft_kmeans import SoftKMeans
from fsbench.reporter import Reporter
from fsbench.results.collect import collect, read_records
from fsbench.results.record import load_record, save_record
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import QUIET, runner, solved

if TYPE_CHECKING:
    from pathlib import Path

    from tests.synthetic import Features


@pytest.fixture
def path(features: Features, tmp_path: Path) -> Path:
    return features.write(tmp_path / "features" / "synthetic-none.h5")


@pytest.fixture
def source(features: Features, path: Path) -> Source:
    return Source("synthetic", "none", "novel", FeatureFile.open(path).read("novel"), features.statistics)


def job(tasks: int = 20, seed: int = 0) -> Job:
    return Job(NearestClassMean(), TaskProtocol(), seed, tasks)


def test_a_record_is_written_once_and_then_reused(source: Source, tmp_path: Path) -> None:
    first = runner(tmp_path).run(job(), source)
    (path,) = tmp_path.glob("*.json")
    assert load_record(path) == first
    save_record(path, dataclasses.replace(first, created="1999-01-01T00:00:00+00:00"))
    assert runner(tmp_path).run(job(), source).created.startswith("1999")
    again = runner(tmp_path, force=True).run(job(), source)
    assert not again.created.startswith("1999")
    assert again.correct == first.correct


def test_everything_that_matters_makes_another_record(source: Source, tmp_path: Path) -> None:
    other_features = dataclasses.replace(source, split=dataclasses.replace(source.split, digest="other"))
    runner(tmp_path).run(job(), source)
    runner(tmp_path).run(job(21), source)
    runner(tmp_path).run(job(seed=1), source)
    runner(tmp_path).run(job(), other_features)
    runner(tmp_path).run(Job(NearestClassMean(), TaskProtocol(queries=60), 0, 20), source)
    runner(tmp_path).run(Job(Bavardage(), TaskProtocol(), 0, 20), source)
    runner(tmp_path).run(Job(Bavardage(beta=5.0), TaskProtocol(), 0, 20), source)
    assert len(list(tmp_path.glob("*.json"))) == 7
    runner(tmp_path, batch=3).run(job(), source)
    assert len(list(tmp_path.glob("*.json"))) == 7


def solved_anew(monkeypatch: pytest.MonkeyPatch) -> list[range]:
    """The tasks that are solved from now on."""
    seen: list[range] = []

    def counted(*arguments: Any, **options: Any) -> Outcome:
        outcome = solve_tasks(*arguments, **options)
        first = arguments[3].first
        seen.append(range(first, first + len(outcome.correct)))
        return outcome

    monkeypatch.setattr("fsbench.evaluation.run.solve_tasks", counted)
    return seen


def test_the_first_tasks_of_a_record_are_a_result_and_more_tasks_extend_it(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [runner().run(job(tasks), source) for tasks in (1, 12, 30)]
    seen = solved_anew(monkeypatch)
    run = runner(tmp_path).run
    for tasks in (20, 12, 30, 1):
        run(job(tasks), source)
    assert seen == [range(20), range(20, 30)]
    assert [path.stem.rpartition("-")[2] for path in sorted(tmp_path.glob("*.json"))] == ["1", "12", "20", "30"]
    for expected in whole:
        found = run(job(expected.key.tasks), source)
        for name in ("key", "correct", "queries", "accuracy", "ci95", "signature"):
            assert getattr(found, name) == getattr(expected, name), name
    assert run(job(12), source).seconds == pytest.approx(run(job(20), source).seconds * 12 / 20)
    assert run(job(30), source).seconds > run(job(20), source).seconds
    run(job(40, seed=1), source)
    runner(tmp_path, force=True).run(job(30), source)
    assert seen[2:] == [range(40), range(30)]


def test_a_record_whose_name_has_the_number_of_tasks_in_its_digest_is_found(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = runner(tmp_path).run(job(), source)
    (path,) = tmp_path.glob("*.json")
    path.rename(path.with_name(f"synthetic-none-ncm-unbalanced-1shot-{first.key.digest()}.json"))
    seen = solved_anew(monkeypatch)
    assert runner(tmp_path).run(job(), source) == first
    assert seen == []


def test_a_damaged_record_of_other_tasks_is_not_used(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner(tmp_path).run(job(), source)
    (path,) = tmp_path.glob("*.json")
    path.write_text(path.read_text()[:-20])
    seen = solved_anew(monkeypatch)
    runner(tmp_path).run(job(15), source)
    assert seen == [range(15)]


def test_a_job_with_a_time_ends_with_it_and_is_then_complete(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_tasks = runner().run(job(3_000), source)
    seen = solved_anew(monkeypatch)
    short = dataclasses.replace(job(3_000), seconds=1e-6)
    first = runner(tmp_path).run(short, source)
    assert 8 <= first.key.tasks < 3_000
    assert first.correct == all_tasks.correct[: first.key.tasks]
    assert f"|tasks:{first.key.tasks}|" in first.signature
    assert runner(tmp_path).run(short, source) == first  # its time is used up
    runner(tmp_path).run(dataclasses.replace(job(3_000), seconds=600.0), source)
    assert seen == [range(first.key.tasks), range(first.key.tasks, 3_000)]
    assert runner(tmp_path).run(short, source).key.tasks == 3_000  # nothing is left to solve


def test_a_slow_method_that_is_interrupted_loses_little(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsbench.evaluation.run._SECONDS_TO_KEEP", 1e-6)
    slow = Job(method_class("tim-gd").configure(Context(balanced=False), steps=2), TaskProtocol(), 0, 300)
    whole = runner().run(slow, source)
    seen = solved_anew(monkeypatch)
    done = 0

    def interrupt(more: int) -> None:
        nonlocal done
        done += more
        if done > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path).run(slow, source, interrupt)
    (path,) = tmp_path.glob("*.json")
    part = load_record(path)
    assert 0 < part.key.tasks <= 100
    assert part.asked == 300
    assert part.correct == whole.correct[: part.key.tasks]
    (table,) = collect(read_records(None, tmp_path, QUIET), published=False)
    assert [entry.label for entry in table.entries] == [f"tim-gd ({part.key.tasks} tasks)"]
    counted: list[int] = []
    found = runner(tmp_path).run(slow, source, counted.append)
    assert (found.key, found.correct, found.asked) == (whole.key, whole.correct, 0)
    assert sum(counted) == 300
    assert [tasks for solved in seen for tasks in solved] == [*range(300)]
    (path,) = tmp_path.glob("*.json")
    assert load_record(path) == found


def test_a_record_that_another_process_writes_meanwhile_does_not_count_twice(source: Source, tmp_path: Path) -> None:
    one, other = Job(NearestClassMean(), TaskProtocol(), 0, 300), Job(SoftKMeans(), TaskProtocol(), 0, 300)
    whole = runner().run(other, source)
    here = runner(tmp_path)
    here.run(one, source, following=[other])  # solves both, and keeps the second until it is asked for
    runner(tmp_path).run(dataclasses.replace(other, tasks=100), source)
    counted: list[int] = []
    found = here.run(other, source, counted.append)
    assert (found.key, found.correct, found.queries) == (whole.key, whole.correct, whole.queries)
    assert sum(counted) == 300
    assert sorted(load_record(path).key.tasks for path in tmp_path.glob("*soft-kmeans*")) == [100, 300]


def test_an_unfinished_record_is_not_shown_beside_the_whole_one(source: Source, tmp_path: Path) -> None:
    runner(tmp_path).run(job(8), source)
    (path,) = tmp_path.glob("*.json")
    save_record(path, dataclasses.replace(load_record(path), asked=20))
    runner(tmp_path, force=True).run(job(20), source)  # which reads no record, and so removes none
    assert len([*tmp_path.glob("*.json")]) == 2
    assert [record.key.tasks for record in read_records(None, tmp_path, QUIET)] == [20]


def test_predictions_of_a_budget_stay_when_its_record_is_completed(source: Source, tmp_path: Path) -> None:
    short = dataclasses.replace(job(3_000), seconds=1e-6)
    part = runner(tmp_path, predictions=True).run(short, source)
    runner(tmp_path).run(job(3_000), source)
    assert sorted(load_record(path).key.tasks for path in tmp_path.glob("*.json")) == [part.key.tasks, 3_000]


def test_a_slow_method_says_how_long_it_will_take(
    source: Source, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fsbench.evaluation.run._SECONDS_TO_TELL", 0.0)
    loud = dataclasses.replace(runner(), reporter=Reporter())
    slow = Job(method_class("tim-gd").configure(Context(balanced=False), steps=2), TaskProtocol(), 0, 64)
    loud.run(slow, source)
    assert re.search(r"TIM-GD, unbalanced 1-shot: 64 tasks take about \d:\d\d:\d\d\.", capsys.readouterr().err)
    loud.run(dataclasses.replace(slow, seconds=90.0), source)
    assert "as many as fit into 0:01:30 are solved." in capsys.readouterr().err
    loud.run(job(), source)
    assert capsys.readouterr().err == ""


def test_damaged_records_are_named(source: Source, tmp_path: Path) -> None:
    runner(tmp_path).run(job(), source)
    (path,) = tmp_path.glob("*.json")
    good = path.read_text()
    data = json.loads(good)
    broken = {
        "half": good[: len(good) // 2],
        "no accuracy": json.dumps({k: v for k, v in data.items() if k != "accuracy"}),
        "counts": json.dumps({**data, "correct": data["correct"][:-1]}),
        "impossible": json.dumps({**data, "correct": [10**6] * 20}),
        "another run": json.dumps({**data, "key": {**data["key"], "seed": 9}}),
    }
    for text in broken.values():
        path.write_text(text)
        with pytest.raises(FsbenchError, match="--force"):
            runner(tmp_path).run(job(), source)


def test_signature_says_what_was_done(source: Source) -> None:
    record = runner().run(Job(Bavardage(), TaskProtocol(), 3, 5, "default"), source)
    for part in (
        "synthetic/none/novel",
        "disjoint:1|5w1s75q|dirichlet:2",
        "seed:3|tasks:5",
        "tau:0.3",
        "params:default",
    ):
        assert part in record.signature


def test_a_reused_record_tells_how_the_present_job_came_to_its_parameters(path: Path, tmp_path: Path) -> None:
    def origin(**options: float) -> tuple[str, str]:
        (row,) = solved("bavardage", FeatureFile.open(path), options=options, tasks=3, results=tmp_path / "results")
        return row.record.params_from, row.record.signature.rpartition("|")[2]

    assert origin(tau=0.3) == ("default + given:tau", "params:default + given:tau")
    stored = {file: file.read_bytes() for file in (tmp_path / "results").glob("*.json")}
    assert origin() == ("default", "params:default")
    assert origin(tau=0.3) == ("default + given:tau", "params:default + given:tau")
    assert {file: file.read_bytes() for file in (tmp_path / "results").glob("*.json")} == stored


def test_a_reused_record_names_the_version_that_computed_it(source: Source, tmp_path: Path) -> None:
    first = runner(tmp_path).run(job(), source)
    (path,) = tmp_path.glob("*.json")
    assert runner(tmp_path).run(job(), source) == first
    save_record(path, dataclasses.replace(first, versions={"fsbench": "0.0.9"}))
    assert runner(tmp_path).run(job(), source).signature.startswith("fsbench:0.0.9|synthetic/")


def test_one_task_has_no_interval(source: Source) -> None:
    assert runner().run(job(1), source).ci95 is None


def test_solve_puts_soft_kmeans_beside(path: Path, tmp_path: Path) -> None:
    protocols = [TaskProtocol(shots=1), TaskProtocol(shots=5)]
    rows = solved("bavardage", FeatureFile.open(path), protocols, tasks=30, results=tmp_path / "results")
    assert [row.record.key.protocol["shots"] for row in rows] == [1, 5]
    for row in rows:
        assert row.baseline is not None
        assert row.baseline.key.method == "soft-kmeans"
        assert row.difference is not None
        assert row.difference.mean == pytest.approx(row.record.accuracy - row.baseline.accuracy)
    assert path.with_suffix(".scatter.h5").exists()
    assert len(list((tmp_path / "results").glob("*.json"))) == 4


def test_a_clear_loss_against_soft_kmeans_is_told_with_its_cause(path: Path) -> None:
    (row,) = solved("bavardage", FeatureFile.open(path), options={"tau": 0.001}, tasks=200)
    (warning,) = row.warnings
    assert warning.code == "below-baseline"
    assert "points below soft-kmeans, which it starts from; tune its parameters, or use its defaults" in warning.text
    assert row.as_dict()["warnings"] == ["below-baseline"]
    (good,) = solved("bavardage", FeatureFile.open(path), tasks=200)
    assert good.warnings == ()


def test_features_without_base_classes(features: Features, tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    write_features(path, Provenance("x", "y"), {"novel": features.novel})
    with pytest.raises(FsbenchError, match="has no base classes, which bavardage need"):
        solved("bavardage", FeatureFile.open(path))


def test_accuracy_is_plausible(source: Source) -> None:
    record = runner().run(job(200), source)
    assert 30 < record.accuracy < 99
    assert np.mean(record.per_task) == pytest.approx(record.accuracy)
