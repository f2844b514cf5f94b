"""Which published numbers stand beside which run, and that every row shipped belongs to some run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fsbench.backbones.families import FAMILIES
from fsbench.data.catalog import dataset_names
from fsbench.evaluation.sweep import figure
from fsbench.methods.registry import METHODS
from fsbench.results.published import ONLY_PUBLISHED, published, published_curve, published_rows
from tests.records import make_record

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTING = {"balanced": True, "dirichlet": False}


@pytest.mark.parametrize(
    ("method", "changes", "expected"),
    [
        ("bavardage", {"family": "wrn-simpleshot"}, (74.10, 0.30)),
        ("soft-kmeans", {"family": "wrn-simpleshot", "shots": 5}, (82.41, 0.16)),
        ("pt-map", {"family": "rn18-simpleshot"}, (60.1, None)),
        ("pt-map", {"family": "rn18-simpleshot", "alpha": None}, (76.9, None)),
        ("pt-map", {"family": "wrn-s2m2", "alpha": None}, (82.92, 0.26)),
        ("bms", {"family": "wrn-s2m2", "alpha": None, "dataset": "cub"}, (91.91, 0.18)),
        ("simpleshot", {"family": "rn18-simpleshot"}, (63.0, None)),
        ("ncm", {"family": "rn18-simpleshot"}, None),
        ("bavardage", {"family": "rn18-simpleshot", "dataset": "glyphs"}, None),
        ("bavardage", {"family": "timm/resnet50"}, None),
        ("bavardage", {"family": "wrn-s2m2"}, None),
        ("bavardage", {"family": "wrn-libfewshot"}, None),
        ("bavardage", {"family": "rn12-metaoptnet"}, None),
        ("bms", {"family": "wrn-simpleshot", "alpha": None}, None),
        ("bavardage", {"family": "wrn-simpleshot", "ways": 10}, None),
        ("bavardage", {"family": "wrn-simpleshot", "split": "val"}, None),
        ("bavardage", {"family": "wrn-simpleshot", "base_dataset": "tiered"}, None),
    ],
)
def test_the_family_decides_which_number_stands_beside_a_run(
    method: str, changes: dict[str, Any], expected: object
) -> None:
    family = changes["family"]
    backbone = FAMILIES[family].backbone if family in FAMILIES else family
    found = published(make_record(method, **{"dataset": "mini", "backbone": backbone, **changes}))
    assert (found and (found.accuracy, found.ci95)) == expected


def test_methods_that_exist_as_numbers_only() -> None:
    run = make_record("ncm", dataset="mini", backbone="rn18", family="rn18-simpleshot")
    found = published(run, "MAML")
    assert found is not None
    assert found.accuracy == 47.6


def test_crops_make_the_starred_backbone() -> None:
    numbers = [
        published(make_record("bavardage", dataset="mini", family="rn12-easy", crops=crops)) for crops in (1, 30)
    ]
    assert all(numbers)
    assert len({number.accuracy for number in numbers if number}) == 2


def test_a_run_of_an_unknown_family_is_matched_by_its_backbone_with_a_note() -> None:
    found = published(make_record("bavardage", dataset="mini", backbone="wrn"))
    assert found is not None
    assert found.accuracy == 74.10
    assert found.notes == (
        "mini wrn: the family of the network is not known; the published numbers are of wrn-simpleshot",
    )
    assert published(make_record("bms", dataset="mini", backbone="wrn", alpha=None)) is None


def test_no_published_curve_beside_a_network_that_is_not_the_published_one() -> None:
    wide = make_record("bavardage", dataset="mini", backbone="wrn", family="wrn-simpleshot")
    assert published_curve(wide, "t_vb")
    narrow = make_record("bavardage", dataset="mini", backbone="wrn", family="wrn-simpleshot", network="64 features")
    assert published_curve(narrow, "t_vb") == []


def test_copied_rows_carry_the_warning_about_their_sampler() -> None:
    found = published(make_record("pt-map", dataset="cub", backbone="rn18", family="rn18-simpleshot", shots=5))
    assert found is not None
    assert "overlap" in found.notes[0]


def test_what_another_source_says_is_a_note() -> None:
    run = make_record("tim-gd", dataset="mini", backbone="rn18", family="rn18-simpleshot", alpha=None)
    found = published(run)
    assert found is not None
    assert (found.accuracy, found.notes[-1]) == (
        71.8, "TIM-GD, mini-imagenet RN18 balanced 1-shot: 73.9 in the readme of mboudiaf/TIM",
    )  # fmt: skip


def runs_of(row: dict[str, str]) -> Iterator[Any]:
    """Records of every run that could stand beside a row: methods by data sets by families, in the row's setting."""
    changes: dict[str, Any] = {
        "alpha": float(row["alpha"]) if row["alpha"] else None,
        "shots": int(row["shots"]),
        "queries": int(row["queries"]),
        "crops": 30 if row["backbone"].endswith("*") else 1,
        "split": "novel" if row["split"] == "test" else row["split"],
        "tasks": 1,
    }
    return (
        make_record(method, dataset=dataset, backbone=family.backbone, family=family.name, params=params, **changes)
        for method in METHODS
        for params in ({}, {"stage": "vb"})
        for dataset in dataset_names()
        for family in FAMILIES.values()
        if family.published and family.published == row["backbone"].rstrip("*")
    )


def shows(record: Any, row: dict[str, str], axes: set[str]) -> bool:
    """Whether a row is what is shown beside a run, or is named in its notes, or is a point of its curve."""
    if row["param"]:
        point = (float(row["param_value"]), float(row["accuracy"]))
        return any(point in published_curve(record, axis) for axis in axes)
    for name in (None, *ONLY_PUBLISHED):
        found = published(record, name)
        if found and name in {None, row["method"]}:
            shown = (found.accuracy, found.source) == (float(row["accuracy"]), f"{row['source']} {row['table']}")
            if shown or any(note.endswith(f"{row['accuracy']} in the {row['table']} of {row['source']}")
                            for note in found.notes):  # fmt: skip
                return True
    return False


def test_every_row_stands_beside_some_run() -> None:
    axes = {plan.axis.name for number in (3, 4, 5) for plan in figure(number, "mini")}
    lonely = [row for row in published_rows() if not any(shows(record, row, axes) for record in runs_of(row))]
    assert lonely == []


def test_published_names_of_families_are_those_of_the_rows() -> None:
    names = [family.published for family in FAMILIES.values() if family.published]
    assert len(set(names)) == len(names)
    assert {row["backbone"].rstrip("*") for row in published_rows()} == set(names)
