"""From a specification to a table: methods, baseline, settings, base classes of another file; and verified again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsbench.cli.verify import Verifier
from fsbench.errors import FsbenchError
from fsbench.evaluation.compare import compare
from fsbench.evaluation.options import Comparing
from fsbench.evaluation.run import configure
from fsbench.evaluation.source import source_of
from fsbench.evaluation.spec import NO_BASELINE, Spec, parse_methods
from fsbench.features.scatter import BaseStatistics
from fsbench.features.store import FeatureFile, Provenance, make_split
from fsbench.reporter import Reporter
from fsbench.results.collect import collect, read_records
from fsbench.results.comparison import Comparison
from fsbench.results.record import Record
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import PLUGIN, QUIET, compared, runner
from tests.synthetic import Features, feature_file, make_features

ONE, FIVE = TaskProtocol(), TaskProtocol(shots=5)
CLASSIFY = f"{PLUGIN}\n    def classify(self, tasks):\n        return "


@pytest.fixture(scope="module")
def folder(features: Features, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    features.write(folder / "own.h5", "own", "rn18")
    features.write(folder / "mini.h5", "mini", "wrn")
    (folder / "mine.py").write_text(PLUGIN)
    return folder


@pytest.fixture(scope="module")
def file(folder: Path) -> FeatureFile:
    return FeatureFile.open(folder / "own.h5")


@pytest.fixture(scope="module")
def table(file: FeatureFile, folder: Path) -> Comparison:
    """Two feature files; the second passes for mini-ImageNet's, so that published numbers match."""
    files = [file, FeatureFile.open(folder / "mini.h5")]
    return compared("ncm,bavardage", files, [ONE, FIVE], results=folder / "results", tasks=30)


def labels(table: Comparison) -> list[str]:
    return [entry.label for entry in table.entries]


