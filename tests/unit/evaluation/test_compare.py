from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import stats

from fsbench.errors import FsbenchError
from fsbench.evaluation.disjoint import accuracies_over_data, tasks_without_shared_images
from fsbench.evaluation.engine import TaskList, solve_tasks
from fsbench.evaluation.run import Job
from fsbench.evaluation.source import Source, source_of
from fsbench.evaluation.spec import NO_BASELINE, parse_methods
from fsbench.features.store import FeatureFile
from fsbench.methods.ncm import NearestClassMean
from fsbench.methods.soft_kmeans import SoftKMeans
from fsbench.report.render import Table, as_text, render_csv, render_json, render_latex, render_markdown, render_rich
from fsbench.reporter import Reporter
from fsbench.results.collect import collect, read_records
from fsbench.results.comparison import Column, Comparison
from fsbench.results.statistics import accuracies, interval, interval_over_classes
from fsbench.tasks.protocol import TaskProtocol
from fsbench.tasks.sampling import sample_tasks
from tests.comparing import CPU, QUIET, compared, runner

if TYPE_CHECKING:
    from pathlib import Path

    from fsbench.results.record import RunRecord
    from tests.synthetic import Features

COLUMNS = [Column(False, 2.0, 1), Column(False, 2.0, 5), Column(True, None, 1), Column(True, None, 5)]
METHODS = "ncm,soft-kmeans,bavardage,bavardage:released"


def ask(
    files: list[FeatureFile],
    results: Path | None = None,
    methods: str = METHODS,
    tasks: int = 60,
    baseline: str = "soft-kmeans",
) -> Comparison:
    return compared(methods, files, results=results, tasks=tasks, baseline=baseline)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def table(features: Features, folder: Path) -> Comparison:
    """Two feature files; the second passes for mini-ImageNet's, so that published numbers match."""
    own = features.write(folder / "own.h5", "own_data & more", "rn18")
    mini = features.write(folder / "mini.h5", "mini", "wrn")
    return ask([FeatureFile.open(own), FeatureFile.open(mini)], folder / "results")


