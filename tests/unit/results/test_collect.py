"""Records read from folders, labelled, and collected into tables."""

import io
from pathlib import Path
from typing import Any

import pytest

from fsbench.errors import FsbenchError
from fsbench.features.store import FeatureFile
from fsbench.reporter import Reporter, SafeConsole
from fsbench.results.collect import add_records, collect, labels_of, read_records, split_ablations, titles
from fsbench.results.comparison import Comparison, Runs
from fsbench.results.record import Origins
from fsbench.tasks.protocol import TaskProtocol
from tests.comparing import QUIET, compared
from tests.records import TUNED, four_settings, make_record, store
from tests.synthetic import Features

ONE, FIVE = TaskProtocol(), TaskProtocol(shots=5)


def labels(comparison: Comparison) -> list[str]:
    return [entry.label for entry in comparison.entries]


def listening() -> tuple[Reporter, io.StringIO]:
    reporter, heard = Reporter(), io.StringIO()
    reporter.console = SafeConsole(file=heard, width=400)
    return reporter, heard


def content(comparison: Comparison) -> list[Any]:
    """All that a table shows."""
    groups = [(group.title, dict(group.cells)) for group in comparison.groups]
    return [comparison.signature(), comparison.entries, comparison.columns, groups, comparison.warnings()]


def test_records_alone_give_the_table_that_compare_gave(features: Features, tmp_path: Path) -> None:
    file = FeatureFile.open(features.write(tmp_path / "a.h5", "mini", "rn18"))
    methods = "ncm,simpleshot,simpleshot:L2N,soft-kmeans,bavardage,bavardage:released,bavardage:transport"
    protocols = [ONE, TaskProtocol(shots=5, alpha=None)]
    table = compared(methods, [file], protocols, tasks=12, results=tmp_path / "results")
    (collected,) = collect(read_records(None, tmp_path / "results", QUIET))
    assert labels(collected) == methods.split(",")
    assert content(collected) == content(table)


def test_each_list_of_tasks_is_a_table_of_its_own_and_the_most_tasks_come_first() -> None:
    records = [
        *(make_record(method) for method in ("ncm", "soft-kmeans", "tim-gd")),
        make_record("pt-map", tasks=50),
        *(make_record(**change) for change in ({"seed": 1}, {"split": "val"}, {"ways": 10}, {"queries": 50})),
        *(make_record(**change) for change in ({"present": 2}, {"unknown": 2}, {"unknown": 5}, {"base": "pool"})),
        make_record(base_dataset="mini"),
    ]
    tables = collect(records)
    assert [(len(table.records), table.tasks) for table in tables] == [(4, 40), *[(1, 40)] * 9]
    assert len({table.signature() for table in tables}) == 10
    assert titles(tables[:1]) == ["40 tasks"]
    assert titles(collect([records[0], records[4], records[-1]])) == [
        "40 tasks, base classes of their own, seed 0",
        "40 tasks, base classes of their own, seed 1",
        "40 tasks, base classes of mini, seed 0",
    ]


def test_the_order_of_records_does_not_matter() -> None:
    records = [record for method in ("bavardage", "ncm") for record in four_settings(method, 0.6)]
    records += four_settings("ncm", 0.6, features="e" * 64, dataset="own")
    assert [content(table) for table in collect(records)] == [content(table) for table in collect(records[::-1])]


def test_rows_come_as_methods_are_listed_then_others_with_what_they_assume() -> None:
    names = ("bavardage", "zeta", "soft-kmeans", "ncm", "pt-map", "mine.py:Mine@0123abcd")
    (table,) = collect([make_record(name) for name in names])
    assert labels(table) == ["ncm", "pt-map", "soft-kmeans", "bavardage", "Mine", "zeta"]
    assumed = [entry.assumes for entry in table.entries]
    assert assumed == ["inductive", "uniform prior", "no prior", "free prior", "", ""]
    assert [entry.method for entry in table.entries][-2:] == ["mine.py:Mine", "zeta"]
    told = {"mixing": "learned", "prior_alpha": 4.0}
    settings = [({}, 2.0), (told, 4.0), ({"mixing": "uniform"}, None)]
    (table,) = collect([make_record("bavardage", params=params, alpha=alpha) for params, alpha in settings])
    assert table.entries[0].assumes == "free prior / free prior, told α / uniform prior"


def test_only_the_newest_version_of_a_method_is_shown(tmp_path: Path) -> None:
    store(tmp_path, make_record("pt-map"), make_record("ncm"), make_record("pt-map", version=2))
    reporter, heard = listening()
    records = read_records(None, tmp_path, reporter)
    assert sorted((record.run.method, record.run.version) for record in records) == [("ncm", 1), ("pt-map", 2)]
    assert "1 record of an earlier version of pt-map is left out. Run it again to replace it." in heard.getvalue()
    assert [record.run.method for record in read_records(None, tmp_path, reporter, {"ncm": 2})] == ["pt-map"]


