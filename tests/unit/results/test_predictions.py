"""Class probabilities beside records: the same tasks, the same counts, checked when they are read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

from fsbench.errors import FsbenchError
from fsbench.evaluation.run import Job, configure
from fsbench.evaluation.source import load_source
from fsbench.features.store import FeatureFile
from fsbench.io.hdf5 import seal
from fsbench.report.plots.predictions import confused_first
from fsbench.results.predictions import (
    Predictions,
    confusion,
    in_half_precision,
    load_predictions,
    predictions_path,
    reliability,
)
from fsbench.results.record import load_record
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.comparing import runner

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.results.record import RunRecord
    from tests.synthetic import Features

TASKS = 30
PROTOCOLS = {
    "disjoint": TaskProtocol(),
    "veilleux": TaskProtocol("veilleux", alpha=0.5),  # tasks of unequal numbers of queries
    "keff": TaskProtocol("keff", ways=10, queries=40, present=4, alpha=None),
}


def solved(
    features: Features, folder: Path, rules: TaskProtocol, method: str = "soft-kmeans", **options: Any
) -> tuple[RunRecord, Path]:
    source = load_source(FeatureFile.open(features.write(folder / "f.h5")), "novel", features.statistics)
    configured, origin = configure(method, source, rules, {})
    record = runner(folder / "results", predictions=True, **options).run(
        Job(configured, rules, 3, TASKS, origin), source
    )
    (path,) = (folder / "results").glob("*.json")
    return record, predictions_path(path)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_predictions_are_of_the_tasks_of_the_record_and_give_its_counts(
    features: Features, tmp_path: Path, name: str
) -> None:
    record, path = solved(features, tmp_path, PROTOCOLS[name])
    found = load_predictions(path, record)
    drawn = sample_tasks(PROTOCOLS[name], features.novel.offsets, 3, np.arange(TASKS))
    assert found.correct.tolist() == record.correct
    assert found.asked.sum(axis=1).tolist() == record.queries
    assert np.array_equal(found.rows, drawn.query)
    assert np.array_equal(found.labels, drawn.query_labels)
    assert np.array_equal(found.classes, drawn.classes)
    assert found.class_names == features.novel.class_names
    own = np.take_along_axis(found.classes, np.maximum(found.labels, 0).astype(np.int64), axis=1)[found.asked]
    assert np.array_equal(own, features.novel.labels[found.rows[found.asked]])
    assert np.abs(found.probabilities[found.asked].sum(axis=1, dtype=np.float64) - 1).max() < 0.005
    assert not found.probabilities[~found.asked].any()
    assert (name == "veilleux") == (len(set(record.queries)) > 1)


def test_a_record_without_predictions_is_computed_again_and_is_the_same(features: Features, tmp_path: Path) -> None:
    first, path = solved(features, tmp_path, TaskProtocol())
    content = path.read_bytes()
    solved(features, tmp_path, TaskProtocol())  # both are there
    assert path.read_bytes() == content
    path.unlink()
    again, _ = solved(features, tmp_path, TaskProtocol(), batch=7)
    assert again.correct == first.correct
    assert path.read_bytes() == content  # whatever the blocks
    assert [file.name for file in path.parent.iterdir() if file.suffix not in {".json", ".h5"}] == []


def test_rounding_never_changes_an_answer() -> None:
    rng = np.random.default_rng(0)
    middle = rng.uniform(0.2, 0.5, size=4000)
    close = np.stack([middle, middle * (1 + 1e-6), middle * (1 + 2e-6), 1 - 3 * middle], axis=-1)
    answers = close.argmax(axis=-1)
    assert (close.astype(np.float16).argmax(axis=-1) != answers).mean() > 0.3
    halves = in_half_precision(close, answers)
    assert np.array_equal(halves.argmax(axis=-1), answers)
    assert np.abs(halves - close).max() < 1e-3


def test_files_that_are_not_of_the_record_are_refused(features: Features, tmp_path: Path) -> None:
    record, path = solved(features, tmp_path, TaskProtocol())
    whole = path.read_bytes()
    with pytest.raises(FsbenchError, match="belong to another run"):
        load_predictions(path, replace(record, key=replace(record.key, seed=4)))
    with pytest.raises(FsbenchError, match="do not give the counts"):
        load_predictions(path, replace(record, correct=[record.correct[0] - 1, *record.correct[1:]]))
    with pytest.raises(FsbenchError, match="no predictions at"):
        load_predictions(path.with_name("none.h5"), record)
    path.write_bytes(whole[:-100] + b"x" * 100)
    with pytest.raises(FsbenchError, match="not as it was written"):
        load_predictions(path, record)
    for name, value, words in (
        ("labels", 9, "out of range"),
        ("classes", 99, "out of range"),
        ("probabilities", np.nan, "not a number"),
    ):
        path.write_bytes(whole)
        with h5py.File(path, "r+") as file:
            file[name][0, 0] = value
        seal(path)
        with pytest.raises(FsbenchError, match=words):
            load_predictions(path, record)
    path.write_bytes(whole)
    with h5py.File(path, "r+") as file:
        del file["rows"]
        file.create_dataset("rows", data=np.zeros((TASKS, 3), np.int32))
    seal(path)
    with pytest.raises(FsbenchError, match="not one row and one label per query"):
        load_predictions(path, record)
    assert load_record(path.with_suffix(".json")).correct == record.correct


def made(answers: Any, labels: Any, classes: Any, sure: float = 0.9) -> Predictions:
    """Predictions with these answers, each given with the same probability."""
    given, count = np.asarray(answers), np.asarray(classes).shape[1]
    probabilities = np.full((*given.shape, count), (1 - sure) / (count - 1), np.float16)
    np.put_along_axis(probabilities, given[..., None], np.float16(sure), axis=2)
    own = np.asarray(labels, dtype=np.int16)
    names = tuple("abc")
    return Predictions(probabilities, own.astype(np.int32), own, np.asarray(classes, dtype=np.int32), names)


def test_the_confusion_of_two_classes_is_over_the_tasks_that_have_both() -> None:
    # Task 0 has classes a and b, task 1 has c and a.
    found = made([[0, 1, 1, 1], [0, 1, 0, 0]], [[0, 0, 1, 1], [0, 1, 1, -1]], [[0, 1], [2, 0]])
    a, b, c = confusion(found)
    assert a.tolist() == [
        50.0,
        50.0,
        50.0,
    ]  # of four: two right; of two beside b, one got b; of two beside c, one got c
    assert b[:2].tolist() == [0.0, 100.0]
    assert np.isnan(b[2])  # never together
    assert c[[0, 2]].tolist() == [0.0, 100.0]


def test_confused_classes_stand_side_by_side() -> None:
    values = np.zeros((6, 6))
    for one, other in ((0, 3), (3, 5), (1, 4), (4, 2)):
        values[one, other] = 30.0
    order = confused_first(values).tolist()
    assert sorted(order) == [*range(6)]
    places = {number: place for place, number in enumerate(order)}
    assert all(abs(places[one] - places[other]) == 1 for one, other in ((0, 3), (3, 5), (1, 4), (4, 2)))
    assert confused_first(values[:2, :2]).tolist() == [0, 1]


def test_the_calibration_error_is_the_distance_of_confidence_from_accuracy() -> None:
    found = reliability(made([[0, 0, 0, 1]], [[0, 0, 1, -1]], [[0, 1]], sure=0.75), "mine")
    assert found.counts.sum() == 3  # not the one that is no query
    assert found.counts[11] == 3  # 0.75 is in the twelfth of 15 bins
    assert (found.confidence[11], round(found.accuracy[11], 3)) == (75.0, 66.667)
    assert found.error == pytest.approx(75 - 100 * 2 / 3)
    assert np.isnan(found.confidence[0])
    assert reliability(made([[0]], [[0]], [[0, 1]], sure=1.0), "mine").counts[14] == 1
    with pytest.raises(FsbenchError, match="mine do not sum to one"):
        reliability(replace(made([[0]], [[0]], [[0, 1]]), probabilities=np.ones((1, 1, 2), np.float16)), "mine")
