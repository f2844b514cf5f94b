"""Class probabilities of every query of a recorded run, in an HDF5 file beside the record, and what they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fsbench.errors import FsbenchError
from fsbench.io.files import whole_file
from fsbench.io.hdf5 import attribute_of, dataset_of, encode, open_hdf5, sealed_hdf5, strings_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fsbench.results.record import RunRecord
    from fsbench.tasks.sampling import TaskRows

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

FORMAT = "fsbench-predictions"
VERSION = 1
BINS = 15
_ARRAYS = {"probabilities": (3, "f"), "rows": (2, "i"), "labels": (2, "i"), "classes": (2, "i")}  # dimensions, kind
_REMEDY = "Compute them again with --save-predictions --force."


@dataclass(frozen=True)
class Predictions:
    """The answers of one method to T tasks with at most Q queries and K classes each.

    Attributes:
        probabilities: (T, Q, K) float16; the largest is that of the class that was counted as the answer.
        rows: (T, Q) row of every query in the split, -1 where a task has fewer queries.
        labels: (T, Q) true class of every query within its task, 0..K-1, or -1.
        classes: (T, K) class of the split behind every label.
        class_names: Of the split.
    """

    probabilities: NDArray[np.float16]
    rows: NDArray[np.int32]
    labels: NDArray[np.int16]
    classes: NDArray[np.int32]
    class_names: tuple[str, ...]

    @classmethod
    def of(cls, probabilities: NDArray[np.float16], drawn: Sequence[TaskRows], names: tuple[str, ...]) -> Predictions:
        """Probabilities with the tasks that they belong to."""
        rows, labels, classes = (
            np.concatenate([getattr(part, name) for part in drawn]) for name in ("query", "query_labels", "classes")
        )
        return cls(probabilities, rows.astype("<i4"), labels.astype("<i2"), classes.astype("<i4"), names)

    @property
    def asked(self) -> NDArray[np.bool_]:
        """(T, Q) whether there is a query."""
        return self.labels >= 0

    @property
    def answers(self) -> Ints:
        """(T, Q) label that was given to every query."""
        answers: Ints = self.probabilities.argmax(axis=2)
        return answers

    @property
    def correct(self) -> Ints:
        """(T,) right answers, as the record has them."""
        right: Ints = ((self.answers == self.labels) & self.asked).sum(axis=1)
        return right


def in_half_precision(probabilities: NDArray[np.floating], answers: Ints) -> NDArray[np.float16]:
    """Probabilities (…, K) as float16, in which the first of the largest is still the answer (…)."""
    halves = probabilities.astype(np.float16)
    best = np.take_along_axis(halves, answers[..., None], axis=-1)
    earlier = np.arange(halves.shape[-1]) < answers[..., None]
    tied = earlier & (halves >= best)  # by rounding
    np.nextafter(halves, np.float16(-np.inf), out=halves, where=tied)
    return halves


def predictions_path(record: Path) -> Path:
    """The file of predictions that belongs to the file of a record."""
    return record.with_suffix(".h5")


def save_predictions(path: Path, digest: str, predictions: Predictions) -> None:
    """Write the predictions of the run with this key digest, whole or not at all."""
    with whole_file(path) as temporary, sealed_hdf5(temporary) as file:
        file.attrs["format"] = FORMAT
        file.attrs["version"] = VERSION
        file.attrs["record"] = digest
        for name in _ARRAYS:
            file.create_dataset(name, data=getattr(predictions, name))
        file.create_dataset("class_names", data=encode(predictions.class_names))


def load_predictions(path: Path, record: RunRecord) -> Predictions:
    """Read the predictions of a record; they must be of its run and give its counts."""
    if not path.exists():
        raise FsbenchError(f"There are no predictions at {path}.", "Write them with --save-predictions.")
    with open_hdf5(path, FORMAT, VERSION) as file:
        run = attribute_of(file, "record")
        arrays = {
            name: np.asarray(dataset_of(file, name, path, ndim=ndim, kind=kind)[()])
            for name, (ndim, kind) in _ARRAYS.items()
        }
        found = Predictions(**arrays, class_names=strings_of(file, "class_names", path))
    if run != record.key.digest():
        raise FsbenchError(f"The predictions in {path} belong to another run than their name says.", _REMEDY)
    if trouble := _trouble(found, record):
        raise FsbenchError(f"The predictions in {path} are damaged: {trouble}.", _REMEDY)
    return found


def _trouble(found: Predictions, record: RunRecord) -> str:
    """What contradicts itself or the record, or nothing."""
    tasks, queries, ways = found.probabilities.shape
    if found.rows.shape != (tasks, queries) or found.labels.shape != (tasks, queries):
        return "there is not one row and one label per query"
    if found.classes.shape != (tasks, ways) or tasks != record.key.tasks:
        return f"they are not of {record.key.tasks} tasks"
    if not np.isfinite(found.probabilities).all():
        return "a probability is not a number"
    limits = ((found.labels, -1, ways), (found.classes, 0, len(found.class_names)), (found.rows, -1, 2**31))
    if any(array.size and not (low <= array.min() and array.max() < high) for array, low, high in limits):
        return "a label, a class or a row is out of range"
    if found.correct.tolist() != record.correct or found.asked.sum(axis=1).tolist() != record.queries:
        return "they do not give the counts of the record"
    return ""


def find_predictions(records: Sequence[RunRecord], given: Sequence[Path]) -> dict[str, Path]:
    """The files of predictions among record files and folders, by the key digests of their records."""
    paths = [file for path in given for file in (path.glob("*.h5") if path.is_dir() else [predictions_path(path)])]
    by_name = {"-".join(path.stem.rsplit("-", 2)[1:]): path for path in sorted(paths) if path.exists()}
    named = {f"{record.key.digest('tasks')}-{record.key.tasks}": record.key.digest() for record in records}
    found = {named[name]: path for name, path in by_name.items() if name in named}
    if not found:
        places = ", ".join(map(str, given))
        raise FsbenchError(
            f"There are no predictions in {places}.",
            "Write them: fsbench compare --save-predictions, or fsbench solve.",
        )
    return found


def confusion(found: Predictions) -> Floats:
    """(C, C) percent of the queries of one class that got another, of those in tasks that have both; else NaN.

    On the diagonal: percent of the queries of a class that were answered right.
    """
    count, asked = len(found.class_names), found.asked
    tasks = np.broadcast_to(np.arange(len(asked))[:, None], asked.shape)[asked]
    true = found.classes[tasks, found.labels[asked]]
    answered = found.classes[tasks, found.answers[asked]]
    pairs = np.bincount(true * np.int64(count) + answered, minlength=count**2).reshape(count, count)
    queries = np.zeros((len(asked), count))
    np.add.at(queries, (tasks, true), 1.0)
    present = np.zeros_like(queries)
    np.put_along_axis(present, found.classes.astype(np.int64), 1.0, axis=1)
    together = queries.T @ present
    shares: Floats = np.divide(100.0 * pairs, together, out=np.full_like(together, np.nan), where=together > 0)
    return shares


@dataclass(frozen=True)
class Reliability:
    """How often a method is right, by how sure it is: 15 bins of the largest probability, of equal width.

    Attributes:
        counts: (15,) queries.
        confidence: (15,) mean largest probability, in percent; NaN where there is no query.
        accuracy: (15,) percent of right answers.
        error: Expected calibration error: mean |accuracy − confidence| over queries, bin by bin, in points.
    """

    counts: Ints
    confidence: Floats
    accuracy: Floats
    error: float


def reliability(found: Predictions, method: str) -> Reliability:
    """Confidence against accuracy of a method over all queries of all tasks."""
    probabilities = found.probabilities[found.asked].astype(np.float64)
    if np.abs(probabilities.sum(axis=1) - 1.0).max() > 0.02:
        message = f"The probabilities of {method} do not sum to one, so they say nothing about how sure it is."
        raise FsbenchError(message, "Pass the record files of other methods.")
    sure = probabilities.max(axis=1)
    right = (found.answers == found.labels)[found.asked]
    bins = np.clip(np.ceil(BINS * sure).astype(np.int64) - 1, 0, BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    confidence, accuracy = (
        np.divide(100.0 * np.bincount(bins, values, BINS), counts, out=np.full(BINS, np.nan), where=counts > 0)
        for values in (sure, right)
    )
    gaps = np.nan_to_num(np.abs(accuracy - confidence))
    return Reliability(counts, confidence, accuracy, float((counts * gaps).sum() / counts.sum()))