def test_a_method_may_be_missing_somewhere_and_so_may_the_baseline() -> None:
    records = [make_record("ncm", 0.6), make_record("ncm", 0.7, shots=5), make_record("soft-kmeans", 0.8, shots=5)]
    cells = collect(records)[0].groups[0].cells
    assert ("soft-kmeans", ONE) not in cells
    assert (cells["ncm", ONE].difference, cells["ncm", ONE].p_value, cells["ncm", ONE].best) == (None, None, True)
    difference = cells["ncm", FIVE].difference
    assert difference
    assert difference.mean == pytest.approx(records[1].accuracy - records[2].accuracy)
    assert collect(records, "ncm")[0].groups[0].cells["soft-kmeans", FIVE].difference
    with pytest.raises(FsbenchError, match="Did you mean 'ncm'"):
        collect(records, "nmc")


def test_feature_files_are_told_by_content_and_named_apart() -> None:
    changes: list[dict[str, Any]] = [
        {}, {"features": "e" * 64}, {"features": "d" * 64, "crops": 30}, {"base": ""},
        {"family": "rn12-easy", "weights": "mine.pth", "weights_sha256": "0" * 64},
    ]  # fmt: skip
    (table,) = collect([make_record(**change) for change in changes])
    assert sorted(group.title for group in table.groups) == [
        "glyphs rn12 (1 crop, features eeeeee, base bbbbbb)",
        "glyphs rn12 (1 crop, features ffffff, base bbbbbb)",
        "glyphs rn12 (1 crop, features ffffff, base none)",
        "glyphs rn12 (30 crops)",
        "glyphs rn12 (rn12-easy, mine.pth@00000000)",
    ]
    assert [group.same_name for group in sorted(table.groups, key=lambda one: one.title)] == [True] * 3 + [False] * 2
    assert any("glyphs rn12: different features or base classes under one name" in line for line in table.warnings())


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # Each run: method, parameters, what else.
        ([("bavardage", {"variant": "released"}, {"given": ["variant"]})], ["bavardage:released"]),
        (
            [
                ("bavardage", {"tau": 0.3}, {}),
                ("bavardage", {"tau": 0.2}, {"given": ["tau"]}),
                ("bavardage", {"tau": 0.1}, {"tuning": TUNED}),
                ("bavardage", {"tau": 0.4}, {"blind": True}),
            ],
            ["bavardage", "bavardage (blind)", "bavardage (tuned:val:grid:50x500)", "bavardage tau=0.2"],
        ),
        (  # A row never mixes what was given with defaults, even where no setting has both.
            [("soft-kmeans", {"t_km": 50.0}, {"shots": 5}), ("soft-kmeans", {"t_km": 10.0}, {"given": ["t_km"]})],
            ["soft-kmeans", "soft-kmeans t_km=10"],
        ),
        (  # Defaults that depend on the setting do not split a row, nor does a preset that changes some of them.
            [("soft-kmeans", {"t_km": 50.0}, {}), ("soft-kmeans", {"t_km": 10.0}, {"shots": 5, "preset": "tiered"})],
            ["soft-kmeans"],
        ),
        (  # Two searches of the same size, or a preset in the same setting: the parameters that differ.
            [("bavardage", {"tau": tau, "beta": 10}, {"tuning": TUNED}) for tau in (0.1, 0.25)],
            ["bavardage tau=0.1", "bavardage tau=0.25"],
        ),
        (  # Numbers are ordered by value, and none is rounded into another.
            [("tim-gd", {"steps": n, "rate": 0.300004}, {"given": ["steps"]}) for n in (1000, 50)]
            + [("tim-gd", {"steps": 50, "rate": 0.3}, {"given": ["steps"]})],
            ["tim-gd steps=50 rate=0.3", "tim-gd steps=50 rate=0.300004", "tim-gd steps=1000"],
        ),
        ([("a.py:M@00", {}, {}), ("a.py:M@11", {}, {})], ["a.py:M@00", "a.py:M@11"]),
        ([("bavardage", {"tau": 0.02}, {"given": ["tau"]})], ["bavardage tau=0.02"]),
    ],
)
def test_labels(runs: list[tuple[str, dict[str, object], dict[str, Any]]], expected: list[str]) -> None:
    records = [make_record(method, params=params, **more) for method, params, more in runs]
    (table,) = collect(records)
    assert labels(table) == expected
    assert len(table.records) == len(records)
    assert {*labels_of(records)} == {*expected}


