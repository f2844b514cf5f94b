"""Base classes of another file, and none at all."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from fsbench.errors import FsbenchError
from fsbench.evaluation.compare import compare
from fsbench.evaluation.source import source_of
from fsbench.evaluation.spec import Spec, parse_methods
from fsbench.features.store import FeatureFile, Provenance, write_features
from fsbench.methods.base import Context
from fsbench.methods.registry import method_class, needs_base
from fsbench.reporter import Reporter
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import QUIET, compared, runner, solved
from tests.properties.test_methods import ON_FEATURES, SHORTER
from tests.synthetic import make_features

if TYPE_CHECKING:
    from pathlib import Path

    from tests.synthetic import Features

MADE = Provenance("cub", "rn18", weights="w.pth", weights_sha256="ab", transform="{}")


def novel_only(path: Path, features: Features, made: Provenance = MADE) -> FeatureFile:
    write_features(path, made, {"val": features.val, "novel": features.novel})
    return FeatureFile.open(path)


def whole(path: Path, features: Features, made: Provenance) -> FeatureFile:
    base = replace(features.base, class_names=tuple(f"base-{name}" for name in features.base.class_names))
    write_features(path, made, {"base": base, "novel": features.novel})
    return FeatureFile.open(path)


@pytest.fixture
def novel(features: Features, tmp_path: Path) -> FeatureFile:
    return novel_only(tmp_path / "novel.h5", features)


@pytest.fixture
def other(tmp_path: Path) -> FeatureFile:
    return whole(tmp_path / "other.h5", make_features(seed=5), replace(MADE, dataset="mini"))


def test_statistics_come_from_the_other_file(novel: FeatureFile, other: FeatureFile) -> None:
    source = source_of(novel, "novel", other, QUIET)
    assert source.base is not None
    assert source.base.digest == other.summary("base").digest
    assert (source.dataset, source.base_dataset) == ("cub", "mini")
    assert source.context(TaskProtocol(), "article").preset == "cub"
    assert source.split.digest == novel.summary("novel").digest


def test_records_and_signatures_name_the_other_base(novel: FeatureFile, other: FeatureFile) -> None:
    (row,) = solved("bavardage", novel, tasks=20, base=other)
    digest = other.summary("base").digest
    assert f"|base:mini@{digest[:6]}|" in row.record.signature
    assert row.record.base_dataset == row.as_dict()["base_dataset"] == "mini"
    assert row.record.key.base_sha256 == other.summary("base").digest
    assert row.baseline is not None


def test_the_files_own_base_or_data_set_is_no_other(features: Features, tmp_path: Path, novel: FeatureFile) -> None:
    own = whole(tmp_path / "own.h5", features, MADE)
    assert source_of(own, "novel", own, QUIET).base_dataset == ""
    apart = source_of(novel, "novel", own, QUIET)
    assert apart.base is not None
    assert apart.base_dataset == ""  # base and novel classes of one data set in two files


def test_another_file_of_the_same_name_is_in_the_signature(features: Features, tmp_path: Path) -> None:
    own = whole(tmp_path / "own.h5", features, MADE)
    other = whole(tmp_path / "other.h5", make_features(seed=5), MADE)

    def signature(base: FeatureFile | None) -> str:
        (row,) = solved("ncm", own, tasks=3, base=base)
        return row.record.signature

    assert "base:" not in signature(None)
    assert signature(own) == signature(None)
    assert f"|base:cub@{other.summary('base').digest[:6]}|" in signature(other)


def test_a_table_names_all_bases(features: Features, tmp_path: Path) -> None:
    files = [whole(tmp_path / "a.h5", features, MADE), whole(tmp_path / "b.h5", make_features(seed=5), MADE)]
    for order in (files, files[::-1]):
        found = compared("ncm", order, [TaskProtocol()], baseline="ncm", tasks=3, base=files[0]).signature()
        assert f"/novel|base:own+cub@{files[0].summary('base').digest[:6]}|" in found


def test_published_numbers_are_not_shown_across_data_sets(novel: FeatureFile, other: FeatureFile) -> None:
    def table(base: FeatureFile) -> tuple[str, list[object]]:
        found = compared("soft-kmeans,bavardage", [novel], [TaskProtocol()], tasks=10, base=base)
        return found.signature(), [cell.published for cell in found.groups[0].cells.values() if cell.published]

    signature, published = table(other)
    assert f"|base:mini@{other.summary('base').digest[:6]}|" in signature
    assert published == []
    within = whole(other.path.with_name("within.h5"), make_features(seed=5), MADE)
    signature, published = table(within)
    assert f"|base:cub@{within.summary('base').digest[:6]}|" in signature
    assert published


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (replace(MADE, weights_sha256="cd"), "was extracted with other weights"),
        (replace(MADE, weights="none, seed 1", weights_sha256=""), "was extracted with other weights"),
    ],
)
def test_other_weights_are_refused(
    novel: FeatureFile, features: Features, tmp_path: Path, made: Provenance, words: str
) -> None:
    with pytest.raises(FsbenchError, match=words):
        source_of(novel, "novel", whole(tmp_path / "o.h5", features, made), QUIET)


def test_other_dimensions_and_files_without_base_are_refused(novel: FeatureFile, tmp_path: Path) -> None:
    with pytest.raises(FsbenchError, match="has 47 features per image"):
        source_of(novel, "novel", whole(tmp_path / "o.h5", make_features(dimension=47), MADE), QUIET)
    with pytest.raises(FsbenchError, match="no split 'base'"):
        source_of(novel, "novel", novel_only(tmp_path / "p.h5", make_features(seed=1)), QUIET)


def test_what_is_not_known_is_warned_of(
    novel: FeatureFile, features: Features, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported = Provenance("mini", "wrn")
    source_of(novel, "novel", whole(tmp_path / "o.h5", features, imported), Reporter(quiet=True))
    assert "is of backbone wrn" in capsys.readouterr().err
    source_of(
        novel, "novel", whole(tmp_path / "p.h5", features, replace(imported, backbone="rn18")), Reporter(quiet=True)
    )
    assert capsys.readouterr().err == ""
    source_of(novel, "novel", whole(tmp_path / "q.h5", features, replace(MADE, crops=30)), Reporter(quiet=True))
    assert "different transforms or numbers of crops" in capsys.readouterr().err


@pytest.mark.parametrize("name", [*ON_FEATURES, "simpleshot:L2N", "simpleshot:UN"])
def test_methods_know_whether_they_need_base_classes(name: str) -> None:
    method, _, norm = name.partition(":")
    options = {"norm": norm} if norm else SHORTER.get(name, {})
    rows = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    expected = pytest.raises(FsbenchError, match="--base") if needs_base(name) else contextlib.nullcontext()
    with expected:
        method_class(method).configure(Context(balanced=False), **options).embed(rows, None)


def test_without_base_solve_has_a_baseline_that_needs_none_or_says_what_to_do(novel: FeatureFile) -> None:
    (row,) = solved("pt-map", novel, tasks=10)
    assert row.baseline is not None
    assert row.baseline.key.params == {"norm": "L2N"}
    assert np.isfinite(row.record.accuracy)
    with pytest.raises(FsbenchError, match="--base FILE"):
        solved("bavardage", novel, tasks=10)


def test_without_base_compare_takes_what_needs_none(
    novel: FeatureFile, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsbench.evaluation.spec.usual_methods", lambda: ["pt-map", "ncm", "bavardage:released"])
    spec = Spec(methods=tuple(parse_methods("all")), protocols=(TaskProtocol(),), tasks=3, all_methods=True)
    table = compare(spec, [novel], runner(reporter=Reporter()))
    labels = [entry.label for entry in table.entries]
    assert table.baseline == "simpleshot:L2N"
    assert "pt-map" in labels
    assert not {"bavardage", "bavardage:released", "ncm"} & set(labels)
    assert "bavardage:released" in capsys.readouterr().err.replace("\n", "")
    for methods, chosen in (("pt-map,bavardage", None), ("pt-map", "ncm")):
        with pytest.raises(FsbenchError, match=r"has no base classes, which (bavardage|ncm) need"):
            compared(methods, [novel], [TaskProtocol()], baseline=chosen, tasks=3)
    table = compared("simpleshot:UN", [novel], [TaskProtocol()], baseline="pt-map", tasks=3)
    assert table.baseline == "pt-map"


def test_with_base_nothing_is_left_out(novel: FeatureFile, other: FeatureFile) -> None:
    table = compared("ncm,bavardage", [novel], [TaskProtocol()], tasks=3, base=other)
    assert [entry.label for entry in table.entries] == ["soft-kmeans", "ncm", "bavardage"]
    assert table.baseline == "soft-kmeans"
