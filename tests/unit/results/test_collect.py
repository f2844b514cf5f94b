from __future__ import annotations

import dataclasses
import io
import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fsbench.errors import FsbenchError
from fsbench.features.store import FeatureFile
from fsbench.io.sealed import write_sealed
from fsbench.methods.catalog import INFOS
from fsbench.report.render import render_csv, render_json, render_markdown, render_rich
from fsbench.reporter import Reporter, SafeConsole
from fsbench.results.collect import collect, read_records, split_ablations, titles
from fsbench.results.comparison import Column
from fsbench.results.record import load_record
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import QUIET, compared
from tests.records import four_settings, make_record, store

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.results.comparison import Comparison
    from fsbench.results.record import RunRecord
    from tests.synthetic import Features

ONE = Column(False, 2.0, 1)


def labels(comparison: Comparison) -> list[str]:
    return [entry.label for entry in comparison.entries]


def listening() -> tuple[Reporter, io.StringIO]:
    reporter, heard = Reporter(), io.StringIO()
    reporter.console = SafeConsole(file=heard, width=400)
    return reporter, heard


def test_records_alone_give_the_table_that_compare_gave(features: Features, tmp_path: Path) -> None:
    file = FeatureFile.open(features.write(tmp_path / "a.h5", "mini", "rn18"))
    methods = "ncm,simpleshot,simpleshot:L2N,soft-kmeans,bavardage,bavardage:released,bavardage:transport"
    protocols = [TaskProtocol(), TaskProtocol(shots=5, alpha=None)]
    table = compared(methods, [file], protocols, tasks=12, results=tmp_path / "results")
    (found,) = collect(read_records(None, tmp_path / "results", QUIET))
    assert json.loads(render_json(found)) == json.loads(render_json(table))
    assert render_markdown(found) == render_markdown(table)


def test_each_list_of_tasks_is_a_comparison_of_its_own_and_the_most_tasks_come_first() -> None:
    records = [
        *(make_record(method) for method in ("ncm", "soft-kmeans", "tim-gd")),
        *(make_record(method, tasks=50) for method in ("ncm", "soft-kmeans")),
        make_record(seed=1),
        make_record(split="val"),
        make_record(name="veilleux"),
        make_record(ways=10),
        make_record(queries=50),
    ]
    found = collect(records)
    assert [len(comparison.records) for comparison in found] == [2, 3, 1, 1, 1, 1, 1]
    assert len({comparison.signature() for comparison in found}) == 7
    assert "tasks:50" in found[0].signature()
    assert found[1].tasks == 40


def test_titles_of_comparisons_name_what_differs() -> None:
    records = [make_record(tasks=50), make_record(seed=1), make_record(), make_record(base_dataset="mini")]
    assert titles(collect(records)) == [
        "50 tasks, base classes of their own, seed 0",
        "40 tasks, base classes of their own, seed 0",
        "40 tasks, base classes of their own, seed 1",
        "40 tasks, base classes of mini, seed 0",
    ]
    assert titles(collect(records[:1])) == ["50 tasks"]


def test_the_order_of_records_does_not_matter() -> None:
    records = [record for method in ("bavardage", "ncm", "soft-kmeans") for record in four_settings(method, 0.6)]
    records += [dataclasses.replace(record, dataset="own") for record in four_settings("ncm", 0.6, features="e" * 64)]
    expected = [render_json(comparison) for comparison in collect(records)]
    random.Random(0).shuffle(records)
    assert [render_json(comparison) for comparison in collect(records)] == expected


def test_entries_come_as_the_methods_are_listed_then_others() -> None:
    own = make_record("mine.py:Mine@0123abcd")
    names = ("bavardage", "zeta", "soft-kmeans", "ncm", "pt-map")
    (found,) = collect([own, *(make_record(name) for name in names)])
    assert labels(found) == ["ncm", "pt-map", "soft-kmeans", "bavardage", "Mine", "zeta"]
    assert [entry.assumes for entry in found.entries] == [
        *("inductive", "uniform prior", "no prior", "free prior", "not recorded", "not recorded")
    ]


