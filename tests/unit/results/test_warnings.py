"""Warnings are data: each code where it belongs, and nowhere else."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fsbench.data.catalog import dataset_info
from fsbench.evaluation.source import image_counts_of
from fsbench.features.store import FeatureFile, Provenance, make_split, write_features
from fsbench.report.render import as_text, render_csv, render_latex, render_markdown, render_rich
from fsbench.results.collect import collect
from fsbench.results.record import load_record
from fsbench.results.tuned import Trial, Tuned
from fsbench.results.warnings import MEANINGS, own_warnings
from tests.records import make_record, store

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.results.comparison import Comparison
    from fsbench.results.record import RunRecord


def codes(comparison: Comparison) -> dict[str, list[str]]:
    """The codes of every cell, by method and setting."""
    return {
        f"{label} {column.title}": [one.code for one in cell.warnings]
        for group in comparison.groups
        for (label, column), cell in group.cells.items()
        if cell.warnings
    }


def own(record: RunRecord) -> list[str]:
    return [warning.code for warning in own_warnings(record)]


def test_a_method_below_ncm_and_below_what_it_starts_from() -> None:
    records = [make_record("ncm", 0.7), make_record("soft-kmeans", 0.7), make_record("bavardage", 0.6)]
    (comparison,) = collect([*records, make_record("paddle", 0.66)])
    assert codes(comparison) == {
        "bavardage unbalanced α=2 1-shot": ["below-ncm", "below-baseline"],
        "paddle unbalanced α=2 1-shot": ["below-ncm"],
    }
    lines = comparison.warnings()
    assert any(line.startswith("paddle, unbalanced α=2 1-shot: ") for line in lines)
    assert any("points below soft-kmeans, which it starts from; tune its parameters" in line for line in lines)


@pytest.mark.parametrize(
    ("rules", "wrong"),
    [
        ({}, True),
        ({"alpha": None}, False),
        ({"name": "keff", "ways": 20, "alpha": None, "pooled": True}, True),  # most classes have no query
        ({"name": "keff", "ways": 20, "alpha": None}, True),
    ],
)
def test_where_the_assumption_is_wrong_tuning_is_no_remedy(rules: dict[str, Any], wrong: bool) -> None:
    own_params = {"variant": "transport"}
    (comparison,) = collect(
        [make_record("soft-kmeans", 0.7, **rules), make_record("bavardage", 0.5, params=own_params, **rules)]
    )
    (line,) = (line for line in comparison.warnings() if "starts from" in line)
    assert ("assumes equally frequent classes" in line) == wrong
    assert ("tune its parameters" in line) == (not wrong)


def test_a_small_loss_is_not_worth_a_warning() -> None:
    (comparison,) = collect([make_record("ncm", 0.7), make_record("soft-kmeans", 0.7), make_record("bavardage", 0.698)])
    assert codes(comparison) == {}
    assert comparison.warnings() == []


def test_worse_with_more_shots_needs_the_same_setting() -> None:
    records = [make_record("bms", right, shots=shots) for shots, right in ((1, 0.8), (5, 0.7), (10, 0.9))]
    (comparison,) = collect([*records, make_record("bms", 0.4, shots=1, alpha=None)])
    assert codes(comparison) == {"bms unbalanced α=2 5-shot": ["worse-with-more-shots"]}
    assert "points below its own 1-shot result" in comparison.warnings()[0]


@pytest.mark.parametrize(
    ("ways", "right", "near"), [(5, 0.22, True), (5, 0.3, False), (20, 0.07, True), (20, 0.2, False)]
)
def test_near_chance(ways: int, right: float, near: bool) -> None:
    assert own(make_record("ncm", right, ways=ways, tasks=400)) == (["near-chance"] if near else [])


@pytest.mark.parametrize(
    ("method", "params_from", "expected"),
    [
        ("unem-gaussian", "default", ["not-learned"]),
        ("unem-gaussian", "blind", ["not-learned"]),
        ("unem-gaussian", "tuned:val:gradient:2x500", []),
        ("unem-gaussian", "default + given:scale", []),
        ("paddle", "default", []),
    ],
)
def test_start_values_in_place_of_learned_parameters(method: str, params_from: str, expected: list[str]) -> None:
    assert own(make_record(method, params_from=params_from)) == expected


@pytest.mark.parametrize(("dataset", "expected"), [("mini", ["network"]), ("cub-feat", ["network"]), ("photos", [])])
def test_the_network_matters_where_there_are_published_numbers(dataset: str, expected: list[str]) -> None:
    assert own(make_record("ncm", dataset=dataset, network="trained by fsbench")) == expected


@pytest.mark.parametrize(
    ("accuracies", "edge"),
    [
        ({1.0: 60.0, 2.0: 61.0, 3.0: 62.0}, ["tau"]),
        ({1.0: 60.0, 2.0: 62.0, 3.0: 61.0}, []),
        ({1.0: 60.0, 2.0: 62.0, 3.0: 62.0}, []),  # an inner value is as good
        ({0.0: 62.0, 2.0: 61.0, 3.0: 60.0}, []),  # nothing lies beyond zero
        ({1.0: 60.0, 2.0: 61.0}, []),  # two values have no inside
    ],
)
def test_tuned_to_the_edge_of_the_grid(accuracies: dict[float, float], edge: list[str]) -> None:
    tuned = Tuned("bavardage", "", "grid", 50, [Trial({"tau": tau}, value, 1.0) for tau, value in accuracies.items()])
    assert tuned.at_the_edge() == edge
    record = make_record("bavardage", params_from=tuned.origin())
    assert own(record) == (["grid-edge"] if edge else [])
    (comparison,) = collect(
        [record, make_record("bavardage", params_from=f"tuned:val:grid:{len(accuracies)}x50", shots=5)]
    )
    assert len(comparison.entries) == 1  # the edge of one setting does not make it another method


def test_numbers_of_images_are_compared_with_the_benchmark(tmp_path: Path) -> None:
    sizes = [*dataset_info("cifarfs").splits["novel"].values()]

    def counted(sizes: list[int], dataset: str = "cifarfs") -> str:
        labels = np.repeat(np.arange(len(sizes)), sizes)
        path = tmp_path / "f.h5"
        split = make_split(np.ones((len(labels), 2), dtype=np.float32), labels)
        write_features(path, Provenance(dataset, "rn12"), {"novel": split})
        return image_counts_of(FeatureFile.open(path))

    assert counted(sizes) == ""
    assert (
        counted([sizes[0] - 1, *sizes[1:]])
        == "novel has 11,999 images of 20 classes instead of 12,000 images of 20 classes"
    )
    assert counted([3, 4], "photos") == ""
    record = make_record("ncm", dataset="cifarfs", images="novel has 11,999 images")
    (path,) = store(tmp_path, record)
    assert own(load_record(path)) == ["image-counts"]


def test_every_format_shows_warnings_and_marks_the_cells_of_methods() -> None:
    shared: dict[str, Any] = {"dataset": "mini", "family": "rn12-easy", "network": "random weights"}
    records = [make_record("ncm", 0.7, **shared), make_record("paddle", 0.6, **shared)]
    (comparison,) = collect(records, published=False)
    for text in (as_text(render_rich(comparison)), render_markdown(comparison), render_latex(comparison)):
        assert text.count("! the network is not the published one: random weights") == 1
        assert "! paddle, unbalanced" in text
        marked = [line for line in text.splitlines() if "paddle" in line and "±" in line.replace("pm", "±")]
        assert "!" in marked[0]
        plain = [line for line in text.splitlines() if "ncm" in line and "±" in line.replace("pm", "±")]
        assert "!" not in plain[0]
    rows = {row["method"]: row["warnings"].split() for row in csv.DictReader(io.StringIO(render_csv(comparison)))}
    assert rows == {"ncm": ["network"], "paddle": ["below-ncm", "network"]}
    assert {code for found in rows.values() for code in found} <= set(MEANINGS)
