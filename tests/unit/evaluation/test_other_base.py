"""Base classes of another file, and none at all."""

from dataclasses import replace
from pathlib import Path

import pytest

from fsbench.errors import FsbenchError
from fsbench.evaluation.compare import compare
from fsbench.evaluation.run import configure
from fsbench.evaluation.source import source_of
from fsbench.evaluation.spec import Spec, parse_methods
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import FeatureFile, Provenance, write_features
from fsbench.reporter import Reporter
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import QUIET, compared, runner
from tests.synthetic import Features, make_features

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


def test_statistics_come_from_the_other_file_and_records_name_it(novel: FeatureFile, other: FeatureFile) -> None:
    source, digest = source_of(novel, "novel", other, QUIET), other.summary("base").digest
    assert isinstance(source.base, BaseStatistics)
    assert (source.base.digest, source.split.digest) == (digest, novel.summary("novel").digest)
    assert configure(parse_methods("bavardage")[0], source, TaskProtocol(), preset="article")[1].preset == "cub"
    table = compared("ncm,bavardage", [novel], [TaskProtocol()], tasks=10, base=other)
    assert [entry.label for entry in table.entries] == ["soft-kmeans", "ncm", "bavardage"]
    for record in table.records:
        assert f"|base:mini@{digest[:6]}|" in record.signature
        assert (record.base_dataset, record.run.base) == ("mini", digest)
        assert f"--base {other.path}" in record.command
    assert not any(cell.published for cell in table.cells)  # numbers are of the data set's own base classes


def test_files_that_do_not_fit_as_base_are_refused(novel: FeatureFile, features: Features, tmp_path: Path) -> None:
    for data, made, words in (
        (features, replace(MADE, weights_sha256="cd"), "was extracted with other weights"),
        (make_features(dimension=47), MADE, "has 47 features per image"),
    ):
        with pytest.raises(FsbenchError, match=words):
            source_of(novel, "novel", whole(tmp_path / "o.h5", data, made), QUIET)
    with pytest.raises(FsbenchError, match="no split 'base'"):
        source_of(novel, "novel", novel_only(tmp_path / "p.h5", make_features(seed=1)), QUIET)


def test_without_base_compare_takes_what_needs_none(
    novel: FeatureFile, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsbench.evaluation.spec.usual_methods", lambda: ["pt-map", "ncm", "bavardage:released"])
    spec = Spec(methods=tuple(parse_methods("all")), protocols=(TaskProtocol(),), tasks=3, all_methods=True)
    table = compare(spec, [novel], runner(reporter=Reporter()))
    assert table.baseline == "simpleshot:L2N"
    assert [entry.label for entry in table.entries] == ["simpleshot:L2N", "pt-map"]
    assert "bavardage:released" in capsys.readouterr().err.replace("\n", "")
    for methods, chosen in (("pt-map,bavardage", None), ("pt-map", "ncm")):
        with pytest.raises(FsbenchError, match=r"(bavardage|ncm) cannot run here. .* has no base classes") as caught:
            compared(methods, [novel], [TaskProtocol()], baseline=chosen, tasks=3)
        assert "--base FILE" in caught.value.hint
    table = compared("simpleshot:UN", [novel], [TaskProtocol()], baseline="pt-map", tasks=3)
    assert table.baseline == "pt-map"
