"""Results that travel: records of others, `--fail-if-worse` and `fsbench verify`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fsbench.results.record import load_record, save_record
from tests.cli import run

if TYPE_CHECKING:
    from pathlib import Path

FEW = ("--tasks", "30", "--settings", "unbalanced", "--shots", "1,5", "--no-published", "--quiet")


@pytest.fixture
def exchanged(folder: Path) -> Path:
    """Records of Soft-KMEANS and NCM in `results`, of Soft-KMEANS and BAVARDAGE in `anna/results`."""
    assert run("compare", "--methods", "ncm", *FEW).returncode == 0
    assert run("compare", "--methods", "bavardage", *FEW, "--results-dir", "anna/results").returncode == 0
    return folder


def test_records_that_were_copied_are_reused_and_folders_are_reported_together(exchanged: Path) -> None:
    assert run("report", "results", "anna/results", "--no-published").returncode == 0
    page = (exchanged / "report.html").read_text(encoding="utf-8")
    assert page.count('<section id="c') == 1  # both are in one table
    assert all(f">{name}</a>" in page for name in ("ncm", "bavardage"))
    (theirs,) = (exchanged / "anna/results").glob("*bavardage-unbalanced-5shot*")
    shutil.copy(theirs, "results")
    assert run("compare", "--methods", "bavardage", *FEW).returncode == 0
    assert (exchanged / "results" / theirs.name).read_bytes() == theirs.read_bytes()


def forge(path: Path, task: int) -> None:
    """Change the answer to the first query of one task, and seal the record again."""
    record = load_record(path)
    predicted = record.predicted.copy()
    predicted[task, 0] = (predicted[task, 0] + 1) % record.protocol.ways
    save_record(path, record.update(replace(record.answers, predicted=predicted)))


def test_a_changed_record_is_found(exchanged: Path) -> None:
    whole = run("verify", "anna/results", "--sample", "all")
    assert whole.returncode == 0, whole.stderr
    assert "4 records: 4 equal." in whole.stdout
    (path,) = (exchanged / "anna/results").glob("*bavardage-unbalanced-5shot*")
    forge(path, 17)
    found = run("verify", "anna/results", "--json")
    assert found.returncode == 1
    (wrong,) = [row for row in json.loads(found.stdout)["records"] if row["state"] == "different"]
    assert wrong["different"] == [17]
    shown = run("verify", "anna/results")
    assert "task 17." in shown.stdout


def test_a_sample_says_what_it_would_find(exchanged: Path) -> None:
    done = run("verify", "--sample", "10", "--seed", "3")
    assert done.returncode == 0
    assert "10 of 30" in done.stdout
    assert "--seed 3. It would find changes in 26 %" in done.stdout  # 1 - 0.05 ** (1 / 10)


def test_what_cannot_be_verified_says_why(exchanged: Path, tmp_path: Path) -> None:
    (exchanged / "mine.py").write_text("from fsbench.methods.ncm import NearestClassMean as Mine\n")
    assert run("compare", "--methods", "mine.py:Mine", *FEW).returncode == 0
    done = run("verify")
    assert done.returncode == 0  # the others are equal
    assert "name it with --methods" in done.stdout
    assert "6 records: 6 equal." in run("verify", "--methods", "mine.py:Mine").stdout
    (exchanged / "features" / "synthetic-none.h5").rename(exchanged / "other.h5")
    shutil.rmtree(exchanged / "features")
    assert run("verify", "--features-dir", "features2").returncode == 1


def test_a_method_that_became_worse_fails_a_build(exchanged: Path) -> None:
    worse = run("compare", "--methods", "ncm,bavardage", "--baseline", "bavardage", *FEW, "--fail-if-worse", "ncm")
    assert worse.returncode == 1
    assert "ncm is below bavardage: synthetic none, unbalanced α=2 1-shot: -" in worse.stderr
    assert "bavardage" in worse.stdout  # the table is shown first
    allowed = run(
        "compare", "--methods", "ncm,bavardage", "--baseline", "bavardage", *FEW, "--fail-if-worse", "ncm", "--by", "60"
    )
    assert allowed.returncode == 0
    better = run("compare", "--methods", "bavardage", "--baseline", "ncm", *FEW, "--fail-if-worse", "bavardage")
    assert better.returncode == 0
