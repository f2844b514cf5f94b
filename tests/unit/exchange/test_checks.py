from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fsbench.errors import FsbenchError
from tests.unit.exchange.samples import Rows, by_class, make_rows
from tests.unit.exchange.test_formats import imported

if TYPE_CHECKING:
    from pathlib import Path

ROWS = make_rows()


def save(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_rows_that_are_not_finite_are_named(tmp_path: Path, value: float) -> None:
    features = ROWS.features.astype(np.float64)
    features[5, 2] = value
    path = "novel=" + save(tmp_path / "novel.npz", features=features, labels=ROWS.labels)
    with pytest.raises(FsbenchError, match=r"novel.npz, novel: 1 rows are not finite .* row 5 \(class 7\)"):
        imported(path, out=tmp_path / "out.h5")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"labels": ROWS.labels[:-1]}, "12 rows of features, labels of shape"),
        ({"labels": ROWS.labels + 0.5}, "labels are float64, expected whole numbers or names"),
        ({"labels": ROWS.labels * 1e300}, "labels are float64, expected whole numbers or names"),
        ({"labels": ROWS.labels * np.nan}, "labels are float64, expected whole numbers or names"),
        ({"labels": ROWS.labels[:, None, None]}, "labels of shape"),
        ({"features": ROWS.features[:0], "labels": ROWS.labels[:0]}, "no rows"),
        ({"features": ROWS.features[:, :0]}, "no rows"),
        ({"feats": ROWS.features}, "Two arrays could be the features"),
        ({"class_names": np.array(["a", "b"])}, "labels go from 3 to 11, but there are 2 names"),
        ({"class_names": np.array(["same"] * 12)}, "two classes have the same name"),
        ({"images": np.array(["a.jpg"])}, "12 rows, but 1 names of images"),
        ({"count": np.array([99])}, "count is"),
        ({"labels": np.array([None] * 12)}, "Object arrays cannot be loaded"),
    ],
)
def test_what_does_not_fit_together_is_named(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    path = "novel=" + save(tmp_path / "novel.npz", **{"features": ROWS.features, "labels": ROWS.labels} | arrays)
    with pytest.raises(FsbenchError, match=words) as caught:
        imported(path, out=tmp_path / "out.h5")
    assert "novel.npz" in str(caught.value)
    assert not (tmp_path / "out.h5").exists()


def test_whole_numbers_as_floats_and_a_column_of_labels_are_taken(tmp_path: Path) -> None:
    path = "novel=" + save(
        tmp_path / "novel.npz", features=ROWS.features, labels=ROWS.labels[:, None].astype(np.float32)
    )
    assert imported(path, out=tmp_path / "out.h5").splits["novel"].class_names == ("3", "7", "11")


def test_vectors_of_different_length_are_named_with_their_classes(tmp_path: Path) -> None:
    classes = by_class(ROWS)
    classes[11].append(np.ones(4, dtype=np.float32))
    (tmp_path / "novel.plk").write_bytes(pickle.dumps(classes))
    with pytest.raises(FsbenchError, match="5 in class 11, 4 in class 11"):
        imported(f"novel={tmp_path / 'novel.plk'}", out=tmp_path / "out.h5")


def test_empty_classes_are_left_out(tmp_path: Path) -> None:
    classes = by_class(ROWS)
    classes[5] = []
    (tmp_path / "novel.plk").write_bytes(pickle.dumps(classes))
    file = imported(f"novel={tmp_path / 'novel.plk'}", out=tmp_path / "out.h5")
    assert file.splits["novel"].class_names == ("3", "7", "11")
    assert "novel.plk: classes without any vector are left out: 5" in file.provenance.notes


def test_splits_must_belong_together(tmp_path: Path) -> None:
    def pair(other: Rows, names: tuple[str, str] = ("b", "n")) -> str:
        arrays: dict[str, Any] = {}
        for split, rows, name in (("base", ROWS, names[0]), ("novel", other, names[1])):
            arrays |= {
                f"{split}_features": rows.features,
                f"{split}_labels": np.char.add(name, rows.labels.astype(str)),
            }
        return save(tmp_path / "f.npz", **arrays)

    with pytest.raises(FsbenchError, match="base has 5 features per image, novel has 6"):
        imported(pair(make_rows(dimension=6)), out=tmp_path / "out.h5")
    with pytest.raises(FsbenchError, match="share 12 identical rows"):
        imported(pair(ROWS), out=tmp_path / "out.h5")
    with pytest.raises(FsbenchError, match="share 3 classes: x11, x3, x7"):
        imported(pair(make_rows(seed=1), ("x", "x")), out=tmp_path / "out.h5")
    assert len(imported(pair(make_rows(seed=1), ("", "")), out=tmp_path / "numbers.h5").splits) == 2


def test_what_does_not_look_like_a_backbones_output_is_remarked(tmp_path: Path) -> None:
    unit = ROWS.features / np.linalg.norm(ROWS.features, axis=1, keepdims=True)
    for name, features, expected in (("unit", -unit, [True, True]), ("usual", ROWS.features, [False, False])):
        path = save(tmp_path / f"{name}.npz", features=features, labels=ROWS.labels)
        notes = " ".join(imported(f"novel={path}", out=tmp_path / f"{name}.h5").provenance.notes)
        assert [words in notes for words in ("unit norm", "100 % of the values are negative")] == expected
