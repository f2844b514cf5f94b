"""Task lists for models that are not methods of fsbench, and records of what these answered.

A list is an npz file that NumPy alone reads: `support` (T, S) and `query` (T, Q) are row numbers, `support_labels`
(T, S) are 0 to K − 1, `images` (M,) names the image of every row, and `about` is a JSON text with what determines the
tasks. Labels of queries are not in it. Row −1 is no image, where tasks have unequal numbers of them.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

import fsbench
from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.source import load_source
from fsbench.exchange.containers import reading
from fsbench.features.store import FeatureFile
from fsbench.io.files import is_name, whole_file
from fsbench.methods.registry import method_names
from fsbench.results.record import NO_OUTLIERS, Answers, MethodFacts, Origins, Record, Run
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import TaskRows, sample_list

FORMAT = "fsbench-tasks"
_ORDER = 2000  # in lists of methods: after all others
_SUM = 0.01  # by which probabilities may miss one


@dataclass(frozen=True)
class FrozenTasks:
    """What determines a list of tasks, and a digest of their rows."""

    split: str
    features: str  # SHA-256 of the features of the split
    protocol: TaskProtocol
    seed: int
    tasks: int
    digest: str = ""

    def draw(self, file: FeatureFile) -> TaskRows:
        """The tasks, drawn again from a feature file; another file than theirs is refused."""
        summary = file.summary(self.split)
        if summary.digest != self.features:
            message = f"The tasks were drawn from other features than those of split {self.split} in {file.path}."
            raise FsbenchError(message, "Give the feature file that `fsbench tasks` was given.")
        parts = [*sample_list(self.protocol, summary.offsets, self.seed, self.tasks)]
        names = [field.name for field in fields(TaskRows)]
        return TaskRows(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def freeze(path: Path, file: FeatureFile, split: str, protocol: TaskProtocol, *, seed: int, tasks: int) -> FrozenTasks:
    """Draw tasks from a feature file and write their list."""
    summary = file.summary(split)
    drawn = FrozenTasks(split, summary.digest, protocol, seed, tasks).draw(file)
    frozen = FrozenTasks(
        split, summary.digest, protocol, seed, tasks, _digest(summary.digest, split, drawn.support, drawn.query)
    )
    about = asdict(frozen) | {
        "format": FORMAT, "version": 1, "fsbench": fsbench.__version__,
        "dataset": file.provenance.dataset, "backbone": file.provenance.backbone, "setting": protocol.title,
    }  # fmt: skip
    rows, labels = np.min_scalar_type(-summary.rows), np.min_scalar_type(-drawn.classes.shape[1])
    with whole_file(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(
            stream,
            about=np.array(json.dumps(about)),
            support=drawn.support.astype(rows),
            support_labels=drawn.support_labels.astype(labels),
            query=drawn.query.astype(rows),
            images=np.array(file.images(split)[0], dtype=np.str_),
        )
    return frozen


def _digest(features: str, split: str, support: NDArray[Any], query: NDArray[Any]) -> str:
    """What tells a list of tasks: rows of other features are other images, or the same ones seen by another network."""
    parts = f"{features} {split}".encode(), support.astype("<i8").tobytes(), query.astype("<i8").tobytes()
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def read_frozen(path: Path) -> FrozenTasks:
    """What a list of tasks was drawn from."""
    with reading(path, "a list of tasks"), np.load(path, allow_pickle=False) as content:
        about = json.loads(str(content["about"][()]))
        if about.get("format") != FORMAT:
            raise FsbenchError(f"{path} is not a list of tasks.", "Write one with fsbench tasks.")
        if _digest(about["features"], about["split"], content["support"], content["query"]) != about["digest"]:
            raise FsbenchError(f"The rows in {path} do not match its digest.", "Write it again with fsbench tasks.")
        return TypeAdapter(FrozenTasks).validate_python(about)


def score(file: FeatureFile, tasks: Path, predictions: Path, *, name: str, assumes: str = "") -> Record:
    """The record of a model by its predictions for a list of tasks."""
    if name.partition(":")[0] in method_names():
        raise UsageError("name", f"{name} is a method of fsbench", "Choose another name.")
    if not is_name(name) or name != name.strip() or set(name) & set("@,:="):
        raise UsageError("name", f"expected one line without @ , : or =, got {name!r}")
    frozen = read_frozen(tasks)
    drawn = frozen.draw(file)
    if _digest(frozen.features, frozen.split, drawn.support, drawn.query) != frozen.digest:
        raise FsbenchError(f"{tasks} has other tasks than {file.path} gives.", "Write it again with fsbench tasks.")
    answers = _answers(drawn, predictions, frozen)
    parts = (answers.predicted, answers.confidence, answers.outlier)
    content = hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
    source, redraws = load_source(file, frozen.split, None), float(drawn.redraws.sum())
    run = Run(
        features=frozen.features,
        base=file.summary("base").digest if "base" in file.splits else "",
        split=frozen.split,
        protocol=frozen.protocol,
        seed=frozen.seed,
        method=f"{name}@{content[:8]}",
        version=1,
        params={},
    )
    return Record(
        run=run,
        method=MethodFacts(label=name, title=name, assumes=assumes, order=_ORDER, elsewhere=True),
        origins=Origins(),
        asked=(shlex.join(["fsbench", "score", str(file.path), str(tasks), str(predictions), "--name", name]), ""),
        **source.facts,
        redrawn=redraws / (redraws + frozen.tasks),
        seconds=0.0,
        peak_memory=0,
        device="",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"fsbench": fsbench.__version__},
        answers=answers,
    )


def _answers(drawn: TaskRows, path: Path, frozen: FrozenTasks) -> Answers:
    """What a file of predictions answers to drawn tasks, after a check of shapes and values."""
    with reading(path, "predictions"), np.load(path, allow_pickle=False) as content:
        arrays = dict(content)
    if "digest" in arrays and str(arrays["digest"][()]) != frozen.digest:
        raise FsbenchError(f"{path} has predictions for another list of tasks.", "Predict the tasks of this list.")
    shape, ways = drawn.query.shape, drawn.classes.shape[1]
    present = drawn.query >= 0
    probabilities, predicted, confidence = map(arrays.get, ("probabilities", "predicted", "confidence"))
    if probabilities is not None:
        _check_shape(path, "probabilities", probabilities, (*shape, ways))
        shown = probabilities[present].astype(np.float64)
        if not (shown >= 0).all() or np.abs(shown.sum(axis=1) - 1).max() > _SUM:
            raise FsbenchError(f"{path}: probabilities must be numbers of at least 0 that sum to one for every query.")
        predicted = probabilities.argmax(axis=2) if predicted is None else predicted
    if predicted is None:
        raise FsbenchError(f"{path} has neither predicted (T, Q) nor probabilities (T, Q, K).")
    _check_shape(path, "predicted", predicted, shape)
    if predicted.dtype.kind not in "iu" or not ((predicted >= 0) & (predicted < ways))[present].all():
        raise FsbenchError(f"{path}: predicted must be whole numbers from 0 to {ways - 1}, the labels of the support.")
    if probabilities is not None and confidence is None:
        labels = np.where(present, predicted, 0).astype(np.int64)
        confidence = np.take_along_axis(probabilities, labels[:, :, None], axis=2)[:, :, 0]
    if confidence is None:
        confidence = np.full(shape, np.nan)
    else:
        _check_shape(path, "confidence", confidence, shape)
        if not ((confidence >= 0) & (confidence <= 1 + _SUM))[present].all():
            raise FsbenchError(f"{path}: confidence must be numbers from 0 to 1.")
    small = np.min_scalar_type(-ways)
    return Answers(
        np.where(present, predicted, -1).astype(small),
        drawn.query_labels.astype(small),
        np.where(present, np.minimum(confidence, 1), np.nan).astype(np.float16),
        drawn.classes.astype(np.min_scalar_type(-int(drawn.classes.max()) - 1)),
        _outlier(path, arrays.get("outlier", 1 - confidence), drawn) if frozen.protocol.unknown else NO_OUTLIERS,
    )


def _outlier(path: Path, scores: NDArray[Any], drawn: TaskRows) -> NDArray[np.float32]:
    """How little queries look like the classes of their tasks; 1 − confidence, unless there is an array of it."""
    _check_shape(path, "outlier", scores, drawn.query.shape)
    if not np.isfinite(scores[drawn.query >= 0]).all():
        raise FsbenchError(f"{path} needs outlier (T, Q), or confidence: the tasks have unknown classes.")
    return scores.astype(np.float32)


def _check_shape(path: Path, name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise FsbenchError(f"{path}: {name} must be {shape}, tasks by queries of the list, got {array.shape}.")