def test_what_is_assumed_is_that_of_the_parameters_in_each_column() -> None:
    learned, uniform = {"mixing": "learned", "prior_alpha": 4.0}, {"mixing": "uniform", "prior_alpha": 2.0}
    records = [
        make_record("bavardage", params={**learned, "prior_alpha": 2.0}),
        make_record("bavardage", params=learned, alpha=4.0),
        make_record("bavardage", params=uniform, alpha=None),
        make_record("alpha-am", params={"order": 1.0}, alpha=None),
        make_record("tim-gd", params={"marginal": 0.0}),
    ]
    (found,) = collect(records)
    assert {(label, column.alpha): cell.assumes for (label, column), cell in found.groups[0].cells.items()} == {
        ("tim-gd", 2.0): "no prior",
        ("alpha-am", None): "uniform prior",
        ("bavardage", 2.0): "free prior",
        ("bavardage", 4.0): "free prior, told α",
        ("bavardage", None): "uniform prior",
    }
    assert found.entries[-1].assumes == "free prior / free prior, told α / uniform prior"


def test_records_of_a_method_that_has_changed_since_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, kept = make_record("pt-map"), make_record("ncm")
    new = dataclasses.replace(old, key=dataclasses.replace(old.key, method_version=2))
    paths = store(tmp_path, old, kept, new)
    assert len(set(paths)) == 3
    info = dataclasses.replace(INFOS["pt-map"], version=2)
    monkeypatch.setitem(INFOS, "pt-map", info)
    reporter, heard = listening()
    found = read_records(None, tmp_path, reporter)
    assert sorted((record.key.method, record.key.method_version) for record in found) == [("ncm", 1), ("pt-map", 2)]
    assert "1 record of an earlier version of pt-map is left out. Run it again to replace it." in heard.getvalue()


def test_a_record_without_a_version_of_its_method_is_of_the_first(tmp_path: Path) -> None:
    record = make_record()
    (path,) = store(tmp_path, record)
    content = dataclasses.asdict(record)
    del content["key"]["method_version"]
    write_sealed(path, content)
    assert load_record(path, record.key).key.method_version == 1
    assert record.key.digest() == "32fc21b15be6"  # as before there were versions


