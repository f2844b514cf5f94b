"""Warnings are data: each code where it belongs, and nowhere else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsbench.data.catalog import dataset_info
from fsbench.evaluation.source import image_counts_of
from fsbench.features.store import Provenance, make_split
from fsbench.results.collect import collect
from fsbench.results.comparison import Comparison
from fsbench.results.record import Record
from fsbench.results.studies import Trial, Tuned
from fsbench.results.warnings import warnings_of
from tests.records import TUNED, make_record
from tests.synthetic import feature_file


def codes(comparison: Comparison) -> dict[str, list[str]]:
    """The codes of every cell, by method and setting."""
    return {
        f"{label} {column.title}": [one.code for one in cell.warnings]
        for group in comparison.groups
        for (label, column), cell in group.cells.items()
        if cell.warnings
    }


def own(record: Record) -> list[str]:
    warnings = warnings_of(record)
    return [warning.code for warning in warnings]


def test_a_method_below_ncm_and_below_what_it_starts_from() -> None:
    records = [make_record("ncm", 0.7), make_record("soft-kmeans", 0.7), make_record("bavardage", 0.6)]
    (table,) = collect([*records, make_record("paddle", 0.64)])
    found = {name.partition(" ")[0]: warned for name, warned in codes(table).items()}
    assert found == {"bavardage": ["below-ncm", "below-baseline"], "paddle": ["below-ncm"]}
    lines = table.warnings()
    assert any(line.startswith("paddle, unbalanced α=2 1-shot: ") for line in lines)
    assert any("points below soft-kmeans, which it starts from; tune its parameters" in line for line in lines)
    assert codes(collect([*records[:2], make_record("bavardage", 0.7)])[0]) == {}


@pytest.mark.parametrize(
    ("rules", "remedy"),
    [
        ({}, "assumes equally frequent classes"),
        ({"alpha": None}, "tune its parameters"),
        ({"alpha": None, "tuning": TUNED}, "use soft-kmeans on these features"),
        ({"ways": 20, "present": 5, "alpha": None}, "assumes equally frequent classes"),  # most have no query
    ],
)
def test_the_remedy_is_that_of_the_cause(rules: dict[str, Any], remedy: str) -> None:
    transport: dict[str, Any] = {"params": {"variant": "transport"}, "given": ["variant"]}
    plain = {name: value for name, value in rules.items() if name != "tuning"}
    records = [make_record("soft-kmeans", 0.7, **plain), make_record("bavardage", 0.5, **transport, **rules)]
    (line,) = (line for line in collect(records)[0].warnings() if "starts from" in line)
    assert line.endswith(remedy) or f"; it {remedy}, which these tasks do not have" in line


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"learns": False, "right": 0.22, "tasks": 400}, ["near-chance"]),
        ({"learns": False, "right": 0.3, "tasks": 400}, []),
        ({}, ["not-learned"]),
        ({"tuning": TUNED}, []),
        ({"learns": False, "dataset": "mini", "network": "trained by fsbench"}, ["network"]),
        ({"learns": False, "dataset": "photos", "network": "trained by fsbench"}, []),
        ({"learns": False, "images": "novel has 11,999 images"}, ["image-counts"]),
        ({"learns": False, "warnings": ("something",)}, ["run"]),
    ],
)
def test_what_a_record_alone_gives_rise_to(changes: dict[str, Any], expected: list[str]) -> None:
    assert own(make_record("unem-gaussian", **changes)) == expected


@pytest.mark.parametrize(
    ("accuracies", "edge"),
    [
        ({1.0: 60.0, 2.0: 61.0, 3.0: 62.0}, ("tau",)),
        ({1.0: 60.0, 2.0: 62.0, 3.0: 62.0}, ()),  # an inner value is as good
        ({0.0: 62.0, 2.0: 61.0, 3.0: 60.0}, ()),  # nothing lies beyond zero
        ({1.0: 60.0, 2.0: 61.0}, ()),  # two values have no inside
    ],
)
def test_tuned_to_the_edge_of_the_grid(accuracies: dict[float, float], edge: tuple[str, ...]) -> None:
    tuned = Tuned("bavardage", "", "grid", 50, [Trial({"tau": tau}, value, 1.0) for tau, value in accuracies.items()])
    facts = tuned.facts()
    assert (facts.how, facts.trials, facts.tasks, facts.edge) == ("grid", len(accuracies), 50, edge)
    record = make_record("bavardage", tuning=facts)
    assert own(record) == (["grid-edge"] if edge else [])
    assert str(record.origins) == f"tuned:val:grid:{len(accuracies)}x50{':edge:tau' if edge else ''}"


def test_numbers_of_images_are_compared_with_the_benchmark(tmp_path: Path) -> None:
    sizes = [*dataset_info("cifarfs").splits["novel"].values()]

    def counted(sizes: list[int], dataset: str = "cifarfs") -> str:
        labels = np.repeat(np.arange(len(sizes)), sizes)
        split = make_split(np.ones((len(labels), 2), dtype=np.float32), labels)
        return image_counts_of(feature_file(tmp_path / "f.h5", Provenance(dataset, "rn12"), novel=split))

    assert counted(sizes) == counted([3, 4], "photos") == ""
    text = "novel has 11,999 images of 20 classes instead of 12,000 images of 20 classes"
    assert counted([sizes[0] - 1, *sizes[1:]]) == text
    made, names = Provenance("cifarfs", "rn12", split_digest="of others"), [*dataset_info("cifarfs").splits["novel"]]
    there = make_split(np.ones((20, 2), dtype=np.float32), np.arange(20), [*names[:19], "zzz"])
    assert image_counts_of(feature_file(tmp_path / "f.h5", made, novel=there)).endswith("other classes, such as zzz")


def test_a_warning_is_one_line_for_all_its_settings() -> None:
    runs = [(name, right, shots) for shots in (1, 5, 10) for name, right in (("ncm", 0.7), ("paddle", 0.5))]
    images = "novel has fewer images"
    lines = collect([make_record(name, right, shots=k, images=images) for name, right, k in runs])[0].warnings()
    assert lines[0] == "novel has fewer images"
    assert [line.endswith(" (also in 2 more settings)") for line in lines[1:]] == [True]
