"""Metrics, predictions of other programs, `--fail-if-worse` and `fsbench verify`."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fsbench.results.record import load_record, save_record
from tests.cli import run, succeed

FEW = ("--tasks", "20", "--shots", "1", "--settings", "unbalanced", "--no-published", "--quiet")
ALL = ("--metrics", "balanced-accuracy,macro-f1,ece")


def test_metrics_come_from_stored_predictions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    succeed("compare", "--methods", "ncm,bavardage", *FEW)
    monkeypatch.setattr("fsbench.evaluation.run.solve", None)  # nothing is solved again
    shown = run("compare", "--methods", "ncm,bavardage", *FEW, *ALL, "--per-class").stdout
    for words in ("balanced accuracy in %, 20 tasks", "macro F1 in %", "calibration error in % (lower is better)"):
        assert words in " ".join(shown.split())
    assert "recall of every class in %" in shown
    assert "|metrics:balanced-accuracy+macro-f1+ece" in shown
    succeed("compare", "--methods", "ncm,bavardage", *FEW, *ALL, "--out", "t.csv")
    rows = [*csv.DictReader((folder / "t.csv").read_text(encoding="utf-8").splitlines())]
    assert len(rows) == 3 * 3
    records = {one.method.label: one for one in map(load_record, (folder / "results").glob("*.h5"))}
    for row in rows:
        found = records[row["method"]].interval(row["metric"])
        assert [float(row["value"]), float(row["ci95"])] == pytest.approx([found.mean, found.half_width])
        assert (row["difference"] == "") == (row["method"] == "soft-kmeans")
    assert "macro F1" in run("solve", "--tasks", "20", "--shots", "1", *ALL, "--quiet").stdout
    succeed("plot", "dots", "--metrics", "ece", "--out", "d.svg", "--quiet")
    succeed("report", *ALL, "--quiet")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count('<section id="c') == 3
    assert "Did you mean 'macro-f1'" in run("compare", "--metrics", "macrof1", *FEW).stderr


@pytest.mark.usefixtures("folder")
def test_another_program_is_scored_on_the_same_tasks() -> None:
    file = "features/synthetic-none.h5"
    succeed("tasks", file, "--tasks", "20", "--quiet")
    assert "exists already" in run("tasks", file).stderr
    with np.load("tasks.npz") as tasks:
        np.savez("p.npz", predicted=np.zeros(tasks["query"].shape, int))
    told = ("--name", "constant", "--assumes", "nothing")
    assert "constant@" in run("score", file, "tasks.npz", "p.npz", *told).stdout
    shown = run("compare", "--methods", "ncm", *FEW, "--with", "results").stdout
    assert "constant ‡" in shown
    assert "predictions of another program" in shown
    done = run("compare", "--methods", "ncm", *FEW, "--with", "results", "--json", "--metrics", "accuracy,ece")
    rows = [(row["method"], row["metric"]) for row in json.loads(done.stdout)]
    assert ("constant", "accuracy") in rows
    assert ("constant", "ece") not in rows  # it says nothing of its confidence
    assert "another program" in run("verify", "--quiet").stdout


BOTH = ("--tasks", "30", "--settings", "unbalanced", "--shots", "1,5", "--no-published", "--quiet")


@pytest.fixture
def solved(folder: Path) -> Path:
    """Records of Soft-KMEANS and BAVARDAGE with one and five shots."""
    succeed("compare", "--methods", "bavardage", *BOTH)
    return folder


def test_a_changed_record_is_noticed(solved: Path) -> None:
    whole = succeed("verify", "results", "--sample", "all")
    assert "4 records: 4 equal." in whole.stdout
    sample = run("verify", "--sample", "10", "--seed", "3").stdout
    assert "Sample drawn with --seed 3;" in sample
    (path,) = (solved / "results").glob("*bavardage-unbalanced-5shot*")
    record = load_record(path)
    predicted = record.answers.predicted.copy()
    predicted[17, 0] = (predicted[17, 0] + 1) % record.run.protocol.ways
    save_record(path, record.model_copy(update={"answers": replace(record.answers, predicted=predicted)}))
    verdict = run("verify", "--json")
    assert verdict.returncode == 1
    (wrong,) = [row for row in json.loads(verdict.stdout)["records"] if row["state"] == "different"]
    assert wrong["different"] == [17]
    assert "other answers in 1 of 30 tasks; the first is task 17." in " ".join(run("verify").stdout.split())


@pytest.mark.usefixtures("solved")
def test_a_method_that_became_worse_fails_a_build() -> None:
    compare = ("compare", *BOTH, "--methods", "soft-kmeans,bavardage")
    worse = run(*compare, "--baseline", "bavardage", "--fail-if-worse", "soft-kmeans")
    assert worse.returncode == 1
    assert "soft-kmeans is below bavardage: synthetic none, unbalanced α=2 1-shot: -" in worse.stderr
    assert "bavardage" in worse.stdout  # the table is shown first
    succeed(*compare, "--baseline", "bavardage", "--fail-if-worse", "soft-kmeans", "--by", "60")
    succeed(*compare, "--fail-if-worse", "bavardage")
