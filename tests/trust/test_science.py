"""Wrong science is a fault too: what does not belong together is refused or named."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fsbench.backbones.load import load_backbone
from fsbench.data.scan import load_own, scan_folder
from fsbench.doctor import diagnose, find_doubles
from fsbench.errors import FsbenchError
from fsbench.evaluation.source import source_of
from fsbench.evaluation.tuning import validation_source
from fsbench.exchange.importing import Naming, import_files
from fsbench.features.extract import Settings, extract
from fsbench.features.overlap import overlap
from fsbench.features.scatter import BaseStatistics, base_statistics, scatter_path
from fsbench.features.store import FeatureFile, Provenance, make_split, write_features
from fsbench.machine import Environment
from fsbench.methods.presets import benchmark_with_preset
from fsbench.reporter import Reporter
from fsbench.results.published import published
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.comparing import QUIET, solved
from tests.images import SPLITS, write_images
from tests.records import make_record
from tests.synthetic import make_features

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fsbench.features.store import Split
    from tests.synthetic import Features

CPU = torch.device("cpu")


def with_rows_of(split: Split, other: Split, rows: int) -> Split:
    """The same split, but its first rows are those of another."""
    mixed = np.concatenate([other.features[:rows], split.features[rows:]])
    return make_split(mixed, split.labels, split.class_names)


def written(path: Path, made: Provenance | None = None, **splits: Split) -> FeatureFile:
    write_features(path, made or Provenance("own", "rn12"), splits)
    return FeatureFile.open(path)


def test_overlaps_are_counted_and_rows_of_zeros_are_none() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.random((5000, 7), dtype=np.float32), rng.random((300, 7), dtype=np.float32)
    other[10:14] = one[[3, 4999, 17, 17]]
    other[20] = one[0] = 0
    by_hand = len({row.tobytes() for row in one if row.any()} & {row.tobytes() for row in other if row.any()})
    found = overlap("a", [one[:2000], one[2000:]], "b", [other])
    assert (found.rows, by_hand) == (3, 3)
    assert found.share == pytest.approx(0.01)


def test_tuning_is_refused_where_val_holds_novel_rows(features: Features, tmp_path: Path) -> None:
    val = with_rows_of(features.val, features.novel, 30)
    file = written(tmp_path / "f.h5", base=features.base, val=val, novel=features.novel)
    with pytest.raises(FsbenchError, match="30 identical rows of features: parameters would be tuned") as caught:
        validation_source(file, None)
    assert str(file.path) in caught.value.message
    with pytest.raises(FsbenchError, match="parameters would be tuned on novel"):
        solved("bavardage", file, tune=True)
    few = written(tmp_path / "g.h5", val=with_rows_of(features.val, features.novel, 1), novel=features.novel)
    validation_source(few, None)  # a double or two, as public data sets have


def test_base_classes_of_another_file_that_hold_the_novel_images_are_refused(tmp_path: Path) -> None:
    mine, theirs = make_features(seed=1), make_features(seed=2)
    novel = written(tmp_path / "novel.h5", val=mine.val, novel=mine.novel)
    other = written(tmp_path / "base.h5", base=with_rows_of(theirs.base, mine.novel, 40))
    with pytest.raises(FsbenchError, match="share 40 identical rows of features: the base classes would hold"):
        source_of(novel, "novel", other, QUIET)


def test_base_classes_of_another_division_are_refused(tmp_path: Path) -> None:
    mine, theirs = make_features(seed=1), make_features(seed=2)
    novel = written(tmp_path / "novel.h5", Provenance("cub", "rn18", split_digest="aa"), novel=mine.novel)
    other = written(tmp_path / "base.h5", Provenance("cub", "rn18", split_digest="bb"), base=theirs.base)
    with pytest.raises(FsbenchError, match="divides cub into other base, val and novel classes"):
        source_of(novel, "novel", other, QUIET)


def test_base_classes_of_the_same_names_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, theirs = make_features(seed=1), make_features(seed=2)
    base = make_split(theirs.novel.features, theirs.novel.labels, mine.novel.class_names)
    novel, other = written(tmp_path / "n.h5", novel=mine.novel), written(tmp_path / "b.h5", base=base)
    source_of(novel, "novel", other, QUIET)
    assert "10 classes of novel have the names of base classes" in capsys.readouterr().err


def test_a_file_whose_base_is_its_novel_split_is_refused(features: Features, tmp_path: Path) -> None:
    file = written(tmp_path / "f.h5", base=features.novel, val=features.val, novel=features.novel)
    with pytest.raises(FsbenchError, match=r"base and novel classes of .*f.h5 are the same images"):
        source_of(file, "novel", None, QUIET)


def test_names_that_are_base_and_novel_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, theirs = make_features(seed=1), make_features(seed=2)
    novel = make_split(
        theirs.novel.features, theirs.novel.labels, mine.base.class_names[: len(theirs.novel.class_names)]
    )
    source_of(written(tmp_path / "f.h5", base=mine.base, novel=novel), "novel", None, QUIET)
    assert "classes of novel have the names of base classes" in capsys.readouterr().err


def test_classifying_base_classes_is_named(
    features: Features, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source_of(written(tmp_path / "f.h5", base=features.base), "base", None, QUIET)
    assert "are classified with what was learned and measured on them" in capsys.readouterr().err


def test_what_was_tuned_on_val_is_not_reported_on_val(features: Features, tmp_path: Path) -> None:
    file = written(tmp_path / "f.h5", base=features.base, val=features.val, novel=features.novel)
    with pytest.raises(FsbenchError, match="tuned on the val classes, which --split val would report on"):
        solved("soft-kmeans", file, split="val", tune=True)


@pytest.mark.parametrize(
    ("name", "known"), [("mini", True), ("cub-feat", True), ("mini-sketch", False), ("cubs", False)]
)
def test_presets_and_published_numbers_are_those_of_the_catalogs_data_sets(name: str, known: bool) -> None:
    with contextlib.nullcontext() if known else pytest.raises(FsbenchError, match="mini, fc100, cifarfs, tiered, cub"):
        assert benchmark_with_preset(name) in {"mini", "cub"}
    backbone = "wrn" if name.startswith("mini") else "rn18"
    found = published(make_record("bavardage", dataset=name, backbone=backbone, alpha=None))
    assert (found is not None) is known


def test_imported_splits_that_share_rows_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    base, labels = rng.random((400, 6), dtype=np.float32), np.repeat(np.arange(4), 100)
    novel = np.concatenate([base[:20], rng.random((380, 6), dtype=np.float32)])
    for name, rows in (("base", base), ("novel", novel)):
        np.savez(tmp_path / f"{name}.npz", features=rows, labels=labels)
    sources = [str(tmp_path / f"{name}.npz") for name in ("base", "novel")]
    with pytest.raises(FsbenchError, match="base and novel share 20 identical rows"):
        import_files(sources, tmp_path / "f.h5", Naming("own", "rn12"), QUIET)
    assert not (tmp_path / "f.h5").exists()


@pytest.mark.parametrize("change", [{"weights_sha256": "cd"}, {"split_digest": "bb"}])
def test_features_of_other_weights_or_another_split_are_not_mixed(change: dict[str, Any], tmp_path: Path) -> None:
    mine, theirs = make_features(seed=1), make_features(seed=2)
    made = Provenance("cub", "rn18", weights="w", weights_sha256="ab", split_digest="aa")
    novel = written(tmp_path / "n.h5", made, novel=mine.novel)
    with pytest.raises(FsbenchError):
        source_of(novel, "novel", written(tmp_path / "b.h5", replace(made, **change), base=theirs.base), QUIET)


def test_a_stale_or_damaged_scatter_is_made_anew(features: Features, tmp_path: Path) -> None:
    file = features.write(tmp_path / "f.h5")
    stale = make_features(seed=9)
    BaseStatistics.fit_file(FeatureFile.open(stale.write(tmp_path / "o.h5"))).save(scatter_path(file))
    right = BaseStatistics.fit_file(FeatureFile.open(file))
    assert torch.equal(base_statistics(FeatureFile.open(file)).scatter, right.scatter)
    content = bytearray(scatter_path(file).read_bytes())
    content[len(content) // 2] ^= 1
    scatter_path(file).write_bytes(content)
    with pytest.raises(FsbenchError, match="not as it was written"):
        BaseStatistics.load(scatter_path(file))
    assert torch.equal(base_statistics(FeatureFile.open(file)).scatter, right.scatter)
    assert torch.equal(BaseStatistics.load(scatter_path(file)).scatter, right.scatter)


def test_stale_records_are_not_reused(tmp_path: Path) -> None:
    """The features were made again under the same name."""
    for seed in (1, 2):
        make_features(seed=seed).write(tmp_path / "f.h5")
        file = FeatureFile.open(tmp_path / "f.h5")
        (row,) = solved("ncm", file, tasks=30, results=tmp_path / "results")
        (right,) = solved("ncm", file, tasks=30)
        assert row.record.correct == right.record.correct


def photos(tmp_path: Path) -> Path:
    return write_images(tmp_path / "photos", SPLITS, images=3, side=16)


def extracted(root: Path, out: Path, reporter: Reporter = QUIET) -> FeatureFile:
    backbone = load_backbone("rn12", random_seed=0, width=1)
    return extract(load_own(root), backbone, out, Settings(workers=0), CPU, reporter)


def test_images_replaced_under_their_names_are_noticed(tmp_path: Path) -> None:
    root, out = photos(tmp_path), tmp_path / "f.h5"
    first = extracted(root, out).read("novel").features
    for path in (root / "novel" / "n0").iterdir():  # touched and copied, but the same
        path.touch()
    shutil.copytree(root, tmp_path / "elsewhere" / "photos")
    before = out.stat().st_mtime_ns
    extracted(tmp_path / "elsewhere" / "photos", out)
    assert out.stat().st_mtime_ns == before
    write_images(root, {"novel": ["n0"]}, images=3, side=16, seed=5)
    with pytest.raises(FsbenchError, match="3 images have changed: novel/n0"):
        extracted(root, out)
    out.unlink()
    assert not np.array_equal(extracted(root, out).read("novel").features, first)


def test_imported_features_are_not_replaced_by_an_extraction(tmp_path: Path) -> None:
    features, out = make_features(), tmp_path / "f.h5"
    made = Provenance("photos", "rn12", imported=({"file": "a", "sha256": "b", "format": "c", "splits": "d"},))
    write_features(out, made, {"novel": features.novel})
    with pytest.raises(FsbenchError, match="imported features"):
        extracted(photos(tmp_path), out)


def test_a_picture_in_two_splits_is_named_by_the_extraction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = photos(tmp_path)
    shutil.copy(root / "base" / "b1" / "000.png", root / "novel" / "n2" / "000.png")
    file = extracted(root, tmp_path / "f.h5", Reporter(quiet=True))
    assert "base and novel share 1 identical row" in capsys.readouterr().err
    assert "base and novel share 1 identical row of features" in file.provenance.notes


def test_doubles_are_found_by_their_content(tmp_path: Path) -> None:
    root = photos(tmp_path)
    for here, there in (("base/b0/000", "novel/n0/001"), ("base/b1/000", "base/b2/000"), ("val/v0/000", "val/v0/001")):
        shutil.copy(root / f"{here}.png", root / f"{there}.png")
    done: list[int] = []
    found = find_doubles(scan_folder(root, None), done.append)
    assert sum(done) == 3 * 8
    assert found.across_splits == (("base base/b0/000.png", "novel novel/n0/001.png"),)
    assert found.across_classes == (("base base/b1/000.png", "base base/b2/000.png"),)
    assert found.within_class == (("val val/v0/000.png", "val val/v0/001.png"),)
    assert len(found.sentences()) == 3


def test_the_doctor_looks_deeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_images(tmp_path / "data" / "glyphs", SPLITS, images=2)
    shutil.copy(root / "base" / "b0" / "000.png", root / "novel" / "n0" / "001.png")
    mine = make_features(seed=1)
    (tmp_path / "features").mkdir()
    written(tmp_path / "features" / "a.h5", base=mine.base, novel=with_rows_of(mine.novel, mine.base, 2))
    damaged = bytearray(mine.write(tmp_path / "features" / "b.h5").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "features" / "b.h5").write_bytes(damaged)
    roots = tmp_path / "data", tmp_path / "weights", tmp_path / "features"
    monkeypatch.setattr("fsbench.doctor.probe_environment", lambda: Environment({}, "", "", ()))
    told = "\n".join(diagnose(*roots, deep=QUIET).deep_sentences)
    assert "all 16 images can be read" in told
    assert "1 images occur in more than one split" in told
    assert "a.h5: intact, its SHA-256 is right." in told
    assert "a.h5: base and novel share 2 identical rows" in told
    assert "b.h5 is not as it was written" in told or "b.h5 are not those that were written" in told


def test_classes_that_are_base_and_novel_are_refused(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photos", {**SPLITS, "novel": ["n0", "b1"]}, images=2)
    with pytest.raises(FsbenchError, match=r"b1 \(base and novel\)"):
        load_own(root)


@st.composite
def task_rules(draw: st.DrawFn) -> tuple[TaskProtocol, NDArray[np.int64], int]:
    sizes = draw(st.lists(st.integers(2, 60), min_size=2, max_size=12))
    name = draw(st.sampled_from(["disjoint", "released"]))
    alpha = draw(st.one_of(st.none(), st.floats(0.05, 20)))
    ways, shots = draw(st.integers(2, len(sizes))), draw(st.integers(1, 8))
    protocol = TaskProtocol(name, ways, shots, draw(st.integers(1, 80)), alpha)  # type: ignore[arg-type]
    return protocol, np.cumsum([0, *sizes]), draw(st.integers(0, 2**64 - 1))


@given(rules=task_rules())
@settings(max_examples=150, deadline=None)
def test_no_query_is_a_support_image_and_no_image_comes_twice(
    rules: tuple[TaskProtocol, NDArray[np.int64], int],
) -> None:
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