def test_a_table_has_all_files_settings_and_methods_and_is_read_the_second_time(
    table: Comparison, file: FeatureFile, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (labels(table), table.baseline) == (["soft-kmeans", "ncm", "bavardage"], "soft-kmeans")
    assert [group.title for group in table.groups] == ["own rn18", "mini wrn"]
    assert len(table.records) == 2 * 2 * 3
    assert all(cell.published is None for cell in table.groups[0].cells.values())
    assert all(cell.published for (label, _), cell in table.groups[1].cells.items() if label == "bavardage")
    monkeypatch.setattr("fsbench.evaluation.run.solve", None)
    again = compared("ncm,bavardage", [file], [ONE, FIVE], results=folder / "results", tasks=30)
    assert again.records == [cell.record for cell in table.groups[0].cells.values()]


def test_the_baseline_is_chosen_added_or_left_out(file: FeatureFile, folder: Path) -> None:
    def asked(methods: str, **options: Any) -> tuple[list[str], str]:
        table = compared(methods, [file], [ONE], tasks=3, **options)
        return labels(table), table.baseline

    own = f"{folder}/mine.py:Mine"
    assert asked("ncm") == (["soft-kmeans", "ncm"], "soft-kmeans")
    assert asked("ncm,soft-kmeans", baseline="ncm") == (["ncm", "soft-kmeans"], "ncm")
    assert asked("ncm", baseline=NO_BASELINE) == (["ncm"], "")
    assert asked(f"{own},soft-kmeans", baseline=own) == (["Mine", "soft-kmeans"], "Mine")
    assert asked("soft-kmeans", baseline=own) == (["Mine", "soft-kmeans"], "Mine")
    table = compared("bavardage", [file], [ONE], tasks=3, options={"t_km": 7.0})
    assert [one.run.params["t_km"] for one in table.records] == [7.0, 7.0]  # the temperature that both share


def test_a_method_from_a_file_of_the_users(file: FeatureFile, folder: Path, tmp_path: Path) -> None:
    own, inverted = f"{folder}/mine.py:Mine", f"{tmp_path}/inverted.py:Mine"
    (tmp_path / "inverted.py").write_text(f"{CLASSIFY}(1 - super().classify(tasks)) / 4")
    table = compared(f"ncm,{own}", [file], [ONE], results=tmp_path / "results", tasks=10)
    mine, ncm = (table.groups[0].cells[name, ONE].record for name in ("Mine", "ncm"))
    assert mine.answers == ncm.answers
    assert mine.run.method.startswith("mine.py:Mine@")
    assert f"|{mine.run.method}|" in mine.signature  # which changes with the file
    (read,) = collect(read_records(None, tmp_path / "results", QUIET))
    entry = next(entry for entry in read.entries if entry.label == "Mine")
    assert (entry.assumes, entry.facts.title, entry.facts.reference) == ("inductive", "Mine", "me")
    both = compared(f"{own},{inverted}", [file], [ONE], tasks=10, baseline=NO_BASELINE)
    assert labels(both) == [own, inverted]
    assert both.records[0].accuracy > both.records[1].accuracy


def test_settings_that_are_not_feasible_are_refused_together_or_left_out(
    features: Features, file: FeatureFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = np.concatenate([np.flatnonzero(features.novel.labels == number)[:12] for number in range(10)])
    small = make_split(features.novel.features[few], features.novel.labels[few])
    files = [file, feature_file(tmp_path / "small.h5", base=features.base, novel=small)]
    rules = [TaskProtocol(alpha=None), TaskProtocol(alpha=None, queries=50)]
    with pytest.raises(FsbenchError, match=r"small\.h5, balanced 1-shot") as caught:
        compared("ncm", files, rules, tasks=3)
    assert "--skip-infeasible" in caught.value.hint
    table = compared("ncm", files, rules, tasks=3, skip_infeasible=True, baseline="ncm")
    assert [len(group.cells) for group in table.groups] == [2, 1]
    assert "Left out" in capsys.readouterr().err
    with pytest.raises(FsbenchError, match="small"):
        compared("ncm", files[1:], rules[:1], tasks=3, skip_infeasible=True)


def test_a_failing_method_is_left_out(file: FeatureFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "failing.py").write_text(f"{CLASSIFY}super().classify(tasks) / 0")
    failing = f"{tmp_path}/failing.py:Mine"
    choices = tuple(parse_methods(["ncm", failing, "bavardage"]))
    spec = Spec(methods=choices, protocols=(ONE, TaskProtocol(alpha=None)), tasks=5)
    assert labels(compare(spec, [file], runner(reporter=Reporter()))) == ["soft-kmeans", "ncm", "bavardage"]
    said = " ".join(capsys.readouterr().err.split())
    assert "Mine, balanced 1-shot: The probabilities of Mine are NaN, negative, or do not add up to 1. It is" in said
    with pytest.raises(FsbenchError, match="probabilities of Mine"):
        compared(failing, [file], [ONE], tasks=5)


def test_copies_among_the_features_are_said_and_recorded(features: Features, tmp_path: Path) -> None:
    rows = features.novel.features.copy()
    rows[[1, -1]] = rows[0]
    rows[2:4] = 0  # what a network gives for black images tells nothing
    twice = feature_file(tmp_path / "twice.h5", base=features.base, novel=make_split(rows, features.novel.labels))
    table = compared("ncm", [twice], [ONE], tasks=3, baseline="ncm")
    (told,) = table.records[0].warnings
    assert told.startswith(f"novel: 2 of {len(rows)} rows are copies of other rows, 1 of them with another label")
    assert table.warnings()[0] == told


def test_small_classes_are_left_out_of_columns(tmp_path: Path) -> None:
    numbers = np.repeat(np.arange(8), [30] * 7 + [6])
    rows = np.random.default_rng(0).normal(size=(len(numbers), 8)).astype(np.float32)
    options = Comparing(tasks=3, settings=("balanced",))
    file = feature_file(tmp_path / "own.h5", novel=make_split(rows, numbers))
    table = compare(Spec.of(options, options.methods, {}), [file], runner())
    (line,) = [line for line in table.warnings() if "too few images" in line]
    assert "1 of 8 (" in line
    assert all(7 not in record.answers.classes for record in table.records)


def test_tasks_that_are_more_balanced_than_asked_for_are_said(file: FeatureFile) -> None:
    table = compared("ncm", [file], [TaskProtocol(alpha=0.05), ONE], tasks=30, baseline="ncm")
    often, seldom = table.records
    assert 0.3 < often.redrawn < 1
    assert seldom.redrawn < 0.01
    (line,) = [line for line in table.warnings() if "drawn again" in line]
    assert f"{often.redrawn:.0%} of the class proportions were drawn again for lack of images" in line


def verifier(files: list[FeatureFile], **options: Any) -> Verifier:
    return Verifier(files, options.get("own", ()), options.get("sample"), 0, runner())


def test_what_cannot_be_verified_says_why(table: Comparison, file: FeatureFile, folder: Path, tmp_path: Path) -> None:
    record = table.groups[0].cells["bavardage", ONE].record

    def reason(one: Record, **options: Any) -> str:
        verdict = verifier([file], **options).verify(one)
        assert verdict.state == "not verified"
        return verdict.note

    def changed(**fields: Any) -> Record:
        return record.model_copy(update={"run": record.run.model_copy(update=fields)})

    assert "features (novel 00000000) are in none" in reason(changed(features="0" * 64))
    assert "base classes (base 00000000)" in reason(changed(base="0" * 64))
    assert "it is of version 9 of bavardage" in reason(changed(version=9))
    assert "parameters are not" in reason(changed(params={"nonsense": 1}))
    assert "its names of classes" in reason(record.model_copy(update={"class_names": record.class_names[::-1]}))
    own = f"{folder}/mine.py:Mine"
    assert "or of another version: name it with --methods" in reason(changed(method="mine.py:Mine@00"), own=[own])
    mine = compared(own, [file], [ONE], tasks=5, baseline=NO_BASELINE).records[0]
    assert verifier([file], own=[own]).verify(mine).state == "equal"


MADE = Provenance("cub", "rn18", weights="w.pth", weights_sha256="ab", transform="{}")


def novel_only(path: Path, features: Features, made: Provenance = MADE) -> FeatureFile:
    return feature_file(path, made, val=features.val, novel=features.novel)


def whole(path: Path, features: Features, made: Provenance) -> FeatureFile:
    base = replace(features.base, class_names=tuple(f"base-{name}" for name in features.base.class_names))
    return feature_file(path, made, base=base, novel=features.novel)


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


def test_without_base(novel: FeatureFile, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Then methods are compared that need none."""
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
