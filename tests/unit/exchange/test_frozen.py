"""Task lists for other programs, and records of their predictions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsbench.errors import FsbenchError
from fsbench.exchange.frozen import freeze, read_frozen, score
from fsbench.features.store import FeatureFile
from fsbench.results.collect import add_records
from fsbench.results.comparison import Runs
from fsbench.results.record import Record, load_record
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import QUIET, compared
from tests.records import store
from tests.synthetic import Features, make_features

ONE, SHORT = TaskProtocol(), TaskProtocol("veilleux", queries=90, alpha=0.3)
TASKS = 12


@pytest.fixture
def file(features: Features, tmp_path: Path) -> FeatureFile:
    return FeatureFile.open(features.write(tmp_path / "own.h5"))


def scored(file: FeatureFile, folder: Path, name: str = "mine", **arrays: Any) -> Record:
    np.savez(folder / "predictions.npz", **arrays)
    return score(file, folder / "tasks.npz", folder / "predictions.npz", name=name, assumes="no prior")


@pytest.mark.parametrize("rules", [ONE, SHORT])
def test_a_list_has_all_that_a_model_needs(file: FeatureFile, tmp_path: Path, rules: TaskProtocol) -> None:
    frozen = freeze(tmp_path / "tasks.npz", file, "novel", rules, seed=3, tasks=TASKS)
    assert read_frozen(tmp_path / "tasks.npz") == frozen
    drawn = frozen.draw(file)
    with np.load(tmp_path / "tasks.npz", allow_pickle=False) as content:
        assert {*content.files} == {"about", "support", "support_labels", "query", "images"}
        for name in ("support", "query", "support_labels"):
            np.testing.assert_array_equal(content[name], getattr(drawn, name))
        assert content["images"].tolist() == list(file.images("novel")[0])
        assert json.loads(str(content["about"]))["seed"] == 3
    assert (drawn.query < 0).any() == (rules is SHORT)
    other = FeatureFile.open(make_features(seed=9).write(tmp_path / "other.h5"))  # the same rows of other images
    assert freeze(tmp_path / "b.npz", other, "novel", rules, seed=3, tasks=TASKS).digest != frozen.digest


@pytest.mark.parametrize("rules", [ONE, SHORT])
def test_answers_of_fsbench_scored_give_its_numbers(file: FeatureFile, tmp_path: Path, rules: TaskProtocol) -> None:
    freeze(tmp_path / "tasks.npz", file, "novel", rules, seed=0, tasks=TASKS)
    table = compared("ncm", [file], [rules], tasks=TASKS, baseline="ncm")
    ours = table.records[0]
    record = scored(file, tmp_path, predicted=ours.answers.predicted, confidence=ours.answers.confidence)
    assert record.answers == ours.answers
    assert (record.method.label, record.method.assumes, record.method.elsewhere) == ("mine", "no prior", True)
    (path,) = store(tmp_path / "results", record)
    assert load_record(path) == record
    runs: Runs = {(0, "ncm", table.columns[0]): ours}
    assert add_records(runs, [path], QUIET) == ["mine"]
    assert np.isnan(record.tasks_per_second)


def test_probabilities_give_predictions_and_confidence(file: FeatureFile, tmp_path: Path) -> None:
    freeze(tmp_path / "tasks.npz", file, "novel", ONE, seed=0, tasks=TASKS)
    shares = np.random.default_rng(0).dirichlet(np.ones(5), (TASKS, 75))
    record = scored(file, tmp_path, probabilities=shares)
    np.testing.assert_array_equal(record.answers.predicted, shares.argmax(axis=2))
    np.testing.assert_allclose(record.answers.confidence, shares.max(axis=2), atol=1e-3)
    alone = scored(file, tmp_path, predicted=record.answers.predicted)
    assert np.isnan(alone.answers.confidence).all()
    assert alone.run.method != record.run.method  # other answers are another run


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, "neither predicted"),
        ({"predicted": np.zeros((TASKS, 74), int)}, r"predicted must be \(12, 75\)"),
        ({"predicted": np.full((TASKS, 75), 5)}, "whole numbers from 0 to 4"),
        ({"predicted": np.zeros((TASKS, 75))}, "whole numbers"),
        ({"predicted": np.zeros((TASKS, 75), int), "confidence": np.full((TASKS, 75), np.nan)}, "from 0 to 1"),
        ({"probabilities": np.full((TASKS, 75, 5), np.nan)}, "sum to one"),
        ({"predicted": np.zeros((TASKS, 75), int), "digest": np.array("0" * 16)}, "another list of tasks"),
        ({"predicted": np.array([{}])}, "cannot be read as predictions"),
    ],
)
def test_unfit_predictions_are_refused(file: FeatureFile, tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    freeze(tmp_path / "tasks.npz", file, "novel", ONE, seed=0, tasks=TASKS)
    with pytest.raises(FsbenchError, match=words):
        scored(file, tmp_path, **arrays)


def test_other_features_rows_and_taken_names_are_refused(features: Features, file: FeatureFile, tmp_path: Path) -> None:
    freeze(tmp_path / "tasks.npz", file, "novel", ONE, seed=0, tasks=TASKS)
    predicted = np.zeros((TASKS, 75), int)
    for name in ("bavardage", "ncm:x", "a,b", "ncm ", "a\nb", ""):
        with pytest.raises(FsbenchError, match=r"is a method of fsbench|expected one line"):
            scored(file, tmp_path, name, predicted=predicted)
    with np.load(tmp_path / "tasks.npz") as content:
        changed = dict(content)
    np.savez(tmp_path / "tasks.npz", **(changed | {"query": changed["query"][:, ::-1]}))
    with pytest.raises(FsbenchError, match="do not match its digest"):
        scored(file, tmp_path, predicted=predicted)
    other = FeatureFile.open(make_features(seed=9).write(tmp_path / "other.h5"))
    freeze(tmp_path / "tasks.npz", other, "novel", ONE, seed=0, tasks=TASKS)
    with pytest.raises(FsbenchError, match="other features"):
        scored(file, tmp_path, predicted=predicted)
    for wrong in ({"about": np.array("{}")}, {"x": np.zeros(3)}):
        np.savez(tmp_path / "tasks.npz", **wrong)
        with pytest.raises(FsbenchError, match=r"tasks\.npz"):
            scored(file, tmp_path, predicted=predicted)


def test_outlier_scores_are_those_given(file: FeatureFile, tmp_path: Path) -> None:
    freeze(tmp_path / "tasks.npz", file, "novel", TaskProtocol("open-set", unknown=5, queries=50), seed=0, tasks=TASKS)
    scores = np.random.default_rng(0).random((TASKS, 50), dtype=np.float32)
    record = scored(file, tmp_path, predicted=np.zeros((TASKS, 50), int), outlier=scores)
    np.testing.assert_array_equal(record.answers.outlier, scores)