def test_a_record_never_makes_a_file_of_its_makers_run(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    collect([make_record(f"{plugin}:Mine"), make_record(f"{plugin}:Mine@0123abcd", shots=5)])
    assert not (tmp_path / "ran").exists()


def test_a_method_may_be_missing_somewhere_and_so_may_the_baseline() -> None:
    five = Column(False, 2.0, 5)
    records = [make_record("ncm", 0.6), make_record("ncm", 0.7, shots=5), make_record("soft-kmeans", 0.8, shots=5)]
    (found,) = collect(records)
    cells = found.groups[0].cells
    assert ("soft-kmeans", ONE) not in cells
    assert cells["ncm", ONE].difference is None
    assert cells["ncm", ONE].p_value is None
    assert cells["ncm", ONE].best
    difference = cells["ncm", five].difference
    assert difference is not None
    assert difference.mean == pytest.approx(records[1].accuracy - records[2].accuracy)
    text = render_markdown(found)
    assert "| soft-kmeans | no prior | – | **" in text
    render_rich(found)


def test_the_baseline_can_be_chosen_and_a_mistyped_one_is_refused() -> None:
    records = [make_record("ncm"), make_record("pt-map")]
    assert collect(records)[0].groups[0].cells["pt-map", ONE].difference is None
    assert collect(records, "ncm")[0].groups[0].cells["pt-map", ONE].difference is not None
    with pytest.raises(FsbenchError, match="Did you mean 'pt-map'"):
        collect(records, "pt-mapp")


def test_feature_files_are_told_by_content_and_named_apart() -> None:
    records = [
        make_record(),
        make_record(features="e" * 64),
        make_record(features="d" * 64, crops=30),
        make_record(features="c" * 64, backbone="wrn"),
        make_record(base=""),
    ]
    (found,) = collect(records)
    assert [group.title for group in found.groups] == [
        "glyphs rn12 (1 crop, features eeeeee, base bbbbbb)",
        "glyphs rn12 (1 crop, features ffffff, base none)",
        "glyphs rn12 (1 crop, features ffffff, base bbbbbb)",
        "glyphs rn12 (30 crops)",
        "glyphs wrn",
    ]


@pytest.mark.parametrize(
    "names",
    [
        {"dataset": "copy"},
        {"backbone": "wrn"},
        {"dataset": "copy", "backbone": "wrn"},
        {"crops": 30},
        {"base_dataset": "mini"},
        {"family": "rn12-rfs", "weights": "other.pth@0a1b2c3d"},
        {"weights": "other.pth@0a1b2c3d"},
    ],
)
def test_equal_features_under_two_names_are_both_shown_by_their_names(tmp_path: Path, names: dict[str, Any]) -> None:
    network: dict[str, Any] = {"family": "rn12-easy", "weights": "mine.pth@00000000"}
    first = [*four_settings("ncm", 0.6, **network), *four_settings("soft-kmeans", 0.7, **network)]
    second = [dataclasses.replace(record, **names) for record in first]
    folders = tmp_path / "first", tmp_path / "second"
    for folder, records in zip(folders, (first, second), strict=True):
        store(folder, *records)
    read = read_records(folders, tmp_path, QUIET)
    assert len(read) == len(first + second)
    comparisons = collect(read)
    shown = [record for comparison in comparisons for record in comparison.records]
    assert sorted(map(repr, shown)) == sorted(map(repr, first + second))
    titles = [group.title for comparison in comparisons for group in comparison.groups]
    for group in (group for comparison in comparisons for group in comparison.groups):
        for cell in group.cells.values():
            assert cell.record is not None
            assert (cell.record.dataset, cell.record.backbone) == (group.dataset, group.backbone)
        assert len({cell.record.source for cell in group.cells.values() if cell.record}) == 1
    assert len(set(titles)) == (1 if "base_dataset" in names else 2)  # another table altogether
    assert {entry.label for comparison in comparisons for entry in comparison.entries} == {"ncm", "soft-kmeans"}


def test_records_that_do_not_name_their_network_stay_beside_those_of_the_same_features(tmp_path: Path) -> None:
    network: dict[str, Any] = {"family": "rn12-easy", "weights": "mine.pth@00000000"}
    records = [make_record("ncm"), make_record("soft-kmeans", **network), make_record("ncm", features="e" * 64)]
    copy = dataclasses.replace(records[0], **network)
    folders = tmp_path / "one", tmp_path / "copy"
    store(folders[0], *records)
    store(folders[1], copy)
    (found,) = collect(read_records(folders, tmp_path, QUIET))
    assert [group.title for group in found.groups] == [*("glyphs rn12", "glyphs rn12 (rn12-easy, mine.pth@00000000)")]
    assert [len(group.cells) for group in found.groups] == [1, 2]
    other = make_record("pt-map", family="rn12-rfs")  # and now it could be of either
    (found,) = collect(read_records(store(tmp_path, records[0], records[1], other), tmp_path, QUIET))
    assert [len(group.cells) for group in found.groups] == [1, 1, 1]
    assert len({group.title for group in found.groups}) == 3


TUNED = "tuned:val:50x500"


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # Each run: method, parameters, where they come from, shots.
        ([("bavardage", {"variant": "released", "tau": 0.3}, "default + given:variant", 1)], ["bavardage:released"]),
        ([("bavardage", {"variant": "article", "tau": 0.2}, "default + given:tau", 1)], ["bavardage"]),
        (
            [
                ("bavardage", {"variant": "article", "tau": 0.3}, "default", 1),
                ("bavardage", {"variant": "article", "tau": 0.2}, "default + given:tau", 1),
                ("bavardage", {"variant": "article", "tau": 0.1}, TUNED, 1),
            ],
            ["bavardage", f"bavardage ({TUNED})", "bavardage tau=0.2"],
        ),
        (  # A row never mixes what was given with defaults, even where no setting has both.
            [
                ("soft-kmeans", {"t_km": 50.0}, "default", 5),
                ("soft-kmeans", {"t_km": 10.0}, "default + given:t_km", 1),
            ],
            ["soft-kmeans", "soft-kmeans t_km=10"],
        ),
        (  # Defaults that depend on the setting do not split a row.
            [("soft-kmeans", {"t_km": 50.0}, "default", 1), ("soft-kmeans", {"t_km": 10.0}, "default", 5)],
            ["soft-kmeans"],
        ),
        (
            [("bavardage", {"tau": 2.5}, "default + given:t_vb", 1), ("bavardage", {"tau": 0.3}, "default", 1)],
            ["bavardage", "bavardage tau=2.5"],
        ),
        (  # Two searches of the same size, or defaults that changed: the parameters that differ.
            [("bavardage", {"tau": 0.1, "beta": 10}, TUNED, 1), ("bavardage", {"tau": 0.25, "beta": 10}, TUNED, 1)],
            ["bavardage tau=0.1", "bavardage tau=0.25"],
        ),
        (  # Numbers are ordered by value, and none is rounded into another.
            [("tim-gd", {"steps": n, "rate": 0.300004}, "default + given:steps", 1) for n in (1000, 50)]
            + [("tim-gd", {"steps": 50, "rate": 0.3}, "default + given:steps", 1)],
            ["tim-gd steps=50 rate=0.3", "tim-gd steps=50 rate=0.300004", "tim-gd steps=1000"],
        ),
        (  # A preset changes parameters in some settings only, and does not split a row.
            [("soft-kmeans", {"t_km": 10.0}, "default", 1), ("soft-kmeans", {"t_km": 100.0}, "preset:tiered", 5)],
            ["soft-kmeans"],
        ),
        (
            [("soft-kmeans", {"t_km": 50.0}, "default", 1), ("soft-kmeans", {"t_km": 100.0}, "preset:tiered", 1)],
            ["soft-kmeans t_km=50.0", "soft-kmeans t_km=100.0"],
        ),
        (
            [("a.py:Mine@00000000", {}, "default", 1), ("a.py:Mine@11111111", {}, "default", 1)],
            ["a.py:Mine@00000000", "a.py:Mine@11111111"],
        ),
    ],
)
def test_labels(runs: list[tuple[str, dict[str, object], str, int]], expected: list[str]) -> None:
    records = [
        make_record(method, params=params, params_from=origin, shots=shots, draw=number)
        for number, (method, params, origin, shots) in enumerate(runs)
    ]
    (found,) = collect(records)
    assert labels(found) == expected
    assert len(found.records) == len(records)