@pytest.mark.parametrize("name", ["labels", "classes"])
def test_runs_with_other_queries_are_not_paired(name: str) -> None:
    other = make_record("soft-kmeans")
    array = getattr(other.answers, name)
    array[3] = array[3, ::-1].copy()
    with pytest.raises(FsbenchError, match="not over the same tasks"):
        collect([make_record(), other])
    assert len(collect([make_record(), other.first(3)])[0].records) == 2


def test_a_folder_is_read_without_its_subfolders_and_what_is_no_record_is_named(tmp_path: Path) -> None:
    good = make_record()
    store(tmp_path, good)
    store(tmp_path / "points", make_record(shots=5))
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "rows.h5").write_text("[]")
    (half,) = store(tmp_path, make_record("pt-map"))
    half.write_bytes(half.read_bytes()[:-200])
    reporter, heard = listening()
    assert [record.run for record in read_records(None, tmp_path, reporter)] == [good.run]
    assert [record.run for record in read_records([tmp_path], tmp_path / "other", QUIET)] == [good.run]
    warnings = heard.getvalue().splitlines()
    assert len(warnings) == 2
    assert half.name in warnings[0]
    assert "rows.h5" in warnings[1]
    with pytest.raises(FsbenchError, match=r"rows\.h5"):
        read_records([tmp_path / "rows.h5"], tmp_path, QUIET)
    with pytest.raises(FsbenchError, match=r"no records in .*missing/") as caught:
        read_records(None, tmp_path / "missing", QUIET)
    assert "fsbench compare" in caught.value.hint


def test_of_two_copies_the_longer_counts_and_of_equals_the_newer(tmp_path: Path) -> None:
    old = make_record()
    new, short = old.model_copy(update={"created": "2026-11-17T10:00:00+00:00"}), old.first(10)
    paths = [path for name, record in (("a", new), ("b", old), ("c", short)) for path in store(tmp_path / name, record)]
    for chosen in (paths, paths[::-1]):
        (record,) = read_records(chosen, tmp_path, QUIET)
        assert (record.tasks, record.created) == (40, new.created)


def test_parameters_set_by_hand_are_an_ablation_where_the_method_also_ran_without() -> None:
    hand: dict[str, Any] = {"params": {"stage": "vb"}, "given": ["stage"]}
    plain, found = make_record("bavardage"), make_record("bavardage", params={"tau": 1.0}, tuning=TUNED)
    by_hand, elsewhere = make_record("bavardage", **hand), make_record("bavardage", seed=1, **hand)
    variant = make_record("bavardage", params={"variant": "released"}, given=["variant"])
    alone = make_record("pt-map", params={"steps": 3}, given=["steps"])
    records = [plain, found, by_hand, variant, alone, elsewhere, make_record("soft-kmeans"), make_record("ncm")]
    ranking, studied = split_ablations(records)
    assert [number for number, record in enumerate(records) if all(record is not one for one in ranking)] == [2]
    assert [record.run.method for record in studied] == ["bavardage"] * 4 + ["soft-kmeans"]


def test_a_run_that_was_asked_for_twice_has_both_names() -> None:
    """Told nothing, a method may have the parameters that are its defaults in one of two settings."""
    plain, blind = make_record("bavardage").origins, Origins(blind=True)
    both = make_record("bavardage").model_copy(update={"also": (blind,)})
    other = make_record("bavardage", alpha=None, params={"mixing": "learned"})
    (comparison,) = collect([both, other, other.model_copy(update={"origins": blind}), make_record("soft-kmeans")])
    assert plain != blind
    assert [entry.label for entry in comparison.entries] == ["soft-kmeans", "bavardage", "bavardage (blind)"]
    assert len(comparison.cells) == 5  # all methods in the unbalanced column, without the baseline in the other


def test_records_of_others_join_where_tasks_are_the_same(tmp_path: Path) -> None:
    mine = make_record("ncm", tasks=20)
    runs: Runs = {(0, "ncm", ONE): mine, (0, "ncm", FIVE): make_record("ncm", shots=5)}
    same = [make_record("pt-map"), make_record("ncm", params={"a": 1})]
    apart = [make_record("pt-map", shots=5, seed=1), make_record("paddle", features="e" * 64)]
    apart += [make_record("paddle", queries=20), make_record("paddle", tasks=3)]
    store(tmp_path, mine, *same, *apart)
    reporter, heard = listening()
    assert {*add_records(runs, [tmp_path, tmp_path], reporter)} == {"pt-map", "ncm a=1"}
    assert [runs[0, label, ONE].tasks for label in ("pt-map", "ncm a=1")] == [20, 20]
    assert len(runs) == 4
    assert f"left out of {tmp_path}: 4" in heard.getvalue()
