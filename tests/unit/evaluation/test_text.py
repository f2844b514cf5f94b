"""Text prototypes from files to answers: imported by name or number, gathered by the classes of a task, zero shots."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fsbench
from fsbench.errors import FsbenchError, UsageError
from fsbench.evaluation.engine import TaskList, solve
from fsbench.features.store import FeatureFile, content_digest, with_text
from fsbench.methods.zero_shot import ZeroShot
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.comparing import CPU, compared
from tests.synthetic import Features, feature_file
from tests.unit.exchange.test_formats import imported

RNG = np.random.default_rng(0)
NAMES = ["Egyptian_Mau", "boxer", "pug"]
ROWS = RNG.normal(size=(12, 5)).astype(np.float32)
LABELS = np.repeat([0, 1, 2], 4)
TEXT = np.stack([ROWS[k == LABELS].mean(axis=0) for k in range(3)])
ZERO = TaskProtocol("all-way", "all", 0, "all", None)


@pytest.fixture(scope="module")
def file(features: Features, tmp_path_factory: pytest.TempPathFactory) -> FeatureFile:
    novel = features.novel
    text = np.stack([novel.features[novel.labels == k].mean(axis=0) for k in range(10)])
    path = tmp_path_factory.mktemp("text") / "own.h5"
    return feature_file(path, novel=with_text(novel, text, "here"))


def by_name(path: Path) -> None:
    with path.open("wb") as stream:
        np.savez(stream, text=3 * TEXT[[2, 0, 1]].T, class_names=np.array(["pug", "egyptian mau", "Boxer"]))


def half(path: Path) -> None:
    torch.save(torch.from_numpy(TEXT.T).half(), path)


def in_order(path: Path) -> None:
    with path.open("wb") as stream:
        np.save(stream, TEXT)


@pytest.mark.parametrize(("write", "scale"), [(by_name, 3), (half, 1), (in_order, 1)])
def test_text_is_imported_in_the_order_of_the_classes_with_its_length(tmp_path: Path, write: Any, scale: float) -> None:
    np.savez(tmp_path / "n.npz", features=ROWS, labels=LABELS, class_names=np.array(NAMES))
    write(tmp_path / "text")
    file = imported(f"novel={tmp_path / 'n.npz'}", f"text={tmp_path / 'text'}", out=tmp_path / "out.h5")
    read = file.read("novel")
    assert read.text is not None
    np.testing.assert_allclose(read.text, scale * TEXT, atol=2e-3)
    assert (file.provenance.text_encoder, file.provenance.imported[-1]["splits"]) == ("rn12", "text")
    assert any(note.startswith("novel: the text alone classifies") for note in file.provenance.notes)


def test_text_goes_by_number_where_classes_are_numbers_and_a_wrong_order_is_remarked(tmp_path: Path) -> None:
    np.savez(tmp_path / "n.npz", features=ROWS, labels=LABELS + 1)
    np.save(tmp_path / "t.npy", np.concatenate([-TEXT[:1], TEXT[[1, 2, 0]]]))  # rows 1, 2, 3 are taken
    file = imported(f"novel={tmp_path / 'n.npz'}", f"text={tmp_path / 't.npy'}", out=tmp_path / "out.h5")
    np.testing.assert_array_equal(file.read("novel").text, TEXT[[1, 2, 0]])
    assert "are the classes in the right order?" in file.provenance.notes[-1]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"text": TEXT, "class_names": ["boxer", "pug", "poodle"]}, "no text of 1 classes, such as Egyptian_Mau"),
        ({"text": TEXT, "class_names": ["boxer", "Boxer", "pug"]}, "two classes have the same name"),
        ({"text": TEXT[:2], "class_names": NAMES}, "3 names for text of shape"),
        ({"text": TEXT[:2]}, "text of 2 classes without names"),
        ({"text": np.zeros_like(TEXT), "class_names": NAMES}, "the text of class Egyptian_Mau is zero or not finite"),
        ({"text": TEXT[:, :4], "class_names": NAMES}, "but images have 5 features"),
        ({"other": TEXT}, "without a table of text prototypes"),
    ],
)
def test_text_that_does_not_fit_is_refused(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "n.npz", features=ROWS, labels=LABELS, class_names=np.array(NAMES))
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(FsbenchError, match=words):
        imported(f"novel={tmp_path / 'n.npz'}", f"text={tmp_path / 't.npz'}", out=tmp_path / "out.h5")


def test_only_text_changes_the_digest_of_a_split(file: FeatureFile, features: Features) -> None:
    split = file.read("novel")
    assert content_digest(replace(split, text=None)) == content_digest(features.novel) != split.digest
    assert split.text is not None
    assert content_digest(replace(split, text=2 * split.text)) != split.digest


@pytest.mark.parametrize(
    "rules", [TaskProtocol(shots=0), ZERO, TaskProtocol("batches", "all", 0, 20, None, present="2-4", pooled=True)]
)
def test_a_task_has_the_text_of_its_classes(file: FeatureFile, rules: TaskProtocol) -> None:
    split, numbers = file.read("novel"), np.arange(6)
    (outcome,) = solve([ZeroShot()], split, None, TaskList(rules, 3, numbers), device=CPU)
    drawn = sample_tasks(rules, split.offsets, 3, numbers)
    assert drawn.support.shape[1] == 0 < drawn.ways.min()
    assert split.text is not None
    x, text = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (split.features, split.text))
    for task in numbers:
        asked = drawn.query[task] >= 0
        expected = (x[drawn.query[task][asked]] @ text[drawn.classes[task]].T).argmax(axis=1)
        np.testing.assert_array_equal(outcome.answers.predicted[task][asked], expected)


def test_zero_shots_compare_what_works_from_text(file: FeatureFile, features: Features, tmp_path: Path) -> None:
    table = compared("all", [file], [ZERO], tasks=1, options={})
    labels = {entry.label for entry in table.entries}
    assert {"zero-shot", "transclip", "stata", "em-dirichlet:hard"} < labels
    assert not labels & {"ncm", "gda", "simpleshot:L2N"}
    mixed = compared("gda,stata", [file], [replace(ZERO, shots=shots) for shots in (0, 2)], tasks=1)
    shown = {(record.method.label, record.run.protocol.shots) for record in mixed.records}
    assert shown == {("zero-shot", 0), ("zero-shot", 2), ("stata", 0), ("stata", 2), ("gda", 2)}
    with pytest.raises(FsbenchError, match=r"gda cannot run here\. There are no labelled images at 0 shots"):
        compared("gda", [file], [ZERO], tasks=1)
    without = FeatureFile.open(features.write(tmp_path / "plain.h5"))
    with pytest.raises(FsbenchError, match=r"stata cannot run here\. There are no text prototypes"):
        compared("stata", [without], tasks=1)
    with pytest.raises(FsbenchError, match="0 shots need text prototypes"):
        compared("all", [without], [ZERO], tasks=1)


def test_text_in_python() -> None:
    arrays = {"novel": (ROWS, LABELS, TEXT)}
    record = fsbench.evaluate("zero-shot", arrays, shots=0, protocol="all-way", tasks=1)
    p = fsbench.predict("zero-shot", None, None, ROWS[None], text=TEXT)
    assert record.accuracy == pytest.approx(100 * (p[0].argmax(axis=1) == LABELS).mean())
    with pytest.raises(UsageError, match="gda needs it, and there is none"):
        fsbench.predict("gda", None, None, ROWS[None], text=TEXT)
    with pytest.raises(UsageError, match="expected finite numbers"):
        fsbench.predict("zero-shot", None, None, ROWS[None], text=TEXT[:, :2])
