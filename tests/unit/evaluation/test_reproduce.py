"""The article's tables over the feature files that are here."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fsbench.errors import FsbenchError
from fsbench.evaluation.reproduce import reproduce
from fsbench.features.store import FeatureFile, Provenance, Split, write_features
from fsbench.report.render import as_text
from fsbench.report.reproduced import render_html, render_latex, render_markdown, render_rich, writer_for
from fsbench.results.comparison import Column
from fsbench.results.published import article_number
from fsbench.results.reproduction import TABLES
from tests.cli import run
from tests.comparing import compared, runner

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.results.reproduction import Reproduction
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


@pytest.fixture
def files(features: Features, tmp_path: Path) -> list[FeatureFile]:
    return [
        store(tmp_path, PUBLISHED, features, 640),
        store(tmp_path, NARROW, features, features.base.features.shape[1]),
    ]


def table_of(name: str, files: list[FeatureFile], tmp_path: Path) -> Reproduction:
    return reproduce(name, files, runner(), tasks=20, seed=0, weights=tmp_path / "weights")


def test_every_number_of_the_articles_tables_has_a_cell() -> None:
    counts = {}
    for name, layout in TABLES.items():
        columns = [
            Column(setting == "balanced", None if setting == "balanced" else 2.0, shots)
            for setting in layout.settings
            for shots in (1, 5)
        ]
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


def test_ours_is_what_compare_gives_with_the_articles_parameters(files: list[FeatureFile], tmp_path: Path) -> None:
    (mini, _), *_ = [(rows, dataset) for dataset, rows in table_of("table2", files, tmp_path).blocks]
    assert [row.method for row in mini] == ["Soft-KMEANS", "Soft-KMEANS+VB", "BAVARDAGE"]
    expected = compared("soft-kmeans,bavardage", [files[0]], tasks=20, preset="article")
    found = {record.key.digest() for record in expected.records}
    for row in (mini[0], mini[2]):
        assert all(cell.ours and cell.ours.key.digest() in found for cell in row.cells)
    cell = mini[2].cells[0]
    assert cell.published == 74.10
    assert cell.ours
    assert cell.gap == pytest.approx(cell.ours.accuracy - 74.10)


def test_other_networks_get_the_scale_free_defaults_and_a_note(files: list[FeatureFile], tmp_path: Path) -> None:
    table = table_of("table3", files, tmp_path)
    rows = dict(table.blocks)["cifarfs"]
    ours = [cell.ours for row in rows if row.backbone == "RN12" for cell in row.cells]
    assert all(record and record.params_from != "article" for record in ours)
    (note,) = [note for note in table.notes if note.startswith("cifarfs RN12:")]
    assert "trained by fsbench" in note
    assert "scale-free" in note
    assert any("mini WRN" in note and "the article's parameters" in note for note in table.notes)


def test_table_2_goes_on_with_any_other_features(files: list[FeatureFile], tmp_path: Path) -> None:
    table = table_of("table2", files, tmp_path)
    rows = dict(table.blocks)["cifarfs"]
    assert [row.method for row in rows] == ["Soft-KMEANS", "Soft-KMEANS+VB", "BAVARDAGE"]
    assert all(cell.ours and cell.published is None for row in rows for cell in row.cells)
    assert all("tau" not in (cell.ours.params_from if cell.ours else "") for cell in rows[2].cells)
    assert not any(note.startswith("cifarfs") and "is missing" in note for note in table.notes)


def test_missing_cells_say_what_to_put_where(tmp_path: Path) -> None:
    table = table_of("table1", [], tmp_path)
    assert not any(cell.ours for _, rows in table.blocks for row in rows for cell in row.cells)
    (note,) = [note for note in table.notes if note.startswith("cub RN18 is missing")]
    assert str(tmp_path / "weights/cub/rn18.pth.tar") in note
    assert "fsbench extract --dataset cub --backbone rn18" in note
    assert any("mboudiaf/TIM: https://" in note for note in table.notes)
    assert "small network" not in note
    assert any(note.startswith("cub RN12 is missing") and "small network" in note for note in table.notes)


def test_a_note_says_how_many_tasks_and_how_wide_the_intervals_are(files: list[FeatureFile], tmp_path: Path) -> None:
    table = table_of("table2", files, tmp_path)
    widths = [cell.ours.ci95 for _, rows in table.blocks for row in rows for cell in row.cells if cell.ours]
    widest = max(width for width in widths if width is not None)
    assert table.notes[0] == f"20 tasks per cell, seed 0; 95 % intervals are at most ± {widest:.1f}."


def test_all_formats_hold_all_cells(files: list[FeatureFile], tmp_path: Path) -> None:
    table = table_of("table2", files, tmp_path)
    texts = [as_text(render_rich(table)), render_markdown(table), render_latex(table), render_html(table)]
    cell = dict(table.blocks)["mini"][2].cells[1]
    assert cell.ours
    assert cell.gap is not None
    for text in texts:
        assert f"{cell.ours.accuracy:.1f}/85.5 {cell.gap:+.1f}" in text.replace("$-$", "-")
        assert "/71.4" in text  # 71.35 in Table 3
    assert max(map(len, texts[0].splitlines())) <= 100
    with pytest.raises(FsbenchError, match="docx"):
        writer_for(tmp_path / "table.docx")


def test_as_typed(files: list[FeatureFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("reproduce", "table2", "--tasks", "10", "--out", "table2.html")
    assert done.exit_code == 0, done.output
    assert "BAVARDAGE" in (tmp_path / "table2.html").read_text(encoding="utf-8")
    again = json.loads(run("reproduce", "table2", "--tasks", "10", "--json").stdout)
    ours = [cell for cell in again["cells"] if cell["ours"] is not None and cell["published"] is not None]
    assert ours
    assert all(cell["gap"] == pytest.approx(cell["ours"] - cell["published"]) for cell in ours)
    drawn = run("reproduce", "figure3", str(files[0].path), "--tasks", "5", "--out", "figure3.svg")
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "figure3.svg").exists()
    wrong = run("reproduce", "table4")
    assert wrong.exit_code == 1
    assert "table1" in wrong.output
    both = run("reproduce", "figure4", "--tasks", "5", "--out", "figure4.svg")
    assert both.exit_code == 2
    assert "one figure" in both.output
