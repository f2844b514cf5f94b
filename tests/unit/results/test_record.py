"""Records: what is written is what is read, and what contradicts itself is refused by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsbench.errors import FsbenchError
from fsbench.results.record import Answers, Record, common_signature, load_record, record_path, save_record
from tests.records import TUNED, make_record, store

ARRAYS = ("predicted", "labels", "confidence", "classes")


def same(one: Record, other: Record) -> bool:
    """Whether two records have the same fields and answers, of the same types."""
    arrays = ((getattr(one.answers, name), getattr(other.answers, name)) for name in ARRAYS)
    return one == other and all(a.dtype == b.dtype for a, b in arrays)


def shortened(record: Record) -> Record:
    """The same record with some tasks of fewer queries."""
    parts = {name: getattr(record.answers, name).copy() for name in ARRAYS}
    for name, empty in (("predicted", -1), ("labels", -1), ("confidence", np.nan)):
        parts[name][::3, -5:] = empty
    return record.model_copy(update={"answers": Answers(**parts)})


PARAMS: dict[str, Any] = {"a": 5.0, "b": 5, "c": True, "d": "inf", "e": 0.1 + 0.2, "f": 1e22, "g": "1", "h": -0.0}


@pytest.mark.parametrize(
    "record",
    [
        make_record(params=PARAMS, given=("a",), tuning=TUNED, preset="mini", blind=True),
        make_record(name="keff", ways=20, alpha=None, present=3, pooled=True, queries=31, base_dataset="mini"),
        shortened(make_record(ways=200, queries=9, alpha=0.1 + 0.2)),
        make_record("mine.py:Mine@0123abcd", tasks=1, base="", warnings=("a\nb",), class_names=("é\u2028 ",) * 20),
    ],
    ids=["parameters", "many classes", "short tasks", "own method"],
)
def test_a_record_is_read_as_it_was_written(record: Record, tmp_path: Path) -> None:
    (path,) = store(tmp_path, record)
    read = load_record(path)
    assert same(read, record)
    assert (read.run.digest, read.signature) == (record.run.digest, record.signature)
    assert [type(value) for value in read.run.params.values()] == [type(value) for value in record.run.params.values()]


def test_answers_in_contradiction_are_refused(tmp_path: Path) -> None:
    record = make_record(tasks=6)
    parts = {name: getattr(record.answers, name) for name in ARRAYS}
    shape, split = "answers are not .tasks, queries.", "classes are not those of its split"
    changes: list[tuple[dict[str, Any], str]] = [
        ({"labels": parts["labels"][:5]}, shape),
        ({name: array[:0] for name, array in parts.items()}, shape),
        ({name: parts[name][:, :9] for name in ARRAYS[:3]}, shape),
        ({"classes": parts["classes"][:, :4]}, shape),
        ({"classes": parts["classes"] + 99}, split),
    ]
    for change, words in changes:
        save_record(tmp_path / "r.h5", record.model_copy(update={"answers": Answers(**{**parts, **change})}))
        with pytest.raises(FsbenchError, match=rf"r\.h5 is damaged: its {words}"):
            load_record(tmp_path / "r.h5")


def test_the_first_tasks_are_a_record_of_their_own_and_parts_add_up() -> None:
    record = make_record(tasks=30)
    first = record.first(12)
    assert (first.tasks, record.tasks, record.first(30), record.first(99)) == (12, 30, record, record)
    assert first.seconds == pytest.approx(record.seconds * 12 / 30)
    np.testing.assert_array_equal(first.per_task, record.per_task[:12])
    assert first.accuracy == pytest.approx(record.per_task[:12].mean())
    rest = Answers(*(getattr(record.answers, name)[12:] for name in ARRAYS))
    assert same(record.model_copy(update={"answers": first.answers + rest}), record)
    assert (first.ci95 or 0) > 0
    assert (record.first(1).ci95 or 0) > 0  # from its classes
    with pytest.raises(ValueError, match="read-only"):
        record.per_task[0] = 0.0


def test_the_signature_of_a_run_has_the_documented_form() -> None:
    network: dict[str, Any] = {"family": "rn12-easy", "weights": "w.pt", "weights_sha256": "660ff334" + "0" * 56}
    record = make_record(
        "bavardage", dataset="cifarfs", shots=5, seed=3, tasks=7, base="9f27f6" + "0" * 58, base_dataset="mini",
        params={"tau": 0.30000004, "steps": 3}, given=("tau",), version=2, **network,
    )  # fmt: skip
    assert record.signature == (
        "fsbench:0.1.0|cifarfs/rn12(rn12-easy@660ff334)/novel@ffffff|base:mini@9f27f6|disjoint:1|5w5s75q|dirichlet:2|"
        "seed:3|tasks:7|bavardage:2(tau:0.3,steps:3)|params:default + given:tau"
    )
    assert make_record(weights="none, seed 4", alpha=None).signature.startswith(
        "fsbench:0.1.0|glyphs/rn12(seed4)/novel@ffffff|disjoint:1|5w1s75q|balanced|seed:0|tasks:40|ncm|params:default"
    )


def test_the_signature_of_a_table_covers_all_its_runs() -> None:
    records = [make_record(method, shots=shots, alpha=alpha) for method in ("ncm", "bavardage")
               for shots in (1, 5) for alpha in (2.0, None)]  # fmt: skip
    fixed, _, digest = common_signature(records).rpartition("@")
    assert fixed == (
        "fsbench:0.1.0|glyphs/rn12/novel@ffffff|disjoint:1|5w1+5s75q|dirichlet:2+balanced|seed:0|tasks:40|params:default"
    )
    assert len(digest) == 8
    assert common_signature(records[::-1]).rpartition("@")[2] == digest
    for change in ({"params": {"tau": 1.0}}, {"version": 2}, {"shots": 2}):
        assert common_signature([*records, make_record("bavardage", **change)]).rpartition("@")[2] != digest
    mixed = [make_record(tasks=20, given=("a",)), make_record("pt-map", base_dataset="mini", tuning=TUNED)]
    parts = common_signature([*mixed, make_record("paddle", versions={"fsbench": "0.0.9"})]).split("|")
    assert (parts[0], parts[2], parts[-2]) == ("fsbench:0.0.9+0.1.0", "base:own+mini@bbbbbb", "tasks:20-40")
    assert parts[-1].startswith("params:default+given+tuned@")


def test_a_file_is_named_for_people_and_by_everything_that_determines_the_answers(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {}, {"seed": 1}, {"features": "0"}, {"base": ""}, {"split": "val"}, {"queries": 60}, {"version": 2},
        {"params": {"a": 1}}, {"params": {"a": 2}},
    ]  # fmt: skip
    paths = {record_path(tmp_path, make_record("pt-map", **change)).name for change in changes}
    assert len(paths) == len(changes)
    assert all(name.startswith("glyphs-rn12-pt-map-unbalanced-1shot-") for name in paths)
    same_run = make_record("pt-map", tasks=3, device="cuda", dataset="copy", given=("a",))
    assert same_run.run.digest == make_record("pt-map").run.digest
    long = make_record("m" * 100, dataset="é" * 100, backbone="timm/" + "b" * 90)
    assert load_record(store(tmp_path, long)[0]).dataset == "é" * 100