def test_published_numbers_belong_to_five_ways_of_the_novel_classes() -> None:
    names: dict[str, Any] = {"dataset": "mini", "backbone": "rn18"}
    ours = make_record("pt-map", **names)
    changes: list[dict[str, Any]] = [{"ways": 10}, {"split": "val"}, {"queries": 50}]
    others = [make_record("pt-map", **names, **change) for change in changes]
    first = next(comparison for comparison in collect([ours, *others]) if comparison.records == [ours])
    assert labels(first) == ["pt-map", "MAML", "Versa"]
    assert first.groups[0].cells["MAML", ONE].published is not None
    for comparison in collect(others):
        assert labels(comparison) == ["pt-map"]
        assert comparison.groups[0].cells["pt-map", ONE].published is None
    assert labels(collect([ours], published=False)[0]) == ["pt-map"]


@pytest.mark.parametrize(
    ("keys", "labels"),
    [
        (["theirs@1.2"], ["theirs"]),
        (["theirs@1.2", "theirs@1.3"], ["theirs@1.2", "theirs@1.3"]),
        (["theirs", "theirs@1.2"], ["theirs", "theirs@1.2"]),
    ],
)
def test_versions_of_installed_methods_are_named_where_there_are_two(keys: list[str], labels: list[str]) -> None:
    (found,) = collect([make_record(method) for method in keys])
    assert [entry.label for entry in found.entries] == labels


@pytest.mark.parametrize("change", [{"crops": 30}, {"features": "a" * 64}, {"base": "a" * 64}])
def test_rows_of_files_of_the_same_name_can_be_told_apart(change: dict[str, Any]) -> None:
    names: dict[str, Any] = {"dataset": "mini", "backbone": "rn18"}
    other = {"features": "e" * 64, **change}
    (found,) = collect([make_record("bavardage", **names), make_record("bavardage", **names, **other)])
    rows = json.loads(render_json(found))
    fields = ("crops", "features_sha256", "base_sha256")
    assert all(row[field] for row in rows for field in fields)
    assert any(row["accuracy"] is None for row in rows)  # a published number alone
    groups = {tuple(row[field] for field in fields) for row in rows}
    assert len(groups) == 2
    assert set(fields) <= set(render_csv(found).partition("\n")[0].split(","))


def test_records_without_a_word_on_another_file_name_its_data_set_and_digest() -> None:
    (found,) = collect([make_record("ncm", base_dataset="mini"), make_record("pt-map", base_dataset="mini")])
    assert "|base:mini@bbbbbb|" in found.signature()


def test_versions_of_the_records_are_in_the_signature() -> None:
    old = make_record("soft-kmeans", versions={"fsbench": "0.0.9"})
    (found,) = collect([make_record(), old])
    assert found.signature().startswith("fsbench:0.0.9+0.1.0|")


def test_runs_with_other_numbers_of_queries_are_not_paired() -> None:
    other = make_record("soft-kmeans")
    other.queries[3] = 74
    with pytest.raises(FsbenchError, match="not over the same tasks"):
        collect([make_record(), other])


