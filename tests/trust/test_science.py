"""Protocol checks: splits and features that do not belong together are refused or named."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fsbench.backbones.load import load_backbone
from fsbench.data.scan import OwnData
from fsbench.errors import FsbenchError
from fsbench.evaluation.source import source_of
from fsbench.evaluation.tuning import validation_source
from fsbench.features.extract import Settings, extract
from fsbench.features.store import Provenance, Split, make_split, overlap
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.comparing import CPU, QUIET, compared
from tests.images import SPLITS, write_images
from tests.synthetic import Features, feature_file, make_features


def with_rows_of(split: Split, other: Split, rows: int) -> Split:
    """The same split, but its first rows are those of another."""
    mixed = np.concatenate([other.features[:rows], split.features[rows:]])
    return make_split(mixed, split.labels, split.class_names)


def test_overlaps_are_counted_and_rows_of_zeros_are_none() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.random((5000, 7), dtype=np.float32), rng.random((300, 7), dtype=np.float32)
    other[10:14] = one[[3, 4999, 17, 17]]
    other[20] = one[0] = 0
    by_hand = len({row.tobytes() for row in one if row.any()} & {row.tobytes() for row in other if row.any()})
    found = overlap("a", [one[:2000], one[2000:]], "b", [other])
    assert (found, by_hand) == ("a and b share 3 identical rows of features: the same images in both?", 3)
    with pytest.raises(FsbenchError, match="3 identical rows of features: too many"):  # 1 % of 300
        overlap("a", [one], "b", [other], "too many")
    assert "share" in overlap("a", [one], "b", [np.concatenate([other, one[:1]])], "too many")  # of 301


def test_tuning_is_refused_where_val_holds_novel_rows(features: Features, tmp_path: Path) -> None:
    val = with_rows_of(features.val, features.novel, 30)
    file = feature_file(tmp_path / "f.h5", base=features.base, val=val, novel=features.novel)
    with pytest.raises(FsbenchError, match="30 identical rows of features: parameters would be tuned on novel"):
        compared("bavardage", [file], [TaskProtocol()], tune=True)
    few = feature_file(tmp_path / "g.h5", val=with_rows_of(features.val, features.novel, 1), novel=features.novel)
    validation_source(few, None)  # a double or two, as public data sets have


def test_base_classes_that_hold_what_is_classified_are_refused(features: Features, tmp_path: Path) -> None:
    mine, theirs = make_features(seed=1), make_features(seed=2)
    cub = Provenance("cub", "rn18", split_digest="aa")
    held, rows = with_rows_of(theirs.base, mine.novel, 40), len(theirs.base.features)
    same = replace(theirs.base, images=("x.png",) * rows, hashes=("a", *["b"] * (rows - 1)))  # of which one is novel
    for made, base, words in (
        (replace(cub, precision="bf16"), same, "share 1 images: the base classes would hold"),
        (cub, held, "share 40 identical rows of features: the base classes would hold"),
        (replace(cub, split_digest="bb"), theirs.base, "divides cub into other base, val and novel classes"),
    ):
        count = len(mine.novel.features) - 1
        split = replace(mine.novel, images=("y.png",) * (count + 1), hashes=("a", *["c"] * count))
        novel = feature_file(tmp_path / "n.h5", cub, novel=split)
        other = feature_file(tmp_path / "b.h5", made, base=base)
        with pytest.raises(FsbenchError, match=words):
            source_of(novel, "novel", other, QUIET)
    both = feature_file(tmp_path / "f.h5", base=features.novel, val=features.val, novel=features.novel)
    with pytest.raises(FsbenchError, match=r"base and novel classes of .*f.h5 are the same images"):
        source_of(both, "novel", None, QUIET)


def test_doubtful_base_classes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, theirs = make_features(seed=1), make_features(seed=2)
    base = make_split(theirs.novel.features, theirs.novel.labels, mine.novel.class_names)
    both = feature_file(tmp_path / "both.h5", base=base, novel=mine.novel)
    source_of(both, "novel", None, QUIET)
    assert "10 classes of novel have the names of base classes" in capsys.readouterr().err
    source_of(both, "base", None, QUIET)
    assert "are classified with what was learned and measured on them" in capsys.readouterr().err


def test_imported_features_are_not_replaced_by_an_extraction(tmp_path: Path) -> None:
    features, out = make_features(), tmp_path / "f.h5"
    made = Provenance("photos", "rn12", imported=({"file": "a", "sha256": "b", "format": "c", "splits": "d"},))
    feature_file(out, made, novel=features.novel)
    root = write_images(tmp_path / "photos", SPLITS, images=3, side=16)
    network = load_backbone("rn12", random_seed=0, width=1)
    with pytest.raises(FsbenchError, match="imported features"):
        extract(OwnData(root).load(), network, out, Settings(workers=0), CPU, QUIET)


Rules = tuple[TaskProtocol, NDArray[np.int64], int]


@st.composite
def task_rules(draw: st.DrawFn) -> Rules:
    sizes = draw(st.lists(st.integers(2, 60), min_size=2, max_size=12))
    name = draw(st.sampled_from(["disjoint", "released"]))
    alpha = draw(st.one_of(st.none(), st.floats(0.05, 20)))
    ways, shots = draw(st.integers(2, len(sizes))), draw(st.integers(1, 8))
    protocol = TaskProtocol(name, ways, shots, draw(st.integers(1, 80)), alpha)
    return protocol, np.cumsum([0, *sizes]), draw(st.integers(0, 2**64 - 1))


@given(rules=task_rules())
@settings(max_examples=60, deadline=None)
def test_no_query_is_in_the_support_and_no_image_comes_twice(rules: Rules) -> None:
    protocol, offsets, seed = rules
    try:
        drawn = sample_tasks(protocol, offsets, seed, np.arange(20))
    except FsbenchError:
        assume(False)
    rows = np.concatenate([drawn.support, drawn.query], axis=1)  # (B, N)
    assert all(len(set(task)) == rows.shape[1] for task in rows.tolist())
    owner = np.searchsorted(offsets, rows, side="right") - 1
    labels = np.concatenate([drawn.support_labels, drawn.query_labels], axis=1)
    np.testing.assert_array_equal(owner, np.take_along_axis(drawn.classes, labels, axis=1))