def test_methods_on_the_same_features_are_solved_together(
    features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = FeatureFile.open(features.write(tmp_path / "synthetic.h5"))
    drawn: list[int] = []

    def draws(methods: str, results: Path | None = None) -> tuple[int, list[RunRecord]]:
        drawn.clear()
        table = compared(methods, [file], [TaskProtocol()], tasks=24, baseline=NO_BASELINE, results=results)
        return sum(drawn), [cell.record for cell in table.groups[0].cells.values() if cell.record]

    def counted(protocol: TaskProtocol, offsets: Any, seed: int, tasks: Any) -> Any:
        drawn.append(len(tasks))
        return sample_tasks(protocol, offsets, seed, tasks)

    monkeypatch.setattr("fsbench.evaluation.engine.sample_tasks", counted)
    count, together = draws(f"pt-map,{METHODS},laplacianshot", tmp_path / "together")
    assert count == 2 * 24  # PT-MAP apart
    alone = [record for name in METHODS.split(",") for record in draws(name)[1]]
    assert [record.correct for record in together[1:5]] == [record.correct for record in alone]
    assert draws(f"pt-map,{METHODS},laplacianshot", tmp_path / "together")[0] == 0
    assert draws("ncm,bd-cspn,soft-kmeans,bavardage:transport", tmp_path / "together")[0] == 24
    assert len([*(tmp_path / "together").glob("*.json")]) == 8


def test_differences_are_paired_and_tested(table: Comparison) -> None:
    group = table.groups[0]
    for column in COLUMNS:
        baseline = group.cells["soft-kmeans", column]
        assert baseline.difference is None
        assert baseline.p_value is None
        assert baseline.record is not None
        other = group.cells["ncm", column]
        assert other.record is not None
        assert other.difference is not None
        assert other.difference.mean == pytest.approx(other.record.accuracy - baseline.record.accuracy)
        spread = np.std(other.record.per_task - baseline.record.per_task, ddof=1)
        assert other.difference.half_width == pytest.approx(stats.t.ppf(0.975, 59) * spread / 60**0.5)


def test_one_best_per_column_and_ties_are_never_the_best(table: Comparison) -> None:
    for group in table.groups:
        for column in COLUMNS:
            cells = [
                group.cells[entry.label, column] for entry in table.entries if (entry.label, column) in group.cells
            ]
            ran = [cell for cell in cells if cell.record]
            assert sum(cell.best for cell in ran) == 1
            assert not any(cell.best and cell.tied for cell in ran)
            best = max(ran, key=lambda cell: cell.record.accuracy if cell.record else 0)
            assert best.best


def test_a_baseline_called_worse_than_the_best_differs_from_it_among_the_differences_too(table: Comparison) -> None:
    for group in table.groups:
        for column in COLUMNS:
            best = next(entry.label for entry in table.entries if group.cells[entry.label, column].best)
            baseline, leader = group.cells["soft-kmeans", column], group.cells[best, column]
            assert best != "soft-kmeans"
            assert leader.p_value is not None
            assert baseline.tied or leader.p_value < 0.05


def test_records_are_reused(table: Comparison, folder: Path) -> None:
    records = sorted((folder / "results").glob("*.json"))
    assert len(records) == 2 * 4 * 4
    stamps = [path.stat().st_mtime_ns for path in records]
    again = ask([FeatureFile.open(folder / "own.h5"), FeatureFile.open(folder / "mini.h5")], folder / "results")
    assert [path.stat().st_mtime_ns for path in records] == stamps
    assert render_json(again) == render_json(table)


def test_published_numbers_stand_beside_with_their_gap(table: Comparison) -> None:
    cell = table.groups[1].cells["bavardage", COLUMNS[0]]
    assert cell.published is not None
    assert cell.published.accuracy == 74.10
    assert cell.published.ci95 == 0.30
    assert table.groups[0].cells["bavardage", COLUMNS[0]].published is None
    text = render_markdown(table)
    assert "ours minus published" in text
    assert "82.91 in its Fig. 4" in text


def test_rich_table_fits_100_columns(table: Comparison) -> None:
    stream = io.StringIO()
    Console(file=stream, width=100, force_terminal=True, color_system=None).print(render_rich(table, timing=True))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 100
    assert sum("soft-kmeans" in line and "±" in line for line in lines) >= 2
    assert stream.getvalue().count("▲") == 2 * 4 + 1  # one per column, and the legend
    assert "|disjoint:1|5w1+5s75q|dirichlet:2+balanced|seed:0|tasks:60|params:" in stream.getvalue().replace("\n", "")


def test_markdown_has_even_rows_and_escapes_names(table: Comparison) -> None:
    text = render_markdown(table)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {7}
    assert "**" in text


LATEX = shutil.which("pdflatex") or shutil.which("tectonic")


def test_latex_is_sound(table: Comparison, tmp_path: Path) -> None:
    text = render_latex(table)
    tables = re.findall(r"\\begin\{tabular\}\{ll(r+)\}\n\\toprule\n(.*?)\\bottomrule\n\\end\{tabular\}", text, re.S)
    assert len(tables) == 5  # accuracy and difference twice, published numbers for mini alone
    for columns, body in tables:
        rows = [line for line in body.splitlines() if line.endswith("\\\\")]
        assert len(rows) >= 3
        assert all(len(re.findall(r"(?<!\\)&", row)) == 1 + len(columns) for row in rows)
    visible = [line for line in text.splitlines() if not line.startswith("%")]
    assert all("±" not in line and "α" not in line and "_" not in line.replace("\\_", "") for line in visible)
    assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")
    if LATEX:
        document = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + text + "\\end{document}"
        (tmp_path / "t.tex").write_text(document)
        subprocess.run([LATEX, "t.tex"], cwd=tmp_path, check=True, capture_output=True)


def test_csv_and_json_hold_every_cell(table: Comparison) -> None:
    rows = json.loads(render_json(table))
    assert next(iter(csv.DictReader(io.StringIO(render_csv(table)))))["method"] == rows[0]["method"]
    ours = [row for row in rows if row["accuracy"] is not None]
    assert len(ours) == 2 * 4 * 4
    assert {row["baseline"] for row in rows} == {"soft-kmeans"}


def test_writing_to_a_file(table: Comparison, tmp_path: Path) -> None:
    for form in ("rich", "markdown", "latex", "csv", "json"):
        Table(table).show(form, tmp_path / form)
        assert "bavardage" in (tmp_path / form).read_text()


def test_parsing_methods() -> None:
    assert [item.label for item in parse_methods("ncm, ncm,bavardage:released")] == ["ncm", "bavardage:released"]
    assert parse_methods("bavardage:released")[0].options == {"variant": "released"}
    labels = [item.label for item in parse_methods("all")]
    assert {"ncm", "soft-kmeans", "bavardage", "bavardage:released"} <= set(labels)
    with pytest.raises(FsbenchError, match="ncm has no variants"):
        parse_methods("ncm:x")
    with pytest.raises(FsbenchError, match="Did you mean 'soft-kmeans'"):
        parse_methods("soft-kmean")


def test_the_baseline_is_added_if_it_was_not_named(folder: Path, table: Comparison) -> None:
    assert table.baseline == "soft-kmeans"
    found = ask([FeatureFile.open(folder / "own.h5")], folder / "results", "ncm")
    assert [entry.label for entry in found.entries] == ["soft-kmeans", "ncm"]


def test_tasks_without_shared_images(features: Features) -> None:
    for alpha in (None, 2.0):
        protocol = TaskProtocol(ways=4, shots=2, queries=20, alpha=alpha)
        rows = tasks_without_shared_images(protocol, features.novel.offsets, 0)
        assert rows is not None
        used = np.concatenate([rows.support.ravel(), rows.query.ravel()])
        assert len(set(used.tolist())) == len(used)
        assert len(rows.classes) > len(features.novel.features) // 28 // 2
        labels = features.novel.labels
        first = np.take_along_axis(rows.classes, rows.query_labels, axis=1)
        np.testing.assert_array_equal(labels[rows.query], first)
        np.testing.assert_array_equal(
            labels[rows.support], np.take_along_axis(rows.classes, rows.support_labels, axis=1)
        )


def test_the_interval_over_the_data_is_wider_than_the_one_over_tasks(features: Features) -> None:
    source = Source("x", "y", "novel", features.novel, features.statistics)
    values = accuracies_over_data(NearestClassMean(), source, TaskProtocol(), 0, torch.device("cpu"))
    assert values is not None
    found = interval(values)
    drawn = solve_tasks(
        NearestClassMean(),
        features.novel,
        features.statistics,
        TaskList(TaskProtocol(), 0, 500),
        device=torch.device("cpu"),
    )
    over_tasks = interval(accuracies(drawn.correct, drawn.queries))
    assert found.half_width > 2 * over_tasks.half_width
    assert abs(found.mean - over_tasks.mean) < found.half_width + over_tasks.half_width
    huge = TaskProtocol(queries=400)
    assert accuracies_over_data(NearestClassMean(), source, huge, 0, torch.device("cpu")) is None


def test_intervals_for_new_images_and_new_classes_come_with_paired_differences(
    features: Features, tmp_path: Path
) -> None:
    file = FeatureFile.open(features.write(tmp_path / "f.h5"))
    table = compared("ncm,soft-kmeans", [file], [TaskProtocol()], tasks=60, over_data=True, over_classes=True)
    ncm, soft = table.groups[0].cells.values()
    source = Source("x", "y", "novel", features.novel, features.statistics)
    values = [
        accuracies_over_data(method, source, TaskProtocol(), 0, CPU) for method in (NearestClassMean(), SoftKMeans())
    ]
    assert soft.over_data == interval(values[1])  # type: ignore[arg-type]
    assert ncm.over_data_difference == interval(values[0] - values[1])  # type: ignore[operator]
    assert soft.over_data_difference is None
    assert soft.over_classes_difference is None
    classes = sample_tasks(TaskProtocol(), features.novel.offsets, 0, np.arange(60)).classes
    assert ncm.record is not None
    assert soft.record is not None
    found = interval_over_classes(ncm.record.per_task - soft.record.per_task, classes)
    assert ncm.over_classes_difference == found
    assert ncm.over_data_tasks == len(values[0])  # type: ignore[arg-type]
    shown = as_text(render_rich(table))
    for difference in (ncm.over_data_difference, ncm.over_classes_difference):
        assert difference
        text = f"{difference.mean:+.2f} ± {difference.half_width:.2f}"
        assert (f"({text})" in shown) == (abs(difference.mean) <= difference.half_width)
        assert text in shown
    best, other = (soft, ncm) if soft.best else (ncm, soft)
    assert (best.next_best, other.next_best) == ("ncm" if soft.best else "soft-kmeans", "")
    lead = interval_over_classes(best.record.per_task - other.record.per_task, classes)  # type: ignore[union-attr]
    assert (best.over_classes_lead, other.over_classes_lead) == (lead, None)
    row = json.loads(render_json(table))[0]
    assert row["over_data_tasks"] == ncm.over_data_tasks
    assert row["over_classes_difference_ci95"] == pytest.approx(found.half_width)  # type: ignore[union-attr]
    text = render_markdown(table)
    for words in (
        f"new images of these classes, from {ncm.over_data_tasks} tasks that share no image",
        f"minus the next best, {best.next_best}: ",
        "new classes, from the jackknife",
        "difference to soft-kmeans, for new",
    ):
        assert words in text


PLUGIN = """
from dataclasses import dataclass
from fsbench.methods.base import MethodInfo
from fsbench.methods.ncm import NearestClassMean

@dataclass(frozen=True)
class Mine(NearestClassMean):
    info = MethodInfo("mine", "Mine", "me", transductive=False, prior="none")

class NotOne:
    pass
"""


def test_a_method_from_a_file_of_the_users(folder: Path, table: Comparison, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    file = [FeatureFile.open(folder / "own.h5")]
    found = ask(file, folder / "plugins", f"ncm,{plugin}:Mine")
    mine, ncm = found.groups[0].cells["Mine", COLUMNS[0]].record, found.groups[0].cells["ncm", COLUMNS[0]].record
    assert mine is not None
    assert ncm is not None
    assert mine.correct == ncm.correct
    assert mine.key.method.startswith("mine.py:Mine@")
    assert f"|{mine.key.method}|" in mine.signature  # which changes with the file
    assert ncm.own_method is None
    (read,) = collect(read_records(None, folder / "plugins", Reporter(quiet=True)))
    entry = next(entry for entry in read.entries if entry.label == "Mine")
    assert (entry.assumes, entry.info and entry.info.title) == ("inductive", "Mine")
    for name, words in (
        (f"{plugin}:NotOne", "lacks info"),
        (f"{plugin}:Min", "Did you mean 'Mine'"),
        ("no.py:X", "No such"),
    ):
        with pytest.raises(FsbenchError, match=words):
            ask(file, None, name)
    plugin.write_text("import nothing_of_the_kind")
    with pytest.raises(FsbenchError, match="cannot be imported"):
        ask(file, None, f"{plugin}:Mine")


INVERTED = """
from dataclasses import dataclass
from fsbench.methods.base import MethodInfo
from fsbench.methods.ncm import NearestClassMean

@dataclass(frozen=True)
class Mine(NearestClassMean):
    info = MethodInfo("mine", "Mine", "me", transductive=False, prior="none")

    def classify(self, tasks):
        return 1 - super().classify(tasks)
"""


def test_own_methods_of_the_same_name_are_told_apart(folder: Path, table: Comparison, tmp_path: Path) -> None:
    file = [FeatureFile.open(folder / "own.h5")]
    plain, inverted = (f"{tmp_path / name}:Mine" for name in ("plain.py", "inverted.py"))
    (tmp_path / "plain.py").write_text(PLUGIN)
    (tmp_path / "inverted.py").write_text(INVERTED)
    found = ask(file, None, f"{plain},{inverted}")
    records = [found.groups[0].cells[label, COLUMNS[0]].record for label in (plain, inverted)]
    assert records[0] is not None
    assert records[1] is not None
    assert records[0].accuracy > records[1].accuracy


def test_an_own_method_as_baseline_is_found_among_the_methods(folder: Path, table: Comparison, tmp_path: Path) -> None:
    file = [FeatureFile.open(folder / "own.h5")]
    (tmp_path / "mine.py").write_text(PLUGIN)
    for methods in (f"{tmp_path}/mine.py:Mine,soft-kmeans", "soft-kmeans"):
        found = ask(file, None, methods, baseline=f"{tmp_path}/mine.py:Mine")
        assert found.baseline == "Mine"
        assert sorted(entry.label for entry in found.entries) == ["Mine", "soft-kmeans"]
        assert found.groups[0].cells["soft-kmeans", COLUMNS[0]].difference is not None


MANY = 30_000  # more tasks than fit into the least share of a budget


def test_a_budget_gives_every_method_the_tasks_that_fit_and_says_how_many(features: Features, tmp_path: Path) -> None:
    file = FeatureFile.open(features.write(tmp_path / "f.h5"))
    one = [TaskProtocol()]
    short = compared(
        "ncm,soft-kmeans", [file], one, tasks=MANY, budget=1e-6, over_classes=True, results=tmp_path, published=False
    )
    counts = [record.key.tasks for record in short.records]
    assert all(8 <= count < MANY for count in counts)
    labels = [f"{name} ({count:,} tasks)" for name, count in zip(("ncm", "soft-kmeans"), counts, strict=False)]
    assert [entry.label for entry in short.entries] in (labels, labels[::-1])
    assert short.baseline.startswith("soft-kmeans (")
    assert all(label in render_markdown(short) for label in labels)
    (together,) = collect(read_records(None, tmp_path, QUIET), published=False)  # as in a report
    assert sorted(entry.label for entry in together.entries) == sorted(labels)
    assert together.baseline == short.baseline
    runner(tmp_path).run(
        Job(NearestClassMean(), TaskProtocol(), 0, MANY, name="ncm"), source_of(file, "novel", None, QUIET)
    )
    mixed = compared("ncm,soft-kmeans", [file], one, tasks=MANY, budget=1e-6, results=tmp_path, published=False)
    assert mixed.entries[0].label == "ncm"
    lengths = {record.key.method: record.key.tasks for record in mixed.records}
    assert lengths["ncm"] == MANY > lengths["soft-kmeans"]
    (cell,) = [cell for (label, _), cell in mixed.groups[0].cells.items() if label == "ncm"]
    ncm, other = (record.per_task[: lengths["soft-kmeans"]] for record in mixed.records)
    assert cell.difference == interval(ncm - other)
    assert f"|tasks:{lengths['soft-kmeans']}-{MANY}|" in mixed.signature()
    assert mixed.tasks == MANY