def test_a_folder_is_read_without_its_subfolders_and_what_is_no_record_is_named(tmp_path: Path) -> None:
    good = make_record()
    store(tmp_path, good)
    store(tmp_path / "sweep", make_record(shots=5))
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "rows.json").write_text("[]")
    (half,) = store(tmp_path, make_record("pt-map"))
    half.write_text(half.read_text()[:200])
    reporter, heard = listening()
    assert read_records(None, tmp_path, reporter) == [good]
    assert read_records([tmp_path], tmp_path / "other", QUIET) == [good]
    warnings = heard.getvalue().splitlines()
    assert len(warnings) == 2
    assert half.name in warnings[0]
    assert "rows.json" in warnings[1]
    with pytest.raises(FsbenchError, match=r"rows\.json is damaged"):
        read_records([tmp_path / "rows.json"], tmp_path, QUIET)
    with pytest.raises(FsbenchError, match="cannot be read: No such file"):
        read_records([tmp_path / "none.json"], tmp_path, QUIET)


@pytest.mark.parametrize("folder", ["empty", "missing"])
def test_no_records_at_all(tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FsbenchError, match=f"no records in .*{folder}/") as caught:
        read_records(None, tmp_path / folder, QUIET)
    assert "fsbench compare" in caught.value.hint


def test_the_newest_of_two_copies_is_taken(tmp_path: Path) -> None:
    old = make_record()
    new = dataclasses.replace(old, created="2026-11-17T10:00:00+00:00", device="cuda:X")
    (path,) = store(tmp_path, new)
    (copy,) = store(tmp_path / "copy", old)
    assert read_records([path, copy], tmp_path, QUIET) == [new]


def _protocol(record: dict[str, dict[str, object]], **changes: object) -> dict[str, object]:
    key = record["key"]
    return {**record, "key": {**key, "protocol": {**key["protocol"], **changes}}}  # type: ignore[dict-item]


def test_a_record_that_contradicts_itself_is_damaged(tmp_path: Path) -> None:
    (path,) = store(tmp_path, make_record())
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "accuracy": data["accuracy"] + 1}))
    with pytest.raises(FsbenchError, match="not as it was written"):
        read_records([path], tmp_path, QUIET)
    del data["sha256"]  # as records were before they had one
    key = data["key"]
    bad = {
        "its accuracy": [{**data, "accuracy": data["accuracy"] + 1}, {**data, "ci95": None}, {**data, "ci95": 9.0}],
        "its protocol": [
            {**data, "key": {**key, "protocol": {}}},
            _protocol(data, alpha=-1),
            _protocol(data, shots="one"),
            _protocol(data, name="unheard"),
            _protocol(data, more=1),
        ],
        "version 2": [{**data, "key": {**key, "version": 2}}],
        "its counts": [{**data, "seconds": 1e-20}],
    }
    for words, records in bad.items():
        for record in records:
            path.write_text(json.dumps(record))
            with pytest.raises(FsbenchError, match=f"damaged: .*{words}"):
                read_records([path], tmp_path, QUIET)


def test_one_task_has_no_interval_and_still_compares(tmp_path: Path) -> None:
    records: list[RunRecord] = [make_record("ncm", tasks=1), make_record("soft-kmeans", tasks=1)]
    found = read_records(store(tmp_path, *records), tmp_path, QUIET)
    assert len(collect(found)[0].records) == 2


def test_records_with_widths_of_1_96_standard_errors_are_read_and_shown_with_students(tmp_path: Path) -> None:
    record = make_record(tasks=5)
    earlier = 1.96 * np.std(record.per_task, ddof=1) / 5**0.5
    assert record.ci95 is not None
    assert record.ci95 > 1.4 * earlier
    (path,) = store(tmp_path, dataclasses.replace(record, ci95=float(earlier)))
    assert read_records([path], tmp_path, QUIET) == [record]


def test_parameters_set_by_hand_are_an_ablation_where_the_method_also_ran_without() -> None:
    plain, tuned = (
        make_record("bavardage"),
        make_record("bavardage", params_from="tuned:val:grid:50x500", params={"a": 1}),
    )
    hand = make_record("bavardage", params={"stage": "vb"}, params_from="default + given:stage")
    variant = make_record("bavardage", params={"variant": "released"}, params_from="default + given:variant")
    alone = make_record("pt-map", params={"steps": 3}, params_from="default + given:steps")
    elsewhere = make_record("bavardage", seed=1, params={"stage": "vb"}, params_from="default + given:stage")
    records = [plain, tuned, hand, variant, alone, elsewhere, make_record("soft-kmeans"), make_record("ncm")]
    ranking, studied = split_ablations(records)
    assert [record for record in records if record not in ranking] == [hand]
    assert [record.key.method for record in studied] == ["bavardage"] * 4 + ["soft-kmeans"]
    assert hand in studied
    assert labels(collect(ranking)[0]) == ["ncm", "pt-map", "soft-kmeans", *labels(collect([plain, tuned, variant])[0])]
