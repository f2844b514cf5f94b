"""Which published numbers stand beside which run, and that every row shipped belongs to some run."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fsbench.backbones.families import FAMILIES
from fsbench.data.catalog import DATASETS
from fsbench.evaluation.sweep import FIGURES
from fsbench.methods.registry import METHODS, method_class
from fsbench.results.published import published, published_curve, published_rows, text_rows
from fsbench.results.record import Record
from fsbench.tasks.protocol import PRESETS, TaskProtocol
from tests.records import make_record

RN18 = {"backbone": "rn18", "family": "rn18-simpleshot"}


@pytest.mark.parametrize(
    ("method", "changes", "expected"),
    [
        ("bavardage", {"family": "wrn-simpleshot"}, (74.10, 0.30)),
        ("bavardage", {"family": "rn12-easy", "crops": 30}, (79.76, 0.29)),
        ("bavardage", {"family": "rn12-easy", "crops": 2}, None),
        ("pt-map", {"family": "rn18-simpleshot", "alpha": None}, (76.9, None)),
        ("pt-map", {"family": "wrn-s2m2", "alpha": None}, (82.92, 0.26)),
        ("maml", {"family": "rn18-simpleshot", "params": {"variant": "transductive"}}, (47.6, None)),
        ("maml", {"family": "rn18-simpleshot"}, None),
        ("bavardage", {"family": "rn18-simpleshot", "dataset": "cub-metadataset"}, None),
        ("bavardage", {"family": "wrn-s2m2"}, None),
        ("bavardage", {"family": "wrn-simpleshot", "ways": 10}, None),
        ("bavardage", {"family": "wrn-simpleshot", "name": "open-set", "unknown": 5}, None),
        ("bavardage", {"family": "wrn-simpleshot", "name": "all-way", "alpha": None, "pooled": True}, None),
        ("bavardage", {"family": "wrn-simpleshot", "support": "realistic"}, None),
        ("bavardage", {"family": "wrn-simpleshot", "name": "veilleux"}, None),
        ("pt-map", {"family": "wrn-simpleshot", "name": "veilleux"}, (60.6, None)),
        ("bavardage", {"family": "wrn-simpleshot", "split": "val"}, None),
        ("bavardage", {"family": "wrn-simpleshot", "base_dataset": "tiered"}, None),
    ],
)
def test_the_family_decides_which_number_is_published(method: str, changes: dict[str, Any], expected: object) -> None:
    backbone = FAMILIES[changes["family"]].backbone
    number = published(make_record(method, **{"dataset": "mini", "backbone": backbone, **changes}))
    assert (number and (number.accuracy, number.ci95)) == expected


@pytest.mark.parametrize(
    ("method", "changes", "accuracy", "words"),
    [
        ("bavardage", {"backbone": "wrn"}, 74.10, "the family of the network is not known"),
        ("pt-map", {"dataset": "cub", "shots": 5, **RN18}, 71.3, "overlap"),
        ("simpleshot", {"shots": 10, **RN18}, 84.0, "overlap"),
        ("tim-gd", {"alpha": None, **RN18}, 71.8, "balanced 1-shot: 73.9 in the readme of mboudiaf/TIM"),
    ],
)
def test_notes_name_guesses_and_sources(method: str, changes: dict[str, Any], accuracy: float, words: str) -> None:
    number = published(make_record(method, **{"dataset": "mini", **changes}))
    assert number
    assert number.accuracy == accuracy
    assert words in " ".join(number.notes)


NAMES = {name for method in METHODS for name in method_class(method).info.published}


def runs_of(row: dict[str, str]) -> Iterator[Record]:
    """Records of every run that could stand beside a row: data sets by families, in the row's setting."""
    changes: dict[str, Any] = {
        "alpha": float(row["alpha"]) if row["alpha"] else None,
        "shots": int(row["shots"]),
        "queries": int(row["queries"]),
        "crops": 30 if row["backbone"].endswith("*") else 1,
        "split": "novel" if row["split"] == "test" else row["split"],
        "tasks": 1,
    }
    return (
        make_record(dataset=dataset, backbone=one.backbone, family=one.name, published_as=(row["method"],), **changes)
        for dataset in DATASETS
        for one in FAMILIES.values()
        if one.published and one.published == row["backbone"].rstrip("*")
    )


def shows(record: Record, row: dict[str, str], axes: set[str]) -> bool:
    """Whether a row is what is shown beside a run, or is named in its notes, or is a point of its curve."""
    if row["param"]:
        point = (float(row["param_value"]), float(row["accuracy"]))
        return any(point in published_curve(record, axis) for axis in axes)
    number = published(record)
    if number is None:
        return False
    shown = (number.accuracy, number.source) == (float(row["accuracy"]), f"{row['source']} {row['table']}")
    named = f"{row['accuracy']} in the {row['table']} of {row['source']}"
    return shown or any(note.endswith(named) for note in number.notes)


def test_every_row_stands_beside_some_run() -> None:
    axes = {plan.axis.name for number in (3, 4, 5) for plan in FIGURES[number]("article")}
    lonely = [row for row in published_rows() if not any(shows(record, row, axes) for record in runs_of(row))]
    assert lonely == []
    assert {row["method"] for row in published_rows()} <= NAMES
    names = [family.published for family in FAMILIES.values() if family.published]
    assert {row["backbone"].rstrip("*") for row in published_rows()} == set(names)


def test_published_points_are_those_of_the_article() -> None:
    def points(axis: str, method: str = "bavardage", **changes: Any) -> dict[float, float]:
        usual = {"dataset": "mini", "backbone": "wrn", "family": "wrn-simpleshot"}
        return dict(published_curve(make_record(method, **{**usual, **changes}), axis))

    assert [*points("t_vb", split="val").items()][:2] == [(30.0, 75.81), (40.0, 78.36)]
    assert points("queries", "soft-kmeans")[150.0] == 72.64
    assert points("prior_alpha", alpha=4.0)[10.0] == 74.90
    assert points("tau", split="val") == points("t_vb", "ncm", split="val") == {}
    others: list[dict[str, Any]] = [{"dataset": "cub"}, {"crops": 30}, {"network": "x"}, {"name": "veilleux"}]
    others += [{"family": ""}, {"images": "fewer"}, {"given": ["t_vb", "beta"]}]
    assert all(points("t_vb", split="val", **change) == {} for change in others)


def test_numbers_of_methods_with_text_belong_to_data_set_backbone_and_protocol() -> None:
    for row in text_rows():
        assert row["method"] in NAMES
        record = make_record(dataset=row["dataset"], backbone=row["backbone"], published_as=(row["method"],), tasks=1)
        record = record.model_copy(update={"class_names": tuple(map(str, range(int(row["classes"]))))})
        usual, present = PRESETS[row["protocol"]].queries, row["present"] or None
        rules = TaskProtocol(row["protocol"], "all", int(row["shots"]), usual, None, 1, present, pooled=True)
        with_text = replace(record.provenance, text_encoder="clip")
        run = record.run.model_copy(update={"protocol": rules})
        shown = published(record.model_copy(update={"run": run, "provenance": with_text}))
        assert shown is not None
        assert (shown.accuracy, shown.source) == (float(row["accuracy"]), row["source"])
        few = run.model_copy(update={"protocol": replace(rules, ways=5)})
        for changes in ({"run": record.run}, {"run": few}, {"class_names": record.class_names[1:]}):
            assert published(record.model_copy(update={"run": run, "provenance": with_text, **changes})) is None
