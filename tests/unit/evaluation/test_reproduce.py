"""The article's tables over the feature files that are here."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fsbench.evaluation.options import Comparing
from fsbench.evaluation.reproduce import TABLES, Reproduction, reproduce
from fsbench.evaluation.spec import protocols_of
from fsbench.features.store import FeatureFile, Provenance, Split, write_features
from fsbench.results.published import article_number
from tests.comparing import compared, runner
from tests.synthetic import Features

PUBLISHED = Provenance("mini", "wrn", family="wrn-simpleshot", weights="wrn.pth.tar", architecture="")
NARROW = Provenance("cifarfs", "rn12", family="rn12-easy", weights="rn12.safetensors", trained_by="fsbench")


def store(folder: Path, made: Provenance, features: Features, dimension: int) -> FeatureFile:
    """A file of that many features per image: those of the tests, padded with zeros."""

    def padded(split: Split) -> Split:
        return replace(split, features=np.pad(split.features, ((0, 0), (0, dimension - split.features.shape[1]))))

    path = folder / "features" / f"{made.dataset}-{made.backbone}.h5"
    path.parent.mkdir(exist_ok=True)
    write_features(path, made, {name: padded(getattr(features, name)) for name in ("base", "val", "novel")})
    return FeatureFile.open(path)


@pytest.fixture(scope="module")
def files(features: Features, tmp_path_factory: pytest.TempPathFactory) -> list[FeatureFile]:
    folder = tmp_path_factory.mktemp("tables")
    return [store(folder, PUBLISHED, features, 640), store(folder, NARROW, features, 48)]


def table_of(name: str, files: list[FeatureFile]) -> Reproduction:
    return reproduce(name, files, runner(), tasks=20, seed=0, weights=Path("weights"))


@pytest.fixture(scope="module")
def table2(files: list[FeatureFile]) -> Reproduction:
    return table_of("table2", files)


def test_every_number_of_the_articles_tables_has_a_cell() -> None:
    counts = {}
    for name, layout in TABLES.items():
        columns = protocols_of(Comparing(settings=layout.settings))
        numbers = [
            article_number(dataset, backbone, method, column)
            for dataset, networks in layout.blocks
            for backbone, methods in networks
            for method in methods
            for column in columns
        ]
        counts[name] = sum(number is not None for number in numbers)
    # Counted in the article: Table 1 has no α-TIM on balanced tasks; its BAVARDAGE rows are those of Table 3.
    assert counts == {"table1": 150, "table2": 12, "table3": 120}


def test_ours_is_what_compare_gives_with_the_articles_preset(files: list[FeatureFile], table2: Reproduction) -> None:
    mini = dict(table2.blocks)["mini"]
    assert [row.method for row in mini] == ["Soft-KMEANS", "Soft-KMEANS+VB", "BAVARDAGE"]
    columns = protocols_of(Comparing(settings=("unbalanced",)))
    expected = compared("soft-kmeans,bavardage", [files[0]], columns, tasks=20, preset="article")
    digests = {record.run.digest for record in expected.records}
    assert all(cell.ours and cell.ours.run.digest in digests for row in (mini[0], mini[2]) for cell in row.cells)
    cell = mini[2].cells[0]
    assert cell.published == 74.10
    assert cell.ours
    assert cell.gap == pytest.approx(cell.ours.accuracy - 74.10)
    assert table2.notes[0].startswith("20 tasks per cell, seed 0; 95 % intervals are at most ± ")


def test_other_networks_get_the_scale_free_defaults_and_a_note(files: list[FeatureFile], table2: Reproduction) -> None:
    rows = dict(table2.blocks)["cifarfs"]  # which Table 2 of the article does not have
    assert all(cell.ours and cell.published is None for row in rows for cell in row.cells)
    table = table_of("table3", files)
    ours = [cell.ours for row in dict(table.blocks)["cifarfs"] if row.backbone == "RN12" for cell in row.cells]
    assert all(record and record.origins.kind == "default" for record in ours)
    (note,) = [note for note in table.notes if note.startswith("cifarfs RN12:")]
    assert "trained by fsbench" in note
    assert "scale-free" in note


def test_missing_cells_say_what_to_put_where() -> None:
    table = table_of("table1", [])
    assert not any(cell.ours for _, rows in table.blocks for row in rows for cell in row.cells)
    (note,) = [note for note in table.notes if note.startswith("cub RN18 is missing")]
    assert "weights/cub/rn18.pth.tar" in note
    assert "fsbench extract --dataset cub --backbone rn18" in note
